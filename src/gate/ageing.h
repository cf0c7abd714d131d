// The ageing stage of a gate: judges rows again, at every eviction, by how they have been used since they were written.
//
//   f[i]          the features of a row in one kv head, in the order that the file names       f32 [n_features]
//   hidden[j]   = gelu(b1[h][j] + w1[h][j] . f)      j < width; a linear stage has no hidden layer and hidden = f
//   logit       = b2[h] + w2[h] . hidden             a network of its own for each layer and kv head
//
// Pure: what the features are of is measured elsewhere (eviction/ageing.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kedge::gate {

// Of a row, at an eviction; logarithms are natural. The window: the last AgeingInfo::window queries of the sequence.
enum class Feature : uint8_t {
  logit,        // what the append stage said when the row was written
  attention,    // log of the mean weight that it has had from all queries since it was written
  window_max,   // log of the largest weight that a query of the window, and a head of the group, gives it
  window_mean,  // log of the mean weight of the window's queries that could see it
  last_access,  // log(1 + tokens since the last query of the window that gave it more than an even share of its weight)
  age,          // log(tokens since it was written)
  key_norm,     // log ||k||
  value_norm,   // log ||v||
  past,         // log of the mean weight that a sample of all queries gave it
  echo,         // log of the largest weight that the text's own queries give it when they ask from behind the text
  anchor,       // log of AnDPro's score over the window, as a share of the window's squared outputs
};
inline constexpr int kFeatures = 11;

const char* feature_name(Feature feature);
std::optional<Feature> feature_of(std::string_view name);
std::string feature_names(std::span<const Feature> features);  // "logit,attention"
std::string all_feature_names();                               // for messages

struct AgeingInfo {
  std::vector<Feature> features;  // each once; empty: the gate has no such stage
  int width = 0;                  // hidden units of a head; 0: linear
  int window = 0;                 // newest queries that the features are measured over
  int n_features() const { return static_cast<int>(features.size()); }
  int n_hidden() const { return width > 0 ? width : n_features(); }  // inputs of the last product
  bool asks(Feature feature) const;
};

int64_t n_products(const AgeingInfo& info);  // multiplications of a row, at an eviction

struct AgeingLayer {
  std::vector<float> w1;  // f32 [n_kv_heads][width][n_features]; empty where linear
  std::vector<float> b1;  // f32 [n_kv_heads][width]; the same
  std::vector<float> w2;  // f32 [n_kv_heads][width, or n_features where linear]
  std::vector<float> b2;  // f32 [n_kv_heads]
};

struct Ageing {
  AgeingInfo info;
  std::vector<AgeingLayer> layers;
};

// Which head's network.
struct AgeingPlace {
  int layer = 0;
  int head = 0;  // kv head
};
// features f32 [n][n_features] -> f32 [n]. Sums in f32, in order: the same bits everywhere.
std::vector<float> ageing_logits(const Ageing& ageing, AgeingPlace place, std::span<const float> features);

}  // namespace kedge::gate
