#include "tensor/gguf_file.h"

#include <fcntl.h>
#include <ggml.h>
#include <gguf.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <unordered_map>

#include "base/huge_pages.h"
#include "tensor/gguf_check.h"
#include "tensor/log.h"

namespace kedge::tensor {

struct GgufFile::Impl {
  std::string path;
  std::span<const std::byte> bytes;
  bool mapped = false;
  gguf_context* gguf = nullptr;
  std::vector<TensorInfo> tensors;
  std::unordered_map<std::string_view, size_t> index;  // keys point into tensors[i].name

  ~Impl() {
    if (gguf != nullptr)
      gguf_free(gguf);
    if (mapped)
      munmap(const_cast<std::byte*>(bytes.data()), bytes.size());
  }
  Error bad(const std::string& what) const { return {ErrorCode::model_unreadable, path + ": " + what}; }
  int64_t key_id(std::string_view key) const { return gguf_find_key(gguf, std::string(key).c_str()); }
};

namespace {

std::string type_name(const gguf_context* gguf, int64_t id) {
  const gguf_type type = gguf_get_kv_type(gguf, id);
  if (type != GGUF_TYPE_ARRAY)
    return gguf_type_name(type);
  return std::string("array of ") + gguf_type_name(gguf_get_arr_type(gguf, id));
}

// The value of any integer type; nullopt for other types.
std::optional<__int128> integer(const gguf_context* gguf, int64_t id) {
  switch (gguf_get_kv_type(gguf, id)) {
    case GGUF_TYPE_UINT8:
      return gguf_get_val_u8(gguf, id);
    case GGUF_TYPE_INT8:
      return gguf_get_val_i8(gguf, id);
    case GGUF_TYPE_UINT16:
      return gguf_get_val_u16(gguf, id);
    case GGUF_TYPE_INT16:
      return gguf_get_val_i16(gguf, id);
    case GGUF_TYPE_UINT32:
      return gguf_get_val_u32(gguf, id);
    case GGUF_TYPE_INT32:
      return gguf_get_val_i32(gguf, id);
    case GGUF_TYPE_UINT64:
      return gguf_get_val_u64(gguf, id);
    case GGUF_TYPE_INT64:
      return gguf_get_val_i64(gguf, id);
    default:
      return std::nullopt;
  }
}

std::string shape_text(const int64_t* ne, int n_dims) {
  std::string text = "[";
  for (int d = 0; d < n_dims; ++d)
    text += (d > 0 ? ", " : "") + (ne[d] == 0 ? std::string("any") : std::to_string(ne[d]));
  return text + "]";
}

}  // namespace

GgufFile::GgufFile() : impl_(std::make_unique<Impl>()) {}
GgufFile::~GgufFile() = default;

Result<std::unique_ptr<GgufFile>> GgufFile::open(const std::string& path) {
  const auto failed = [&path](const std::string& what) {
    return Error{ErrorCode::model_unreadable, path + ": " + what + ": " + std::strerror(errno)};
  };
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return failed("cannot be opened");
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size == 0) {
    const bool regular = S_ISREG(info.st_mode);
    ::close(fd);
    return Error{
        ErrorCode::model_unreadable,
        path + ": found " + (regular ? "an empty file" : "something that is not a file") + ", a GGUF file is needed"};
  }
  const auto size = static_cast<size_t>(info.st_size);
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  ::close(fd);
  if (data == MAP_FAILED)
    return failed("cannot be mapped");
  return from_bytes({static_cast<const std::byte*>(data), size}, path, true);
}

Result<std::unique_ptr<GgufFile>> GgufFile::open_bytes(std::span<const std::byte> bytes, const std::string& name) {
  return from_bytes(bytes, name, false);
}

Result<std::unique_ptr<GgufFile>> GgufFile::from_bytes(std::span<const std::byte> bytes, const std::string& name,
                                                       bool mapped) {
  silence_ggml();
  std::unique_ptr<GgufFile> file(new GgufFile());
  Impl& impl = *file->impl_;
  impl.path = name;
  impl.bytes = bytes;
  impl.mapped = mapped;
  Result<GgufLayout> layout = check_gguf(bytes, name);
  if (!layout)
    return layout.error();
  (void)take_last_log_error();
  impl.gguf = gguf_init_from_buffer(bytes.data(), bytes.size(), {.no_alloc = true, .ctx = nullptr});
  if (impl.gguf == nullptr)
    return impl.bad("refused by ggml: " + take_last_log_error());
  // Two readers of one format must agree, or one of them is wrong about where the data is.
  const bool agree =
      gguf_get_n_tensors(impl.gguf) == static_cast<int64_t>(layout->tensors.size()) &&
      (layout->tensors.empty() || gguf_get_data_offset(impl.gguf) == static_cast<size_t>(layout->data_offset));
  if (!agree)
    return impl.bad("refused: ggml finds the tensor data elsewhere than this program");
  const Result<uint32_t> n_files = file->get_u32_or("split.count", 1);
  if (!n_files)
    return n_files.error();
  if (*n_files > 1)
    return impl.bad("key 'split.count': found " + std::to_string(*n_files) +
                    ", allowed 1 (merge the parts first: llama-gguf-split --merge)");
  for (GgufLayout::TensorEntry& entry : layout->tensors) {
    TensorInfo tensor{.name = std::move(entry.name),
                      .type = entry.type,
                      .n_dims = entry.n_dims,
                      .data = bytes.data() + entry.offset,
                      .n_bytes = entry.n_bytes};
    std::copy(entry.ne, entry.ne + 4, tensor.ne);
    impl.tensors.push_back(std::move(tensor));
  }
  for (size_t i = 0; i < impl.tensors.size(); ++i)
    impl.index.emplace(impl.tensors[i].name, i);
  return file;
}

const std::string& GgufFile::path() const { return impl_->path; }
int64_t GgufFile::file_bytes() const { return static_cast<int64_t>(impl_->bytes.size()); }
std::span<const std::byte> GgufFile::bytes() const { return impl_->bytes; }

void GgufFile::release(const TensorInfo& tensor) const {
  if (!impl_->mapped)
    return;
  const size_t begin = (static_cast<size_t>(tensor.data - impl_->bytes.data()) + page_bytes() - 1) / page_bytes();
  const size_t end = static_cast<size_t>(tensor.data + tensor.n_bytes - impl_->bytes.data()) / page_bytes();
  if (begin < end) {
    std::byte* at = const_cast<std::byte*>(impl_->bytes.data()) + begin * page_bytes();
    (void)madvise(at, (end - begin) * page_bytes(), MADV_DONTNEED);
  }
}

bool GgufFile::has(std::string_view key) const { return impl_->key_id(key) >= 0; }

Error GgufFile::missing(std::string_view key) const {
  return impl_->bad("key '" + std::string(key) + "': not found, it is needed");
}

Error GgufFile::wrong(std::string_view key, const std::string& allowed) const {
  return impl_->bad("key '" + std::string(key) + "': found " + type_name(impl_->gguf, impl_->key_id(key)) +
                    ", allowed " + allowed);
}

Result<uint32_t> GgufFile::get_u32(std::string_view key) const {
  const int64_t id = impl_->key_id(key);
  if (id < 0)
    return missing(key);
  const std::optional<__int128> value = integer(impl_->gguf, id);
  if (!value)
    return wrong(key, "an integer");
  if (*value < 0 || *value > std::numeric_limits<uint32_t>::max()) {
    return impl_->bad("key '" + std::string(key) + "': found " +
                      (*value < 0 ? "a negative number" : "a number beyond 32 bits") + ", allowed 0..4294967295");
  }
  return static_cast<uint32_t>(*value);
}

Result<uint32_t> GgufFile::get_u32_or(std::string_view key, uint32_t fallback) const {
  if (!has(key))
    return fallback;
  return get_u32(key);
}

Result<float> GgufFile::get_f32(std::string_view key) const {
  const int64_t id = impl_->key_id(key);
  if (id < 0)
    return missing(key);
  const gguf_type type = gguf_get_kv_type(impl_->gguf, id);
  if (type != GGUF_TYPE_FLOAT32 && type != GGUF_TYPE_FLOAT64)
    return wrong(key, "f32 or f64");
  const double wide = type == GGUF_TYPE_FLOAT32 ? static_cast<double>(gguf_get_val_f32(impl_->gguf, id))
                                                : gguf_get_val_f64(impl_->gguf, id);
  if (!std::isfinite(wide) || std::abs(wide) > static_cast<double>(std::numeric_limits<float>::max())) {
    return impl_->bad("key '" + std::string(key) + "': found " + std::to_string(wide) +
                      ", allowed are finite f32 numbers");
  }
  return static_cast<float>(wide);
}

Result<float> GgufFile::get_f32_or(std::string_view key, float fallback) const {
  if (!has(key))
    return fallback;
  return get_f32(key);
}

Result<bool> GgufFile::get_bool_or(std::string_view key, bool fallback) const {
  const int64_t id = impl_->key_id(key);
  if (id < 0)
    return fallback;
  if (gguf_get_kv_type(impl_->gguf, id) != GGUF_TYPE_BOOL)
    return wrong(key, "bool");
  return gguf_get_val_bool(impl_->gguf, id);
}

Result<std::string> GgufFile::get_string(std::string_view key) const {
  const int64_t id = impl_->key_id(key);
  if (id < 0)
    return missing(key);
  if (gguf_get_kv_type(impl_->gguf, id) != GGUF_TYPE_STRING)
    return wrong(key, "a string");
  return std::string(gguf_get_val_str(impl_->gguf, id));
}

Result<std::string> GgufFile::get_string_or(std::string_view key, std::string fallback) const {
  if (!has(key))
    return fallback;
  return get_string(key);
}

Result<int64_t> GgufFile::array_length(std::string_view key) const {
  const int64_t id = impl_->key_id(key);
  if (id < 0)
    return missing(key);
  if (gguf_get_kv_type(impl_->gguf, id) != GGUF_TYPE_ARRAY)
    return wrong(key, "an array");
  return static_cast<int64_t>(gguf_get_arr_n(impl_->gguf, id));
}

const std::vector<TensorInfo>& GgufFile::tensors() const { return impl_->tensors; }

const TensorInfo* GgufFile::find(std::string_view name) const {
  const auto found = impl_->index.find(name);
  return found == impl_->index.end() ? nullptr : &impl_->tensors[found->second];
}

Result<const TensorInfo*> GgufFile::require(std::string_view name, std::vector<int64_t> ne) const {
  const TensorInfo* tensor = find(name);
  if (tensor == nullptr) {
    return impl_->bad("tensor '" + std::string(name) + "': not found, needed with shape " +
                      shape_text(ne.data(), static_cast<int>(ne.size())));
  }
  const size_t n_dims = std::min<size_t>(ne.size(), 4);
  bool same = true;
  for (size_t d = 0; d < 4; ++d) {
    const int64_t wanted = d < n_dims ? ne[d] : 1;
    same = same && (wanted == 0 || wanted == tensor->ne[d]);
  }
  if (!same) {
    return impl_->bad("tensor '" + std::string(name) + "': found shape " + shape_text(tensor->ne, tensor->n_dims) +
                      ", allowed " + shape_text(ne.data(), static_cast<int>(n_dims)));
  }
  return tensor;
}

}  // namespace kedge::tensor
