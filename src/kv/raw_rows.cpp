// A head's rows as bytes, for files and for copies between stores.
//
//   type u32 | n_notes u32 | n_rows u32 | positions i32 [n_rows] | notes f32 [n_notes][n_rows] | flags u8 [n_rows]
//   | payload [ceil(n_rows / 16) blocks]
//
// Payload is whole blocks as they lie in memory (kernels/kv_view.h); slots without a row are zero, so that equal rows
// are equal bytes. What a row type means is known here and in the kernels only.
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kv/store_impl.h"

namespace kedge::kv {
namespace {

constexpr size_t kStartBytes = 12;  // type, n_notes, n_rows

size_t note_bytes(const StoreShape& shape) { return 5 + static_cast<size_t>(shape.n_notes) * 4; }  // of one row

int64_t payload_bytes(const StoreShape& shape) { return int64_t{shape.head_dim} * kBlockRows * kRowTypeBytes * 2; }

void put(std::vector<std::byte>& out, const void* from, size_t n) {
  const auto* bytes = static_cast<const std::byte*>(from);
  out.insert(out.end(), bytes, bytes + n);
}

template <typename T>
void put(std::vector<std::byte>& out, const T& value) {
  put(out, &value, sizeof value);
}

// Where the parts of a head lie in its bytes.
struct Parts {
  int64_t n_rows = 0;
  std::span<const std::byte> positions;
  std::span<const std::byte> notes;
  std::span<const std::byte> flags;
  std::span<const std::byte> payload;

  int32_t position(int64_t row) const {
    int32_t value = 0;
    std::memcpy(&value, positions.data() + row * 4, 4);
    return value;
  }
  float note(int64_t i) const {
    float value = 0;
    std::memcpy(&value, notes.data() + i * 4, 4);
    return value;
  }
};

Error bad(const std::string& what) { return {ErrorCode::failed, what}; }

std::string type_name(uint32_t type) {
  return type == static_cast<uint32_t>(RowType::f16)    ? "f16"
         : type == static_cast<uint32_t>(RowType::bf16) ? "bf16"
                                                        : "type " + std::to_string(type);
}

Result<Parts> split(std::span<const std::byte> bytes, const StoreShape& shape) {
  uint32_t start[3] = {};
  if (bytes.size() < sizeof start)
    return bad("found " + std::to_string(bytes.size()) + " bytes, at least " + std::to_string(sizeof start) +
               " are needed");
  std::memcpy(start, bytes.data(), sizeof start);
  const auto [type, n_notes, n] = start;
  if (type != static_cast<uint32_t>(shape.type))
    return bad("row type: found " + type_name(type) + ", allowed " + type_name(static_cast<uint32_t>(shape.type)));
  if (n_notes != static_cast<uint32_t>(shape.n_notes))
    return bad("notes of a row: found " + std::to_string(n_notes) + ", allowed " + std::to_string(shape.n_notes));
  if (n > INT32_MAX)
    return bad("n_rows: found " + std::to_string(n) + ", allowed 0.." + std::to_string(INT32_MAX));
  Parts parts{.n_rows = n};
  const int64_t wanted = static_cast<int64_t>(kStartBytes) + parts.n_rows * static_cast<int64_t>(note_bytes(shape)) +
                         blocks_of(parts.n_rows) * payload_bytes(shape);
  if (static_cast<int64_t>(bytes.size()) != wanted) {
    return bad("n_rows: found " + std::to_string(n) + ", which takes " + std::to_string(wanted) +
               " bytes, and there are " + std::to_string(bytes.size()));
  }
  const auto rows = static_cast<size_t>(n);
  const size_t flags = kStartBytes + rows * 4 * (1 + n_notes);
  parts.positions = bytes.subspan(kStartBytes, rows * 4);
  parts.notes = bytes.subspan(kStartBytes + rows * 4, rows * 4 * n_notes);
  parts.flags = bytes.subspan(flags, rows);
  parts.payload = bytes.subspan(flags + rows);
  return parts;
}

// Whether a 16-bit value is infinite or not a number: all bits of the exponent are set.
bool all_finite(std::span<const std::byte> payload, RowType type) {
  const uint16_t exponent = type == RowType::f16 ? 0x7C00 : 0x7F80;
  bool finite = true;
  for (size_t i = 0; i + 1 < payload.size(); i += 2) {
    uint16_t value = 0;
    std::memcpy(&value, payload.data() + i, 2);
    finite = finite && (value & exponent) != exponent;
  }
  return finite;
}

Status check_parts(const Parts& parts, const StoreShape& shape, int64_t n_tokens) {
  int64_t last = -1;
  for (int64_t row = 0; row < parts.n_rows; ++row) {
    const int64_t position = parts.position(row);
    if (position <= last || position >= n_tokens) {
      return bad("position of row " + std::to_string(row) + ": found " + std::to_string(position) + ", allowed " +
                 std::to_string(last + 1) + ".." + std::to_string(n_tokens - 1));
    }
    last = position;
  }
  for (int64_t i = 0; i < parts.n_rows * shape.n_notes; ++i) {
    if (!std::isfinite(parts.note(i)))
      return bad("note " + std::to_string(i / parts.n_rows) + " of row " + std::to_string(i % parts.n_rows) +
                 ": found a value that is not finite");
  }
  if (!all_finite(parts.payload, shape.type))
    return bad("payload: found a value that is not finite");
  return {};
}

}  // namespace

void Store::export_rows(SequenceId seq, int layer, int head, std::vector<std::byte>& out) const {
  const HeadTable& table = impl_->table(seq, layer, head);
  const BlockPool& pool = impl_->pool;
  const auto n_rows = static_cast<uint32_t>(table.n_rows);
  const int64_t n_blocks = blocks_of(table.n_rows);
  const auto block_size = static_cast<size_t>(payload_bytes(impl_->shape));
  put(out, static_cast<uint32_t>(impl_->shape.type));
  put(out, static_cast<uint32_t>(impl_->shape.n_notes));
  put(out, n_rows);
  const auto each_block = [&](auto&& emit) {
    for (int64_t i = 0; i < n_blocks; ++i) {
      const int64_t n = std::min<int64_t>(kBlockRows, table.n_rows - i * kBlockRows);
      emit(table.blocks[static_cast<size_t>(i)], static_cast<size_t>(n));
    }
  };
  each_block([&](uint32_t block, size_t n) { put(out, impl_->pool.positions(block), n * sizeof(int32_t)); });
  for (int note = 0; note < pool.n_notes(); ++note)
    each_block([&](uint32_t block, size_t n) { put(out, pool.notes(block, note), n * sizeof(float)); });
  each_block([&](uint32_t block, size_t n) { put(out, pool.flags(block), n); });
  each_block([&](uint32_t block, size_t n) {
    if (n == kBlockRows) {
      put(out, pool.payload(block), block_size);
      return;
    }
    std::vector<std::byte> tail(block_size);
    for (size_t slot = 0; slot < n; ++slot) {
      copy_row(tail.data(), static_cast<int>(slot), pool.payload(block), static_cast<int>(slot), impl_->shape.head_dim,
               impl_->shape.type);
    }
    put(out, tail.data(), block_size);
  });
}

Status Store::import_rows(SequenceId seq, int layer, int head, std::span<const std::byte> bytes, int64_t n_tokens) {
  HeadTable& table = impl_->table(seq, layer, head);
  check(table.n_rows == 0 && table.blocks.empty(), "rows are imported into a head that has none");
  const Result<Parts> parts = split(bytes, impl_->shape);
  if (!parts)
    return parts.error();
  if (Status status = check_parts(*parts, impl_->shape, n_tokens); !status)
    return status;
  BlockPool& pool = impl_->pool;
  const int64_t n_blocks = blocks_of(parts->n_rows);
  if (n_blocks > pool.n_free()) {
    return Error{ErrorCode::budget_impossible,
                 "room for " + std::to_string(parts->n_rows) + " rows: " + impl_->arithmetic(n_blocks)};
  }
  const auto block_size = static_cast<size_t>(payload_bytes(impl_->shape));
  for (int64_t i = 0; i < n_blocks; ++i) {
    const uint32_t block = impl_->take_block(i > 0 ? table.blocks.back() : kNoBlock, n_blocks, false);
    table.blocks.push_back(block);
    const auto first = static_cast<size_t>(i) * kBlockRows;
    const size_t n = std::min<size_t>(kBlockRows, static_cast<size_t>(parts->n_rows) - first);
    std::memcpy(pool.payload(block), parts->payload.data() + static_cast<size_t>(i) * block_size, block_size);
    std::memcpy(pool.positions(block), parts->positions.data() + first * 4, n * 4);
    for (int note = 0; note < pool.n_notes(); ++note) {
      const size_t column = static_cast<size_t>(note) * static_cast<size_t>(parts->n_rows);
      std::memcpy(pool.notes(block, note), parts->notes.data() + (column + first) * 4, n * 4);
    }
    std::memcpy(pool.flags(block), parts->flags.data() + first, n);
  }
  table.n_rows = static_cast<int32_t>(parts->n_rows);
  return {};
}

}  // namespace kedge::kv
