// The words of the user's text, for tasks that count words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "eval/random.h"

namespace kedge::eval {

// Distinct words of 4 to 12 letters in lower case, in order of their first use in the first 8 MiB of the text.
std::vector<std::string> vocabulary(std::string_view text);

// n words drawn from `words`, of which the first n_answers occur in no other (so that finding an answer means the
// word). Fewer: there are not as many.
std::vector<std::string> draw_words(const std::vector<std::string>& words, size_t n, size_t n_answers, Random& random);

}  // namespace kedge::eval
