// Whether a text contains another one, in any case.
#pragma once

#include <string>
#include <string_view>

namespace kedge::eval {

std::u32string folded(std::string_view text);  // code points in lower case

// The answer, without white space at its ends, occurs in the folded text. An empty answer occurs in blank text only.
bool holds(const std::u32string& folded_text, std::string_view answer);

}  // namespace kedge::eval
