#include "gate/ageing.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"

namespace kedge::gate {
namespace {

// By Feature.
constexpr std::array<const char*, kFeatures> kNames = {"logit",       "attention", "window_max", "window_mean",
                                                       "last_access", "age",       "key_norm",   "value_norm",
                                                       "past",        "echo",      "anchor"};

float gelu(float x) { return 0.5F * x * (1 + std::erf(x * 0.70710678F)); }

float affine(float b, std::span<const float> w, std::span<const float> x) {
  float sum = b;
  for (size_t i = 0; i < x.size(); ++i)
    sum += w[i] * x[i];
  return sum;
}

std::span<const float> part(const std::vector<float>& all, int index, int size) {
  return std::span(all).subspan(static_cast<size_t>(index) * static_cast<size_t>(size), static_cast<size_t>(size));
}

}  // namespace

const char* feature_name(Feature feature) { return kNames.at(static_cast<size_t>(feature)); }

std::optional<Feature> feature_of(std::string_view name) {
  const auto* const found = std::ranges::find(kNames, name);
  if (found == kNames.end())
    return std::nullopt;
  return static_cast<Feature>(found - kNames.begin());
}

std::string feature_names(std::span<const Feature> features) {
  std::string names;
  for (const Feature feature : features)
    names += (names.empty() ? "" : ",") + std::string(feature_name(feature));
  return names;
}

std::string all_feature_names() {
  std::string names;
  for (const char* name : kNames)
    names += (names.empty() ? "" : ", ") + std::string(name);
  return names;
}

bool AgeingInfo::asks(Feature feature) const { return std::ranges::find(features, feature) != features.end(); }

int64_t n_products(const AgeingInfo& info) {
  return info.width > 0 ? int64_t{info.width} * (info.n_features() + 1) : int64_t{info.n_features()};
}

std::vector<float> ageing_logits(const Ageing& ageing, AgeingPlace place, std::span<const float> features) {
  const AgeingInfo& info = ageing.info;
  const auto n_features = static_cast<size_t>(info.n_features());
  check(n_features > 0 && features.size() % n_features == 0, "an ageing stage needs its features of every row");
  check(place.layer >= 0 && static_cast<size_t>(place.layer) < ageing.layers.size(), "the ageing stage has the layer");
  const AgeingLayer& layer = ageing.layers[static_cast<size_t>(place.layer)];
  check(place.head >= 0 && static_cast<size_t>(place.head) < layer.b2.size(), "the ageing stage has the head");
  const std::span<const float> w2 = part(layer.w2, place.head, info.n_hidden());
  const float b2 = layer.b2[static_cast<size_t>(place.head)];
  std::vector<float> hidden(static_cast<size_t>(info.width));
  std::vector<float> out;
  for (size_t row = 0; row * n_features < features.size(); ++row) {
    const std::span<const float> f = features.subspan(row * n_features, n_features);
    for (int j = 0; j < info.width; ++j) {
      const int unit = place.head * info.width + j;
      hidden[static_cast<size_t>(j)] =
          gelu(affine(layer.b1[static_cast<size_t>(unit)], part(layer.w1, unit, info.n_features()), f));
    }
    out.push_back(affine(b2, w2, info.width > 0 ? std::span<const float>(hidden) : f));
  }
  return out;
}

}  // namespace kedge::gate
