// A head's rows as bytes, for files and for copies between stores.
//
//   types u32 | n_notes u32 | n_body u32 | n_tail u32 | positions i32 [n_rows] | notes f32 [n_notes][n_rows]
//   | flags u8 [n_rows] | payload of the body's blocks | payload of the tail's
//
// Payload is whole blocks as they lie in memory (kernels/kv_view.h); slots without a row are zero, so that equal rows
// are equal bytes. What a row type means is known here and in the kernels only.
#include <array>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kv/store_impl.h"

namespace kedge::kv {
namespace {

constexpr size_t kStartBytes = 16;
constexpr std::array<const char*, 4> kTypeNames = {"f16", "bf16", "q8_0", "q4_0"};

size_t note_bytes(const StoreShape& shape) { return 5 + static_cast<size_t>(shape.n_notes) * 4; }  // of one row

uint32_t type_code(RowTypes type) { return static_cast<uint32_t>(type.k) | static_cast<uint32_t>(type.v) << 8U; }

std::string type_name(uint32_t code) {
  const uint32_t k = code & 0xFFU;
  const uint32_t v = code >> 8U;
  if (k >= kTypeNames.size() || v >= kTypeNames.size())
    return "type " + std::to_string(code);
  return k == v ? std::string(kTypeNames[k]) : std::string(kTypeNames[k]) + " K with " + kTypeNames[v] + " V";
}

void put(std::vector<std::byte>& out, const void* from, size_t n) {
  const auto* bytes = static_cast<const std::byte*>(from);
  out.insert(out.end(), bytes, bytes + n);
}

template <typename T>
T take(std::span<const std::byte> bytes, size_t index) {
  T value{};
  std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
  return value;
}

// Where the parts of a head lie in its bytes.
struct Parts {
  int64_t n_body = 0;
  int64_t n_tail = 0;
  std::span<const std::byte> positions;
  std::span<const std::byte> notes;
  std::span<const std::byte> flags;
  std::span<const std::byte> body;
  std::span<const std::byte> tail;
  int64_t n_rows() const { return n_body + n_tail; }
};

Error bad(const std::string& what) { return {ErrorCode::failed, what}; }

Result<Parts> split(std::span<const std::byte> bytes, const StoreShape& shape) {
  if (bytes.size() < kStartBytes)
    return bad("found " + std::to_string(bytes.size()) + " bytes, at least " + std::to_string(kStartBytes) +
               " are needed");
  const auto types = take<uint32_t>(bytes, 0);
  const auto n_notes = take<uint32_t>(bytes, 1);
  Parts parts{.n_body = take<uint32_t>(bytes, 2), .n_tail = take<uint32_t>(bytes, 3)};
  if (types != type_code(shape.type))
    return bad("row type: found " + type_name(types) + ", allowed " + type_name(type_code(shape.type)));
  if (n_notes != static_cast<uint32_t>(shape.n_notes))
    return bad("notes of a row: found " + std::to_string(n_notes) + ", allowed " + std::to_string(shape.n_notes));
  const int64_t most = shape.type.quantised() ? INT32_MAX : 0;
  if (parts.n_tail > most)
    return bad("f16 rows of a tail: found " + std::to_string(parts.n_tail) + ", allowed 0.." + std::to_string(most));
  if (parts.n_rows() > INT32_MAX)
    return bad("n_rows: found " + std::to_string(parts.n_rows()) + ", allowed 0.." + std::to_string(INT32_MAX));
  const auto rows = static_cast<size_t>(parts.n_rows());
  const size_t body = static_cast<size_t>(blocks_of(parts.n_body)) * block_layout(shape.head_dim, shape.type).bytes;
  const size_t tail = static_cast<size_t>(blocks_of(parts.n_tail)) * block_layout(shape.head_dim, RowType::f16).bytes;
  const size_t wanted = kStartBytes + rows * note_bytes(shape) + body + tail;
  if (bytes.size() != wanted) {
    return bad("n_rows: found " + std::to_string(rows) + ", which takes " + std::to_string(wanted) +
               " bytes, and there are " + std::to_string(bytes.size()));
  }
  const size_t flags = kStartBytes + rows * 4 * (1 + size_t{n_notes});
  parts.positions = bytes.subspan(kStartBytes, rows * 4);
  parts.notes = bytes.subspan(kStartBytes + rows * 4, rows * 4 * n_notes);
  parts.flags = bytes.subspan(flags, rows);
  parts.body = bytes.subspan(flags + rows, body);
  parts.tail = bytes.subspan(flags + rows + body, tail);
  return parts;
}

// Whether a 16-bit value is infinite or not a number: all bits of the exponent are set.
bool all_finite(std::span<const std::byte> values, RowType type) {
  const uint16_t exponent = type == RowType::bf16 ? 0x7F80 : 0x7C00;
  bool finite = true;
  for (size_t i = 0; i < values.size() / 2; ++i)
    finite = finite && (take<uint16_t>(values, i) & exponent) != exponent;
  return finite;
}

// 16-bit values and scales; a code may be anything.
bool blocks_finite(std::span<const std::byte> payload, int head_dim, RowTypes type) {
  const BlockLayout layout = block_layout(head_dim, type);
  for (size_t at = 0; at < payload.size(); at += layout.bytes) {
    const auto block = payload.subspan(at, layout.bytes);
    const size_t scales = scale_bytes(head_dim, type.k) + scale_bytes(head_dim, type.v);
    if ((!is_quantised(type.k) && !all_finite(block.first(layout.v), type.k)) ||
        (!is_quantised(type.v) && !all_finite(block.subspan(layout.v, layout.k_scales - layout.v), type.v)) ||
        !all_finite(block.subspan(layout.k_scales, scales), RowType::f16))
      return false;
  }
  return true;
}

Status check_parts(const Parts& parts, const StoreShape& shape, int64_t n_tokens) {
  int64_t last = -1;
  for (int64_t row = 0; row < parts.n_rows(); ++row) {
    const int64_t position = take<int32_t>(parts.positions, static_cast<size_t>(row));
    if (position <= last || position >= n_tokens) {
      return bad("position of row " + std::to_string(row) + ": found " + std::to_string(position) + ", allowed " +
                 std::to_string(last + 1) + ".." + std::to_string(n_tokens - 1));
    }
    last = position;
  }
  for (int64_t i = 0; i < parts.n_rows() * shape.n_notes; ++i) {
    if (!std::isfinite(take<float>(parts.notes, static_cast<size_t>(i))))
      return bad("note " + std::to_string(i / parts.n_rows()) + " of row " + std::to_string(i % parts.n_rows()) +
                 ": found a value that is not finite");
  }
  if (!blocks_finite(parts.body, shape.head_dim, shape.type) ||
      !blocks_finite(parts.tail, shape.head_dim, RowType::f16))
    return bad("payload: found a value that is not finite");
  return {};
}

// The payload of a list's rows.
void put_payload(const RowPool& from, const RowList& list, int head_dim, std::vector<std::byte>& out) {
  const size_t block_bytes = block_layout(head_dim, from.type).bytes;
  for (int64_t i = 0; i < blocks_of(list.n_rows); ++i) {
    const uint32_t block = list.blocks[static_cast<size_t>(i)];
    const int64_t n = std::min<int64_t>(kBlockRows, list.n_rows - i * kBlockRows);
    std::vector<std::byte> rows(block_bytes);
    for (int slot = 0; slot < n; ++slot)
      copy_row(rows.data(), slot, from.pool.payload(block), slot, head_dim, from.type);
    put(out, rows.data(), block_bytes);
  }
}

}  // namespace

void Store::export_rows(SequenceId seq, int layer, int head, std::vector<std::byte>& out) const {
  const HeadTable& table = impl_->table(seq, layer, head);
  const std::array<uint32_t, 4> start = {type_code(impl_->shape.type), static_cast<uint32_t>(impl_->shape.n_notes),
                                         static_cast<uint32_t>(table.body.n_rows),
                                         static_cast<uint32_t>(table.tail.n_rows)};
  put(out, start.data(), sizeof start);
  const KvHeadView rows = view(seq, layer, head);
  for (int32_t row = 0; row < rows.n_rows; ++row) {
    const int32_t position = rows.position(row);
    put(out, &position, sizeof position);
  }
  for (int note = 0; note < impl_->shape.n_notes; ++note) {
    const std::vector<float> column = notes(seq, layer, head, note);
    put(out, column.data(), column.size() * sizeof(float));
  }
  for (int32_t row = 0; row < rows.n_rows; ++row) {
    const RowAt at = row_at(table, row);
    put(out, impl_->pool_of(at).pool.flags(at.block) + at.slot, 1);
  }
  put_payload(impl_->body, table.body, impl_->shape.head_dim, out);
  put_payload(impl_->tail, table.tail, impl_->shape.head_dim, out);
}

Status Store::import_rows(SequenceId seq, int layer, int head, std::span<const std::byte> bytes, int64_t n_tokens) {
  HeadTable& table = impl_->table(seq, layer, head);
  check(table.n_rows() == 0 && table.body.blocks.empty(), "rows are imported into a head that has none");
  const Result<Parts> parts = split(bytes, impl_->shape);
  if (!parts)
    return parts.error();
  if (Status status = check_parts(*parts, impl_->shape, n_tokens); !status)
    return status;
  if (!impl_->fits(blocks_of(parts->n_body), blocks_of(parts->n_tail))) {
    return Error{ErrorCode::budget_impossible,
                 "room for " + std::to_string(parts->n_rows()) +
                     " rows: " + impl_->arithmetic(blocks_of(parts->n_body) + blocks_of(parts->n_tail))};
  }
  const auto fill = [&](RowPool& in, RowList& list, int64_t n_rows, std::span<const std::byte> payload, int64_t first) {
    impl_->extend(in, list, n_rows);
    const size_t block_bytes = block_layout(impl_->shape.head_dim, in.type).bytes;
    for (size_t i = 0; i < list.blocks.size(); ++i)
      std::memcpy(in.pool.payload(list.blocks[i]), payload.data() + i * block_bytes, block_bytes);
    for (int64_t row = 0; row < n_rows; ++row) {
      const uint32_t block = list.block_of(static_cast<int32_t>(row));
      const auto slot = static_cast<size_t>(row % kBlockRows);
      const auto index = static_cast<size_t>(first + row);
      in.pool.positions(block)[slot] = take<int32_t>(parts->positions, index);
      for (int note = 0; note < in.pool.n_notes(); ++note) {
        const size_t column = static_cast<size_t>(note) * static_cast<size_t>(parts->n_rows());
        in.pool.notes(block, note)[slot] = take<float>(parts->notes, column + index);
      }
      in.pool.flags(block)[slot] = take<uint8_t>(parts->flags, index);
    }
    list.n_rows = static_cast<int32_t>(n_rows);
  };
  fill(impl_->body, table.body, parts->n_body, parts->body, 0);
  fill(impl_->tail, table.tail, parts->n_tail, parts->tail, parts->n_body);
  return {};
}

}  // namespace kedge::kv
