#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/available_memory.h"
#include "base/check.h"
#include "base/huge_pages.h"
#include "tensor/compute.h"
#include "tensor/compute_impl.h"
#include "tensor/log.h"

namespace kedge::tensor {
namespace {

// f32 everywhere: with the activations rounded as ggml would (round_rows.h) it is what llama.cpp computes, at several
// times the speed. bf16 is faster still where vdpbf16ps is, but rounds both sides: twice as far from llama.cpp's
// logits.
PromptWeights resolve(PromptWeights wanted) { return wanted == PromptWeights::automatic ? PromptWeights::f32 : wanted; }

// Rows of weights begin on a cache line.
size_t aligned_bytes(Tensor tensor) { return (ggml_nbytes(tensor) + 63) / 64 * 64; }

size_t stored_bytes(std::span<const Tensor> tensors) {
  size_t sum = 0;
  for (Tensor tensor : tensors)
    sum += aligned_bytes(tensor);
  return sum;
}

bool is_copied(WeightMemory wanted, size_t n_bytes) {
  if (wanted != WeightMemory::automatic)
    return wanted == WeightMemory::copied;
  return grants_huge_pages() && static_cast<int64_t>(n_bytes) <= available_memory_bytes().value_or(0) / 2;
}

// GGUF's naming: matrices that multiply end in ".weight" and have two dimensions. The embedding table is read by row
// and stays as mapped, unless the head is tied to it: then the head's product uses the repacked copy and get_rows the
// mapping.
bool is_matmul_weight(const TensorInfo& info, bool tied) {
  const std::string_view name = info.name;
  if (info.n_dims != 2 || !name.ends_with(".weight"))
    return false;
  if (name == "token_embd.weight")
    return tied;
  return info.type != GGML_TYPE_F32;
}

std::vector<ggml_backend_buffer_type_t> extra_buffer_types(ggml_backend_dev_t device) {
  std::vector<ggml_backend_buffer_type_t> types;
  ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(device);
  auto* get = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(
      ggml_backend_reg_get_proc_address(reg, "ggml_backend_dev_get_extra_bufts"));
  if (get == nullptr)
    return types;
  for (ggml_backend_buffer_type_t* type = get(device); type != nullptr && *type != nullptr; ++type) {
    // Not AMX: GCC 12 builds a ggml whose tile configuration is half uninitialised (its _tile_loadconfig declares 8 of
    // the 64 bytes as read), and the first product dies of SIGILL. Nothing tells such a build from a sound one.
    if (std::string_view(ggml_backend_buft_name(*type)) != "AMX")
      types.push_back(*type);
  }
  return types;
}

// Whether the device multiplies by `weight` when it lives in a buffer of this type.
bool supported(ggml_backend_dev_t device, ggml_backend_buffer_type_t type, Tensor weight) {
  const ContextPtr context(
      ggml_init({.mem_size = 8 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
  ggml_tensor* copy = ggml_dup_tensor(context.get(), weight);
  ggml_tensor* x = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, weight->ne[0], 512);
  ggml_tensor* product = ggml_mul_mat(context.get(), copy, x);
  const BufferPtr empty(ggml_backend_buft_alloc_buffer(type, 0));
  copy->buffer = empty.get();
  const bool yes = ggml_backend_dev_supports_op(device, product);
  copy->buffer = nullptr;
  return yes;
}

}  // namespace

struct Weights::Impl {
  PromptWeights prompt_weights = PromptWeights::native;
  ContextPtr mapped_context;
  BufferPtr mapped_buffer;
  std::unordered_map<std::string_view, Tensor> by_name;  // keys are the file's
  std::vector<ContextPtr> repacked_contexts;             // one a buffer type
  std::vector<BufferPtr> repacked_buffers;
  std::unordered_map<const ggml_tensor*, Tensor> repacked;
  int64_t repacked_bytes = 0;
  HugePages copied;
  BufferPtr copied_buffer;

  Status map(const GgufFile& file);
  Status repack(ggml_backend_dev_t device, ggml_backend_buffer_type_t type, std::vector<Tensor>& candidates);
  Status copy(const GgufFile& file, std::span<const Tensor> chosen);
};

Status Weights::Impl::map(const GgufFile& file) {
  const size_t n = file.tensors().size();
  mapped_context.reset(
      ggml_init({.mem_size = (n + 1) * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
  const std::span<const std::byte> bytes = file.bytes();
  // Read-only pages behind a mutable pointer: nothing writes to a weight.
  mapped_buffer.reset(ggml_backend_cpu_buffer_from_ptr(const_cast<std::byte*>(bytes.data()), bytes.size()));
  ggml_backend_buffer_set_usage(mapped_buffer.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
  for (const TensorInfo& info : file.tensors()) {
    ggml_tensor* tensor =
        ggml_new_tensor(mapped_context.get(), static_cast<ggml_type>(info.type), info.n_dims, info.ne);
    ggml_set_name(tensor, info.name.c_str());
    if (static_cast<int64_t>(ggml_nbytes(tensor)) != info.n_bytes) {
      return Error{ErrorCode::model_unreadable, file.path() + ": tensor '" + info.name + "': found " +
                                                    std::to_string(info.n_bytes) + " bytes, ggml counts " +
                                                    std::to_string(ggml_nbytes(tensor))};
    }
    tensor->data = const_cast<std::byte*>(info.data);
    tensor->buffer = mapped_buffer.get();
    by_name.emplace(info.name, tensor);
  }
  return {};
}

// Moves the candidates that this buffer type can hold into it; the others stay in the list.
Status Weights::Impl::repack(ggml_backend_dev_t device, ggml_backend_buffer_type_t type,
                             std::vector<Tensor>& candidates) {
  const auto end = std::stable_partition(candidates.begin(), candidates.end(),
                                         [&](Tensor t) { return !supported(device, type, t); });
  const std::vector<Tensor> chosen(end, candidates.end());
  candidates.erase(end, candidates.end());
  if (chosen.empty())
    return {};
  ContextPtr context(
      ggml_init({.mem_size = (chosen.size() + 1) * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
  std::vector<Tensor> copies;
  for (Tensor mapped : chosen) {
    copies.push_back(ggml_dup_tensor(context.get(), mapped));
    ggml_set_name(copies.back(), mapped->name);
  }
  BufferPtr buffer(ggml_backend_alloc_ctx_tensors_from_buft(context.get(), type));
  if (buffer == nullptr)
    return Error{ErrorCode::failed,
                 std::string("weights: no memory for their repacked form (") + ggml_backend_buft_name(type) + ")"};
  ggml_backend_buffer_set_usage(buffer.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
  advise_huge_pages(memory_of(buffer.get()));
  for (size_t i = 0; i < chosen.size(); ++i) {
    ggml_backend_tensor_set(copies[i], chosen[i]->data, 0, ggml_nbytes(chosen[i]));
    repacked.emplace(chosen[i], copies[i]);
  }
  repacked_bytes += static_cast<int64_t>(ggml_backend_buffer_get_size(buffer.get()));
  repacked_contexts.push_back(std::move(context));
  repacked_buffers.push_back(std::move(buffer));
  return {};
}

// Moves data out of the file's pages.
Status Weights::Impl::copy(const GgufFile& file, std::span<const Tensor> chosen) {
  copied = HugePages(stored_bytes(chosen));
  if (copied.bytes().empty()) {
    return Error{ErrorCode::failed, "weights: no memory for a copy of " + std::to_string(stored_bytes(chosen)) +
                                        " bytes; --mmap on reads them from the file's pages"};
  }
  copied_buffer.reset(ggml_backend_cpu_buffer_from_ptr(copied.bytes().data(), copied.bytes().size()));
  ggml_backend_buffer_set_usage(copied_buffer.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
  std::byte* at = copied.bytes().data();
  for (Tensor tensor : chosen) {
    std::memcpy(at, tensor->data, ggml_nbytes(tensor));
    tensor->data = at;
    tensor->buffer = copied_buffer.get();
    at += aligned_bytes(tensor);
    file.release(*file.find(tensor->name));
  }
  return {};
}

Weights::Weights() : impl_(std::make_unique<Impl>()) {}
Weights::~Weights() = default;

Result<std::unique_ptr<Weights>> Weights::create(Compute& compute, const GgufFile& file, const WeightOptions& options) {
  std::unique_ptr<Weights> weights(new Weights());
  Impl& impl = *weights->impl_;
  impl.prompt_weights = resolve(options.prompt_weights);
  check(reinterpret_cast<uintptr_t>(file.bytes().data()) % 64 == 0,
        "weights need a file whose first byte is aligned to 64");
  if (Status s = impl.map(file); !s)
    return s.error();
  std::vector<Tensor> matrices;
  std::vector<Tensor> others;  // norms, biases: small, but read by every token too
  const bool tied = file.find("output.weight") == nullptr;
  for (const TensorInfo& info : file.tensors()) {
    if (is_matmul_weight(info, tied))
      matrices.push_back(impl.by_name.at(info.name));
    else if (info.name != "token_embd.weight")
      others.push_back(impl.by_name.at(info.name));
  }
  if (options.repack) {
    ggml_backend_dev_t device = ggml_backend_get_device(compute.impl().backend);
    for (ggml_backend_buffer_type_t type : extra_buffer_types(device)) {
      if (Status s = impl.repack(device, type, matrices); !s)
        return s.error();
    }
  }
  matrices.insert(matrices.end(), others.begin(), others.end());
  if (!matrices.empty() && is_copied(options.memory, stored_bytes(matrices))) {
    if (Status s = impl.copy(file, matrices); !s)
      return s.error();
  }
  return weights;
}

Tensor Weights::find(std::string_view name) const {
  const auto found = impl_->by_name.find(name);
  return found == impl_->by_name.end() ? nullptr : found->second;
}

Tensor Weights::repacked(Tensor stored) const {
  const auto found = impl_->repacked.find(stored);
  return found == impl_->repacked.end() ? stored : found->second;
}

PromptWeights Weights::prompt_weights() const { return impl_->prompt_weights; }
int64_t Weights::n_tensors() const { return static_cast<int64_t>(impl_->by_name.size()); }
int64_t Weights::repacked_bytes() const { return impl_->repacked_bytes; }
int64_t Weights::copied_bytes() const { return static_cast<int64_t>(impl_->copied.bytes().size()); }

}  // namespace kedge::tensor
