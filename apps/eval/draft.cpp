#include "eval/draft.h"

#include <algorithm>

namespace kedge::eval {
namespace {

constexpr int kMaxSteps = 64;

// Tokens of the draft that lie before byte `end`; one that reaches across it counts.
size_t tokens_before(const Tokenizer& tokenizer, std::string_view text, size_t end, std::span<const Token> tokens) {
  const std::vector<Token> before = tokenizer.tokenize(text.substr(0, end));
  const auto n_equal = static_cast<size_t>(std::ranges::mismatch(before, tokens).in1 - before.begin());
  return n_equal == before.size() ? n_equal : std::min(n_equal + 1, tokens.size());
}

}  // namespace

std::vector<Token> cut_to(const Tokenizer& tokenizer, const Draft& draft, std::vector<Token> tokens, int64_t n_tokens) {
  if (static_cast<int64_t>(tokens.size()) < n_tokens)
    return {};
  const size_t excess = tokens.size() - static_cast<size_t>(n_tokens);
  const size_t begin = tokens_before(tokenizer, draft.text, draft.slack_begin, tokens);
  const size_t end = tokens_before(tokenizer, draft.text, draft.slack_end, tokens);
  if (begin + excess > end)
    return {};
  const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(begin);
  tokens.erase(first, first + static_cast<std::ptrdiff_t>(excess));
  return tokens;
}

std::vector<Token> fit_entries(const Tokenizer& tokenizer, int64_t n_tokens, double tokens_per_entry,
                               const std::function<Draft(EntryCounts)>& draft) {
  const auto entries = [tokens_per_entry](int64_t tokens) {
    return static_cast<int64_t>(static_cast<double>(tokens) / tokens_per_entry);
  };
  EntryCounts counts{.main = entries(n_tokens), .spare = 0};
  for (int step = 0; step < kMaxSteps && counts.main > 0; ++step) {
    const Draft made = draft(counts);
    std::vector<Token> tokens = tokenizer.tokenize(made.text);
    const int64_t excess = static_cast<int64_t>(tokens.size()) - n_tokens;
    if (excess < 0) {
      counts.spare += entries(-excess) + 1;
      continue;
    }
    tokens = cut_to(tokenizer, made, std::move(tokens), n_tokens);
    if (!tokens.empty())
      return tokens;
    counts.main -= entries(excess) + 1;
  }
  return {};
}

}  // namespace kedge::eval
