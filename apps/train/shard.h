// Rows of one window with their labels, as a file: what is learned from is collected once and read a layer at a time.
//   "KEDGEROW", u32 version, header fields; then for each layer f16 x [n_rows][n_embd], f16 kv [n_rows][n_kv],
//   f32 y [n_rows][n_kv_heads], f16 features [n_aged][n_kv_heads][n_features], f32 late [n_aged][n_kv_heads];
//   the last four bytes are the CRC-32 of all before. Little-endian. What no input needs has no columns.
//
// A window may be cut at a token: its first n_aged rows, which stand before the cut, also have the features that an
// ageing stage would have seen of them there, and labels that are made of what comes after it alone.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "gate/ageing.h"
#include "kedge/error.h"

namespace kedge::train {

// Features, in the order of their columns: ascending.
using FeatureSet = uint32_t;  // bit f: gate::Feature f
FeatureSet set_of(std::span<const gate::Feature> features);
std::vector<gate::Feature> features_of(FeatureSet set);
FeatureSet measured_features();  // all, but those that an append stage says

struct ShardShape {
  uint32_t n_rows = 0;
  uint32_t n_layers = 0;
  uint32_t n_embd = 0;
  uint32_t n_heads = 0;  // kv heads
  uint32_t n_kv = 0;
  uint32_t n_aged = 0;
  FeatureSet features = 0;
  uint32_t n_features() const { return static_cast<uint32_t>(std::popcount(features)); }
  bool operator==(const ShardShape&) const = default;
};

struct LayerRows {
  std::vector<uint16_t> x;         // f16 [n_rows][n_embd]: what the layer's projections see
  std::vector<float> y;            // f32 [n_rows][n_heads]: labels
  std::vector<uint16_t> kv;        // f16 [n_rows][n_kv]: keys before rotation of all kv heads, then values
  std::vector<uint16_t> features;  // f16 [n_aged][n_heads][n_features]
  std::vector<float> late;         // f32 [n_aged][n_heads]: labels from the cut on
};

struct Shard {
  ShardShape shape;
  std::string made_from;  // what the labels depend on: model, text, options (hash)
  std::vector<LayerRows> layers;
};

// Written beside `path`, then renamed. Error failed, naming the path.
Status save_shard(const Shard& shard, const std::string& path);

// A checked file; a layer's rows are views into its mapping.
class ShardFile {
 public:
  // Error failed: names the file, what was found and what is allowed.
  static Result<ShardFile> open(const std::string& path);
  const ShardShape& shape() const { return shape_; }
  const std::string& made_from() const { return made_from_; }
  std::span<const uint16_t> x(int layer) const;
  std::span<const float> y(int layer) const;
  std::span<const uint16_t> kv(int layer) const;
  std::span<const uint16_t> features(int layer) const;
  std::span<const float> late(int layer) const;

 private:
  explicit ShardFile(MappedFile file) : file_(std::move(file)) {}
  const std::byte* layer(int layer) const;

  MappedFile file_;
  ShardShape shape_;
  std::string made_from_;
};

}  // namespace kedge::train
