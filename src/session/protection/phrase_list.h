// The file of --kv-protect: words and phrases, one a line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kedge/error.h"
#include "kedge/protection.h"

namespace kedge::session {

inline constexpr size_t kMostPhrases = 10000;
inline constexpr size_t kLongestPhrase = 1000;  // bytes

// `#` begins a comment at the start of a line, `\#` a phrase; `case: ` in front: upper and lower case differ. Empty
// lines are left out. Error usage, with `name` and the line: not UTF-8, a control character, too long, too many, none.
Result<std::vector<ProtectedPhrase>> parse_phrase_list(std::string_view text, const std::string& name);

// The same limits for phrases that come from elsewhere. Error usage names the phrase's number.
Status check_phrases(const std::vector<ProtectedPhrase>& phrases);

}  // namespace kedge::session
