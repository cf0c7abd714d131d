#include "train/shard.h"

#include <cstring>

#include "base/check.h"
#include "base/crc32.h"
#include "base/output_file.h"

namespace kedge::train {
namespace {

constexpr char kMagic[8] = {'K', 'E', 'D', 'G', 'E', 'R', 'O', 'W'};
constexpr uint32_t kVersion = 3;
constexpr size_t kHashBytes = 64;

struct Header {
  char magic[8];
  uint32_t version;
  ShardShape shape;
  char made_from[kHashBytes];  // padded with zeros; the data begins at a multiple of eight
};
static_assert(sizeof(Header) % 8 == 0);

// Where a layer's parts begin, each padded to a multiple of eight bytes.
struct Places {
  size_t kv, y, features, late, end;
};

Places places_of(const ShardShape& shape) {
  const auto after = [](size_t begin, size_t bytes) { return (begin + bytes + 7) / 8 * 8; };
  const size_t n_rows = shape.n_rows;
  const size_t n_aged = size_t{shape.n_aged} * shape.n_heads;
  Places at{};
  at.kv = after(0, n_rows * shape.n_embd * 2);
  at.y = after(at.kv, n_rows * shape.n_kv * 2);
  at.features = after(at.y, n_rows * shape.n_heads * 4);
  at.late = after(at.features, n_aged * shape.n_features() * 2);
  at.end = after(at.late, n_aged * 4);
  return at;
}

// As a real number: products of 32-bit numbers may exceed what a file can be.
double about_bytes(const ShardShape& shape) {
  const double rows = shape.n_rows;
  const double aged = shape.n_aged;
  return shape.n_layers * (rows * (2.0 * shape.n_embd + 2.0 * shape.n_kv + 4.0 * shape.n_heads) +
                           aged * shape.n_heads * (2.0 * shape.n_features() + 4.0));
}

size_t file_bytes(const ShardShape& shape) {
  return sizeof(Header) + shape.n_layers * places_of(shape).end + sizeof(uint32_t);
}

template <typename T>
void put(const std::vector<T>& values, std::byte* to) {
  std::memcpy(to, values.data(), values.size() * sizeof(T));
}

}  // namespace

FeatureSet measured_features() {
  constexpr gate::Feature kSaid[] = {gate::Feature::logit};
  return ((FeatureSet{1} << gate::kFeatures) - 1) & ~set_of(kSaid);
}

FeatureSet set_of(std::span<const gate::Feature> features) {
  FeatureSet set = 0;
  for (const gate::Feature feature : features)
    set |= FeatureSet{1} << static_cast<uint32_t>(feature);
  return set;
}

std::vector<gate::Feature> features_of(FeatureSet set) {
  std::vector<gate::Feature> features;
  for (uint32_t f = 0; f < gate::kFeatures; ++f) {
    if ((set >> f & 1) != 0)
      features.push_back(static_cast<gate::Feature>(f));
  }
  return features;
}

Status save_shard(const Shard& shard, const std::string& path) {
  check(shard.made_from.size() <= kHashBytes && shard.layers.size() == shard.shape.n_layers, "a whole shard");
  Header header{.magic = {}, .version = kVersion, .shape = shard.shape, .made_from = {}};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  std::memcpy(header.made_from, shard.made_from.data(), shard.made_from.size());
  std::vector<std::byte> bytes(file_bytes(shard.shape));
  std::memcpy(bytes.data(), &header, sizeof header);
  std::byte* at = bytes.data() + sizeof header;
  const Places places = places_of(shard.shape);
  for (const LayerRows& layer : shard.layers) {
    put(layer.x, at);
    put(layer.kv, at + places.kv);
    put(layer.y, at + places.y);
    put(layer.features, at + places.features);
    put(layer.late, at + places.late);
    at += places.end;
  }
  const uint32_t sum = crc32_of(std::span(bytes).first(bytes.size() - sizeof(uint32_t)));
  std::memcpy(at, &sum, sizeof sum);
  return write_file(path, bytes);
}

Result<ShardFile> ShardFile::open(const std::string& path) {
  Result<MappedFile> mapped = MappedFile::open(path);
  if (!mapped)
    return mapped.error();
  ShardFile file(*std::move(mapped));
  const std::span<const std::byte> bytes = file.file_.bytes();
  const auto bad = [&path](const std::string& what) { return Error{ErrorCode::failed, path + ": " + what}; };
  Header header;
  if (bytes.size() < sizeof header + sizeof(uint32_t))
    return bad("found " + std::to_string(bytes.size()) + " bytes, allowed at least " +
               std::to_string(sizeof header + 4));
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0)
    return bad("no file of labelled rows: it begins with something else than KEDGEROW");
  if (header.version != kVersion)
    return bad("found version " + std::to_string(header.version) + ", allowed " + std::to_string(kVersion));
  file.shape_ = header.shape;
  if (about_bytes(header.shape) > 1e15 || header.shape.n_aged > header.shape.n_rows ||
      header.shape.features >> gate::kFeatures != 0 || file_bytes(header.shape) != bytes.size())
    return bad("found " + std::to_string(bytes.size()) + " bytes, its header asks for another size");
  uint32_t sum = 0;
  std::memcpy(&sum, bytes.data() + bytes.size() - sizeof sum, sizeof sum);
  if (sum != crc32_of(bytes.first(bytes.size() - sizeof sum)))
    return bad("its checksum does not fit what is in it");
  file.made_from_.assign(header.made_from, strnlen(header.made_from, kHashBytes));
  return file;
}

const std::byte* ShardFile::layer(int layer) const {
  check(layer >= 0 && static_cast<uint32_t>(layer) < shape_.n_layers, "the layer exists");
  return file_.bytes().data() + sizeof(Header) + static_cast<size_t>(layer) * places_of(shape_).end;
}

std::span<const uint16_t> ShardFile::x(int layer) const {
  return {reinterpret_cast<const uint16_t*>(this->layer(layer)), size_t{shape_.n_rows} * shape_.n_embd};
}

std::span<const uint16_t> ShardFile::kv(int layer) const {
  return {reinterpret_cast<const uint16_t*>(this->layer(layer) + places_of(shape_).kv),
          size_t{shape_.n_rows} * shape_.n_kv};
}

std::span<const float> ShardFile::y(int layer) const {
  return {reinterpret_cast<const float*>(this->layer(layer) + places_of(shape_).y),
          size_t{shape_.n_rows} * shape_.n_heads};
}

std::span<const uint16_t> ShardFile::features(int layer) const {
  return {reinterpret_cast<const uint16_t*>(this->layer(layer) + places_of(shape_).features),
          size_t{shape_.n_aged} * shape_.n_heads * shape_.n_features()};
}

std::span<const float> ShardFile::late(int layer) const {
  return {reinterpret_cast<const float*>(this->layer(layer) + places_of(shape_).late),
          size_t{shape_.n_aged} * shape_.n_heads};
}

}  // namespace kedge::train
