// A KV budget as users write it, and what it means for a model and a request.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kedge/error.h"

namespace kedge {

// "512MiB", "1.5GiB", "300000B": bytes, a hard limit for everything the store ever holds.
// "25%": that share of the request's tokens as rows per kv head on average. "2048tok": that many rows.
// The last two are row budgets: their byte limit follows from them (rows, block rounding and the working
// space of one layer while a prompt is read), is printed, and is as hard as one given in bytes.
struct Budget {
  enum class Kind { unlimited, bytes, share, rows };
  Kind kind = Kind::unlimited;
  double value = 0;  // bytes, 0..1, or rows per kv head
  std::string text = "unlimited";
};

// Error usage: no unit, zero, negative, not a number, over 100 %. Names the value found and the forms allowed.
Result<Budget> parse_budget(std::string_view text);
std::string format_bytes(int64_t bytes);  // "4.00 MiB"

}  // namespace kedge
