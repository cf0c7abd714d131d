// The lists of the command line, as llama-bench writes them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kedge/budget.h"
#include "kedge/error.h"

namespace kedge::bench {

struct ListRange {
  std::string_view flag;  // "--n-prompt", for the message
  int64_t least = 0;
  int64_t most = 0;
};

// "512,1024" (values), "1-4" (1,2,3,4), "512-2048+512" (steps), "1-8*2" (1,2,4,8), and mixtures of them by commas.
// Error usage: names the flag, the piece, what is allowed.
Result<std::vector<int>> parse_ints(std::string_view text, const ListRange& range);

// "PP,TG" pairs, one or several joined by semicolons: "512,128" or "512,128;1024,256".
Result<std::vector<std::pair<int, int>>> parse_pairs(std::string_view text, const ListRange& range);

// Commas part policies; a piece k=v without a colon or slash before its equals sign goes on with the policy before it:
// "andpro:window=32,pool=11/pooled,snapkv" are two. Each is checked against the registry. Error usage.
Result<std::vector<std::string>> parse_policies(std::string_view text);

// "none,100%,16MiB"; none (or full) is the full cache. Error usage.
Result<std::vector<Budget>> parse_budgets(std::string_view text);

// One of `allowed` for each piece. Error usage.
Result<std::vector<std::string>> parse_words(std::string_view text, std::string_view flag,
                                             const std::vector<std::string>& allowed);

}  // namespace kedge::bench
