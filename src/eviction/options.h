// Option tables of methods, and option lists `k=v,k=v`: split, checked against the table, spelled out again.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "eviction/policy.h"

namespace kedge::eviction {

struct Range {
  double min = 0;
  double max = 0;
};
OptionInfo integer_option(std::string name, std::string fallback, Range range, std::string help);
OptionInfo odd_option(std::string name, std::string fallback, Range range, std::string help);
OptionInfo real_option(std::string name, std::string fallback, Range range, std::string help);
OptionInfo choice_option(std::string name, std::vector<std::string> choices, std::string help);  // the first by default
OptionInfo text_option(std::string name, std::string fallback, std::string help);  // any text without , / =; "-": none
OptionInfo rows_option(std::string name, std::string fallback, std::string help);  // rows or a share
OptionInfo for_allocator(OptionInfo option);                                       // OptionInfo::to_allocator

struct GivenOption {
  std::string key;
  std::string value;
};

// "" -> none. Error usage: an empty piece, no '=', a key twice. `method` is for messages.
Result<std::vector<GivenOption>> split_options(std::string_view text, std::string_view method);

struct ResolvedOptions {
  OptionValues values;  // every option of the table but those with to_allocator
  std::string text;     // "k=v,k=v" in the table's order; parses back to the same values
};
// Error usage: unknown key (names the nearest), a value of the wrong kind or out of range.
Result<ResolvedOptions> resolve_options(const MethodInfo& method, const std::vector<GivenOption>& given);

}  // namespace kedge::eviction
