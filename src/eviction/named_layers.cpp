#include "eviction/named_layers.h"

#include <algorithm>
#include <charconv>

#include "eviction/registry.h"

namespace kedge::eviction {
namespace {

constexpr double kLargestWeight = 1000;

template <typename Number>
bool read_number(std::string_view text, Number& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return !text.empty() && error == std::errc() && end == text.data() + text.size();
}

// FIRST[-LAST]:WEIGHT
std::optional<NamedLayers> read_layers(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos)
    return std::nullopt;
  const std::string_view range = text.substr(0, colon);
  const size_t dash = range.find('-');
  NamedLayers out;
  const bool is_read = read_number(range.substr(0, dash), out.first) &&
                       (dash == std::string_view::npos || read_number(range.substr(dash + 1), out.last)) &&
                       read_number(text.substr(colon + 1), out.weight);
  if (dash == std::string_view::npos)
    out.last = out.first;
  if (!is_read || out.first < 0 || out.last < out.first || !(out.weight > 0 && out.weight <= kLargestWeight))
    return std::nullopt;
  return out;
}

}  // namespace

Result<std::vector<NamedLayers>> read_named_layers(std::string_view text, std::string_view method) {
  std::vector<NamedLayers> out;
  while (text != "-" && !text.empty()) {
    const size_t plus = std::min(text.find('+'), text.size());
    const std::optional<NamedLayers> one = read_layers(text.substr(0, plus));
    if (!one.has_value()) {
      return Error{ErrorCode::usage, "option 'layers' of '" + std::string(method) +
                                         "': " + quoted(text.substr(0, plus)) +
                                         " is not FIRST[-LAST]:WEIGHT with a weight above 0 and up to 1000 (several: "
                                         "joined by '+')"};
    }
    out.push_back(*one);
    text = text.substr(std::min(plus + 1, text.size()));
  }
  return out;
}

std::optional<double> weight_of(const std::vector<NamedLayers>& named, int layer) {
  for (const NamedLayers& one : named) {
    if (layer >= one.first && layer <= one.last)
      return one.weight;
  }
  return std::nullopt;
}

}  // namespace kedge::eviction
