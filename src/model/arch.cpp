#include "model/arch.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/check.h"
#include "tensor/types.h"

namespace kedge::model {
namespace {

std::string number(double value) {
  std::string text = std::to_string(value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.'))
    text.pop_back();
  return text;
}

std::string file_stem(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  const std::string file = slash == std::string::npos ? path : path.substr(slash + 1);
  return file.ends_with(".gguf") ? file.substr(0, file.size() - 5) : file;
}

}  // namespace

int KeyReader::integer(std::string_view key, const Result<uint32_t>& read, int64_t min, int64_t max) {
  if (error_)
    return static_cast<int>(min);
  if (!read) {
    error_ = read.error();
    return static_cast<int>(min);
  }
  if (*read < min || *read > max) {
    refuse(key, std::to_string(*read), std::to_string(min) + ".." + std::to_string(max));
    return static_cast<int>(min);
  }
  return static_cast<int>(*read);
}

float KeyReader::real(std::string_view key, const Result<float>& read, float min, float max) {
  if (error_)
    return min;
  if (!read) {
    error_ = read.error();
    return min;
  }
  if (!(*read >= min && *read <= max)) {
    refuse(key, number(static_cast<double>(*read)),
           number(static_cast<double>(min)) + ".." + number(static_cast<double>(max)));
    return min;
  }
  return *read;
}

int KeyReader::required(std::string_view key, int64_t min, int64_t max) {
  return integer(key, file_.get_u32(prefix_ + std::string(key)), min, max);
}

int KeyReader::optional(std::string_view key, int64_t fallback, int64_t min, int64_t max) {
  if (!has(key))
    return static_cast<int>(fallback);
  return required(key, min, max);
}

float KeyReader::required_f32(std::string_view key, float min, float max) {
  return real(key, file_.get_f32(prefix_ + std::string(key)), min, max);
}

float KeyReader::optional_f32(std::string_view key, float fallback, float min, float max) {
  if (!has(key))
    return fallback;
  return required_f32(key, min, max);
}

std::string KeyReader::optional_string(std::string_view key, std::string fallback) {
  Result<std::string> read = file_.get_string_or(prefix_ + std::string(key), fallback);
  if (read)
    return *read;
  if (!error_)
    error_ = read.error();
  return fallback;
}

void KeyReader::refuse(std::string_view key, const std::string& found, const std::string& allowed) {
  if (error_)
    return;
  error_ = Error{ErrorCode::model_unreadable,
                 file_.path() + ": key '" + prefix_ + std::string(key) + "': found " + found + ", allowed " + allowed};
}

tensor::Tensor TensorReader::matrix(const std::string& name, int64_t n_in, int64_t n_out) {
  const Result<const tensor::TensorInfo*> info = file_.require(name, {n_in, n_out});
  used_.insert(name);
  if (!info) {
    if (!error_)
      error_ = info.error();
    return nullptr;
  }
  if (!tensor::can_multiply((*info)->type)) {
    if (!error_)
      error_ = Error{ErrorCode::model_unreadable, file_.path() + ": tensor '" + name + "': found type " +
                                                      tensor::type_name((*info)->type) +
                                                      ", allowed are types ggml multiplies by"};
    return nullptr;
  }
  return weights_.find(name);
}

tensor::Tensor TensorReader::vector(const std::string& name, int64_t n) {
  const Result<const tensor::TensorInfo*> info = file_.require(name, {n});
  used_.insert(name);
  if (!info) {
    if (!error_)
      error_ = info.error();
    return nullptr;
  }
  if (!tensor::is_f32((*info)->type)) {
    if (!error_)
      error_ = Error{ErrorCode::model_unreadable, file_.path() + ": tensor '" + name + "': found type " +
                                                      tensor::type_name((*info)->type) + ", allowed f32"};
    return nullptr;
  }
  return weights_.find(name);
}

Status TensorReader::finish() const {
  if (error_)
    return *error_;
  for (const tensor::TensorInfo& info : file_.tensors()) {
    if (used_.contains(info.name))
      continue;
    return Error{ErrorCode::model_unreadable,
                 file_.path() + ": tensor '" + info.name +
                     "': found, but this architecture does not use it (a variant that is not supported)"};
  }
  return {};
}

tensor::RopeParams read_rope(KeyReader& keys, int n_dims, int n_ctx_train) {
  tensor::RopeParams rope;
  rope.n_dims = n_dims;
  rope.freq_base = keys.optional_f32("rope.freq_base", 10000.0F, 1.0F, 1e12F);
  rope.n_ctx_orig = keys.optional("rope.scaling.original_context_length", n_ctx_train, 1, 1 << 30);
  const std::string type = keys.optional_string("rope.scaling.type", "linear");
  if (type != "none" && type != "linear" && type != "yarn") {
    keys.refuse("rope.scaling.type", "'" + type + "'", "none, linear, yarn");
    return rope;
  }
  // "scale_linear" is the older name of the same number; 0 means not scaled.
  const char* factor_key = keys.has("rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear";
  const float factor = keys.optional_f32(factor_key, 0.0F, 0.0F, 1e6F);
  rope.freq_scale = factor == 0.0F || type == "none" ? 1.0F : 1.0F / factor;
  rope.attn_factor = keys.optional_f32("rope.scaling.attn_factor", 1.0F, 0.0F, 1e3F);
  if (type == "yarn") {
    // YaRN (arXiv 2309.00071) scales attention by 0.1 ln(s) + 1. ggml's RoPE applies that factor by itself whenever
    // ext_factor is set; libllama therefore divides it out again, which for s > 1 leaves one and for s < 1 does not.
    rope.ext_factor = 1.0F;
    const float s = 1.0F / rope.freq_scale;
    const float mscale = s <= 1.0F ? 1.0F : 0.1F * std::log(s) + 1.0F;
    rope.attn_factor *= mscale * (1.0F / (1.0F + 0.1F * std::log(s)));
  }
  return rope;
}

std::vector<float> transposed_f32(const tensor::GgufFile& file, const std::string& name) {
  constexpr int64_t kTile = 16;  // rows turned together: writes of a whole cache line
  const tensor::TensorInfo* info = file.find(name);
  check(info != nullptr && info->n_dims == 2, "the matrix is in the file");
  const int64_t n_in = info->ne[0];
  const int64_t n_out = info->ne[1];
  const size_t bytes = tensor::row_bytes(info->type, n_in);
  std::vector<float> rows(static_cast<size_t>(kTile * n_in));
  std::vector<float> out(static_cast<size_t>(n_in * n_out));
  for (int64_t begin = 0; begin < n_out; begin += kTile) {
    const int64_t n = std::min(kTile, n_out - begin);
    tensor::rows_to_f32(info->type, n_in, info->data + static_cast<size_t>(begin) * bytes,
                        std::span(rows).first(static_cast<size_t>(n * n_in)));
    for (int64_t i = 0; i < n_in; ++i) {
      for (int64_t r = 0; r < n; ++r)
        out[static_cast<size_t>(i * n_out + begin + r)] = rows[static_cast<size_t>(r * n_in + i)];
    }
  }
  return out;
}

void describe(const tensor::GgufFile& file, HyperParams& hyper) {
  const Result<std::string> name = file.get_string_or("general.name", "");
  hyper.name = name && !name->empty() ? *name : file_stem(file.path());
  std::map<std::string, int64_t> bytes_of_type;
  for (const tensor::TensorInfo& info : file.tensors()) {
    hyper.n_params += info.ne[0] * info.ne[1] * info.ne[2] * info.ne[3];
    hyper.weight_bytes += info.n_bytes;
    if (info.n_dims == 2)
      bytes_of_type[tensor::type_name(info.type)] += info.n_bytes;
  }
  const auto most = std::max_element(bytes_of_type.begin(), bytes_of_type.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  hyper.weight_type = most == bytes_of_type.end() ? "f32" : most->first;
}

}  // namespace kedge::model
