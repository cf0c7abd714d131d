#include "train/shard.h"

#include <zlib.h>

#include <cstring>

#include "base/check.h"
#include "base/output_file.h"

namespace kedge::train {
namespace {

constexpr char kMagic[8] = {'K', 'E', 'D', 'G', 'E', 'R', 'O', 'W'};
constexpr uint32_t kVersion = 1;
constexpr size_t kHashBytes = 64;

struct Header {
  char magic[8];
  uint32_t version;
  ShardShape shape;
  char made_from[kHashBytes];  // padded with zeros
  uint32_t reserved;           // the data begins at a multiple of eight
};
static_assert(sizeof(Header) % 8 == 0);

uint32_t crc(std::span<const std::byte> bytes) {
  return static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

// Bytes of one layer: x is padded so that y is aligned.
size_t x_bytes(const ShardShape& shape) { return (size_t{shape.n_rows} * shape.n_embd * 2 + 7) / 8 * 8; }
size_t y_bytes(const ShardShape& shape) { return (size_t{shape.n_rows} * shape.n_heads * 4 + 7) / 8 * 8; }

size_t file_bytes(const ShardShape& shape) {
  return sizeof(Header) + shape.n_layers * (x_bytes(shape) + y_bytes(shape)) + sizeof(uint32_t);
}

}  // namespace

Status save_shard(const Shard& shard, const std::string& path) {
  check(shard.made_from.size() <= kHashBytes && shard.layers.size() == shard.shape.n_layers, "a whole shard");
  Header header{.magic = {}, .version = kVersion, .shape = shard.shape, .made_from = {}, .reserved = 0};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  std::memcpy(header.made_from, shard.made_from.data(), shard.made_from.size());
  std::vector<std::byte> bytes(file_bytes(shard.shape));
  std::memcpy(bytes.data(), &header, sizeof header);
  std::byte* at = bytes.data() + sizeof header;
  for (const LayerRows& layer : shard.layers) {
    std::memcpy(at, layer.x.data(), layer.x.size() * 2);
    at += x_bytes(shard.shape);
    std::memcpy(at, layer.y.data(), layer.y.size() * 4);
    at += y_bytes(shard.shape);
  }
  const uint32_t sum = crc(std::span(bytes).first(bytes.size() - sizeof(uint32_t)));
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
  // Products of 32-bit numbers may exceed what a file can be: the sizes are compared as real numbers first.
  const double rows = header.shape.n_rows;
  const double wanted = rows * header.shape.n_layers * (2.0 * header.shape.n_embd + 4.0 * header.shape.n_heads);
  if (wanted > 1e15 || file_bytes(header.shape) != bytes.size())
    return bad("found " + std::to_string(bytes.size()) + " bytes, its header asks for another size");
  uint32_t sum = 0;
  std::memcpy(&sum, bytes.data() + bytes.size() - sizeof sum, sizeof sum);
  if (sum != crc(bytes.first(bytes.size() - sizeof sum)))
    return bad("its checksum does not fit what is in it");
  file.made_from_.assign(header.made_from, strnlen(header.made_from, kHashBytes));
  return file;
}

const std::byte* ShardFile::layer(int layer) const {
  check(layer >= 0 && static_cast<uint32_t>(layer) < shape_.n_layers, "the layer exists");
  return file_.bytes().data() + sizeof(Header) + static_cast<size_t>(layer) * (x_bytes(shape_) + y_bytes(shape_));
}

std::span<const uint16_t> ShardFile::x(int layer) const {
  return {reinterpret_cast<const uint16_t*>(this->layer(layer)), size_t{shape_.n_rows} * shape_.n_embd};
}

std::span<const float> ShardFile::y(int layer) const {
  return {reinterpret_cast<const float*>(this->layer(layer) + x_bytes(shape_)), size_t{shape_.n_rows} * shape_.n_heads};
}

}  // namespace kedge::train
