// Named sets of option values: `--preset NAME` gives its options these values where nothing else does.
#pragma once

#include <string_view>

namespace kedge::cli {

// What the preset sets the option `key` ("temp") to, as the user would write it; empty: the preset leaves it alone.
std::string_view preset_value(std::string_view preset, std::string_view key);

}  // namespace kedge::cli
