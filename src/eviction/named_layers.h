// Weights of layers that an option names: `0-1:3+29:0.5` gives layers 0 and 1 the weight 3 and layer 29 one half.
// Names of layers that a model does not have say nothing.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "kedge/error.h"

namespace kedge::eviction {

struct NamedLayers {
  int first = 0;
  int last = 0;
  double weight = 1;  // above 0, up to 1000
};

// "-" or "": none. Error usage: the piece that cannot be read, as option 'layers' of `method`.
Result<std::vector<NamedLayers>> read_named_layers(std::string_view text, std::string_view method);

// Of the first entry that names the layer.
std::optional<double> weight_of(const std::vector<NamedLayers>& named, int layer);

}  // namespace kedge::eviction
