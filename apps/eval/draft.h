// A text that is to become an exact number of tokens by losing some where it does no harm.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "eval/task.h"

namespace kedge::eval {

struct Draft {
  std::string text;
  size_t slack_begin = 0;  // bytes: the part that may lose tokens, from its beginning on
  size_t slack_end = 0;
};

// Exactly n_tokens of `tokens`, the draft's (tokenized as one text, so that no seam shows). Empty: there are fewer, or
// the slack has too few to lose. A token that reaches across the slack's beginning is not lost.
std::vector<Token> cut_to(const Tokenizer& tokenizer, const Draft& draft, std::vector<Token> tokens, int64_t n_tokens);

// Lists of made-up entries: the draft of so many entries that matter, and so many more that do not and are the slack.
struct EntryCounts {
  int64_t main = 0;
  int64_t spare = 0;
};
// Finds counts near n_tokens / tokens_per_entry for which the draft can be cut to n_tokens. Empty: there are none.
std::vector<Token> fit_entries(const Tokenizer& tokenizer, int64_t n_tokens, double tokens_per_entry,
                               const std::function<Draft(EntryCounts)>& draft);

}  // namespace kedge::eval
