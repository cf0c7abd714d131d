#include "tensor/gguf_check.h"

#include <ggml.h>
#include <gguf.h>

#include <bit>
#include <cctype>
#include <cstring>
#include <string_view>
#include <unordered_set>

namespace kedge::tensor {
namespace {

// Reads little-endian values from a span and never past its end.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
  bool read(T& value) {
    if (left() < sizeof(T))
      return false;
    std::memcpy(&value, bytes_.data() + pos_, sizeof(T));
    pos_ += sizeof(T);
    return true;
  }
  bool read(std::string_view& text) {
    uint64_t length = 0;
    if (!read(length) || length > left())
      return false;
    text = {reinterpret_cast<const char*>(bytes_.data() + pos_), static_cast<size_t>(length)};
    pos_ += static_cast<size_t>(length);
    return true;
  }
  bool skip(uint64_t n) {
    if (n > left())
      return false;
    pos_ += static_cast<size_t>(n);
    return true;
  }
  size_t left() const { return bytes_.size() - pos_; }
  size_t pos() const { return pos_; }

 private:
  std::span<const std::byte> bytes_;
  size_t pos_ = 0;
};

// Text from a file, fit for one line of an error message.
std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 80))
    out += std::isprint(static_cast<unsigned char>(c)) != 0 ? c : '?';
  return text.size() > 80 ? out + "..." : out;
}

// Bytes of one element of a fixed-size type, 0 for strings, arrays and unknown types.
size_t scalar_bytes(uint32_t type) {
  switch (type) {
    case GGUF_TYPE_UINT8:
    case GGUF_TYPE_INT8:
    case GGUF_TYPE_BOOL:
      return 1;
    case GGUF_TYPE_UINT16:
    case GGUF_TYPE_INT16:
      return 2;
    case GGUF_TYPE_UINT32:
    case GGUF_TYPE_INT32:
    case GGUF_TYPE_FLOAT32:
      return 4;
    case GGUF_TYPE_UINT64:
    case GGUF_TYPE_INT64:
    case GGUF_TYPE_FLOAT64:
      return 8;
    default:
      return 0;
  }
}

class Checker {
 public:
  Checker(std::span<const std::byte> bytes, const std::string& name) : in_(bytes), bytes_(bytes), name_(name) {}

  Result<GgufLayout> run() {
    if (Status s = header(); !s)
      return s.error();
    for (int64_t i = 0; i < n_kv_; ++i) {
      if (Status s = key_value(i); !s)
        return s.error();
    }
    for (int64_t i = 0; i < n_tensors_; ++i) {
      if (Status s = tensor(i); !s)
        return s.error();
    }
    if (Status s = data(); !s)
      return s.error();
    return std::move(layout_);
  }

 private:
  Error bad(const std::string& what) const { return {ErrorCode::model_unreadable, name_ + ": " + what}; }
  Error truncated(const std::string& where) const {
    return bad(where + ": the file ends at byte " + std::to_string(bytes_.size()) +
               ", inside it (truncated or a lying length)");
  }

  Status header() {
    char magic[4] = {};
    uint32_t version = 0;
    if (!in_.read(magic))
      return truncated("magic");
    if (std::memcmp(magic, GGUF_MAGIC, 4) != 0) {
      return bad("magic: found '" + printable({magic, 4}) + "', a GGUF file begins with 'GGUF'");
    }
    if (!in_.read(version))
      return truncated("version");
    if (version != 2 && version != 3) {
      const bool swapped = (version & 0xFFFFU) == 0 && version != 0;
      return bad("version: found " + std::to_string(version) + (swapped ? " (big-endian file)" : "") +
                 ", allowed 2 and 3");
    }
    if (!in_.read(n_tensors_))
      return truncated("tensor count");
    if (n_tensors_ < 0 || n_tensors_ > kMaxTensors) {
      return bad("tensor count: found " + std::to_string(n_tensors_) + ", allowed 0.." + std::to_string(kMaxTensors));
    }
    if (!in_.read(n_kv_))
      return truncated("key count");
    if (n_kv_ < 0 || n_kv_ > kMaxKeys) {
      return bad("key count: found " + std::to_string(n_kv_) + ", allowed 0.." + std::to_string(kMaxKeys));
    }
    return {};
  }

  Status key_value(int64_t i) {
    std::string_view key;
    if (!in_.read(key))
      return truncated("name of key " + std::to_string(i));
    // ggml asserts on an empty key; its C interface ends a key at a NUL, which would make two keys one.
    if (key.empty())
      return bad("key " + std::to_string(i) + ": found an empty name, allowed are 1..65535 bytes");
    if (key.size() > 65535)
      return bad("key " + std::to_string(i) + ": found a name of " + std::to_string(key.size()) +
                 " bytes, allowed 1..65535");
    const std::string shown = "key '" + printable(key) + "'";
    if (key.find('\0') != std::string_view::npos)
      return bad(shown + ": found a NUL in the name, allowed is none");
    if (!keys_.insert(std::string(key)).second)
      return bad(shown + ": found twice, allowed once");
    uint32_t type = 0;
    if (!in_.read(type))
      return truncated(shown);
    if (key == GGUF_KEY_GENERAL_ALIGNMENT)
      return alignment(shown, type);
    return value(shown, type);
  }

  Status alignment(const std::string& shown, uint32_t type) {
    if (type != GGUF_TYPE_UINT32)
      return bad(shown + ": found type " + std::to_string(type) + ", allowed u32");
    uint32_t found = 0;
    if (!in_.read(found))
      return truncated(shown);
    if (found < 8 || found > (1U << 20) || !std::has_single_bit(found)) {
      return bad(shown + ": found " + std::to_string(found) + ", allowed are powers of two from 8 to 1048576");
    }
    alignment_ = static_cast<int64_t>(found);
    return {};
  }

  Status value(const std::string& shown, uint32_t type) {
    uint64_t count = 1;
    if (type == GGUF_TYPE_ARRAY) {
      if (!in_.read(type) || !in_.read(count))
        return truncated(shown);
      if (type == GGUF_TYPE_ARRAY)
        return bad(shown + ": found an array of arrays, allowed are arrays of scalars and strings");
    }
    if (type == GGUF_TYPE_STRING) {
      if (count > in_.left() / sizeof(uint64_t))
        return truncated(shown + " (" + std::to_string(count) + " strings)");
      std::string_view text;
      for (uint64_t i = 0; i < count; ++i) {
        if (!in_.read(text))
          return truncated(shown);
      }
      return {};
    }
    const size_t size = scalar_bytes(type);
    if (size == 0)
      return bad(shown + ": found type " + std::to_string(type) + ", allowed 0..12");
    if (count > in_.left() / size)
      return truncated(shown + " (" + std::to_string(count) + " elements)");
    in_.skip(count * size);
    return {};
  }

  Status tensor(int64_t i) {
    std::string_view name;
    if (!in_.read(name))
      return truncated("name of tensor " + std::to_string(i));
    const std::string shown = "tensor '" + printable(name) + "'";
    if (name.empty() || name.size() >= GGML_MAX_NAME || name.find('\0') != std::string_view::npos) {
      return bad(shown + ": found a name of " + std::to_string(name.size()) + " bytes, allowed 1.." +
                 std::to_string(GGML_MAX_NAME - 1) + " without NUL");
    }
    GgufLayout::TensorEntry entry;
    entry.name = std::string(name);
    if (!names_.insert(entry.name).second)
      return bad(shown + ": found twice, allowed once");
    if (Status s = shape(shown, entry); !s)
      return s;
    uint64_t offset = 0;
    if (!in_.read(offset))
      return truncated(shown);
    // ggml lays tensors out in the order of their entries without gaps but the padding; anything else overlaps or hides
    // bytes.
    if (offset != static_cast<uint64_t>(next_offset_)) {
      return bad(shown + ": found offset " + std::to_string(offset) + ", allowed is " + std::to_string(next_offset_) +
                 " (the end of the tensor before it, padded to " + std::to_string(alignment_) + ")");
    }
    entry.offset = next_offset_;
    // n_bytes <= the file's size (shape() saw to it), so neither sum can wrap before data() compares it with the file.
    next_offset_ += (entry.n_bytes + alignment_ - 1) / alignment_ * alignment_;
    if (next_offset_ > static_cast<int64_t>(bytes_.size()) + alignment_) {
      return bad(shown + ": found an end at data byte " + std::to_string(entry.offset + entry.n_bytes) +
                 ", the file has " + std::to_string(bytes_.size()) + " bytes in all");
    }
    layout_.tensors.push_back(std::move(entry));
    return {};
  }

  // Dimensions and type; the tensor's size in bytes fits the file.
  Status shape(const std::string& shown, GgufLayout::TensorEntry& entry) {
    uint32_t n_dims = 0;
    if (!in_.read(n_dims))
      return truncated(shown);
    if (n_dims < 1 || n_dims > GGML_MAX_DIMS) {
      return bad(shown + ": found " + std::to_string(n_dims) + " dimensions, allowed 1..4");
    }
    entry.n_dims = static_cast<int>(n_dims);
    int64_t n_elements = 1;
    for (uint32_t d = 0; d < n_dims; ++d) {
      int64_t& n = entry.ne[d];
      if (!in_.read(n))
        return truncated(shown);
      if (n <= 0)
        return bad(shown + ": found size " + std::to_string(n) + " in dimension " + std::to_string(d) +
                   ", allowed are 1 and more");
      if (__builtin_mul_overflow(n_elements, n, &n_elements))
        return bad(shown + ": found a shape of more than 2^63 elements, allowed is what fits the file");
    }
    int32_t type = 0;
    if (!in_.read(type))
      return truncated(shown);
    const bool known = type >= 0 && type < GGML_TYPE_COUNT && ggml_blck_size(static_cast<ggml_type>(type)) > 0 &&
                       ggml_type_size(static_cast<ggml_type>(type)) > 0;
    if (!known)
      return bad(shown + ": found type " + std::to_string(type) + ", allowed are the types of ggml " + ggml_version());
    entry.type = type;
    const int64_t block = ggml_blck_size(static_cast<ggml_type>(type));
    if (entry.ne[0] % block != 0) {
      return bad(shown + ": found rows of " + std::to_string(entry.ne[0]) + ", allowed are multiples of " +
                 std::to_string(block) + " for type " + ggml_type_name(static_cast<ggml_type>(type)));
    }
    const auto block_bytes = static_cast<int64_t>(ggml_type_size(static_cast<ggml_type>(type)));
    if (__builtin_mul_overflow(n_elements / block, block_bytes, &entry.n_bytes) ||
        entry.n_bytes > static_cast<int64_t>(bytes_.size())) {
      return bad(shown + ": found " + std::to_string(n_elements) + " elements, which do not fit the file's " +
                 std::to_string(bytes_.size()) + " bytes");
    }
    return {};
  }

  Status data() {
    const auto size = static_cast<int64_t>(bytes_.size());
    const auto header_end = static_cast<int64_t>(in_.pos());
    layout_.data_offset = header_end;
    if (layout_.tensors.empty())
      return {};
    layout_.data_offset = (header_end + alignment_ - 1) / alignment_ * alignment_;
    if (layout_.data_offset > size)
      return truncated("tensor data");
    for (GgufLayout::TensorEntry& entry : layout_.tensors) {
      entry.offset += layout_.data_offset;
      if (entry.n_bytes > size || entry.offset > size - entry.n_bytes) {
        return bad("tensor '" + printable(entry.name) + "': found " + std::to_string(entry.n_bytes) + " bytes at " +
                   std::to_string(entry.offset) + ", the file has " + std::to_string(size) + " bytes (truncated?)");
      }
    }
    return {};
  }

  Reader in_;
  std::span<const std::byte> bytes_;
  const std::string& name_;
  GgufLayout layout_;
  std::unordered_set<std::string> keys_;
  std::unordered_set<std::string> names_;
  int64_t n_tensors_ = 0;
  int64_t n_kv_ = 0;
  int64_t alignment_ = GGUF_DEFAULT_ALIGNMENT;
  int64_t next_offset_ = 0;  // of the next tensor, within the data section
};

}  // namespace

Result<GgufLayout> check_gguf(std::span<const std::byte> bytes, const std::string& name) {
  return Checker(bytes, name).run();
}

}  // namespace kedge::tensor
