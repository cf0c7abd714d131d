#include <algorithm>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/huge_pages.h"
#include "base/thread_order.h"
#include "tensor/affine.h"
#include "tensor/compute.h"
#include "tensor/compute_impl.h"
#include "tensor/round_rows.h"

namespace kedge::tensor {
namespace {

// A dequantised weight larger than this is read as stored: the scratch would cost more memory than the speed is worth
// (the output head of a large vocabulary, met only when every row's logits are wanted).
constexpr int64_t kMaxDequantisedBytes = int64_t{256} << 20;

// dst f32 [out, in] <- src quantised [out, in]. ggml's own cast goes block by block: several times slower.
void dequantise_f32(ggml_tensor* dst, int ith, int nth, void* /*user*/) {
  const BetweenBarriers order;
  const ggml_tensor* src = dst->src[0];
  const ggml_to_float_t to_float = ggml_get_type_traits(src->type)->to_float;
  const Share rows = share_of(src->ne[1], ith, nth);
  for (long r = rows.begin; r < rows.end; ++r) {
    to_float(static_cast<const char*>(src->data) + r * src->nb[1],
             reinterpret_cast<float*>(static_cast<char*>(dst->data) + r * dst->nb[1]), src->ne[0]);
  }
}

// dst bf16 [out, in] <- src quantised [out, in]
void dequantise_bf16(ggml_tensor* dst, int ith, int nth, void* /*user*/) {
  const BetweenBarriers order;
  const ggml_tensor* src = dst->src[0];
  const ggml_to_float_t to_float = ggml_get_type_traits(src->type)->to_float;
  const Share rows = share_of(src->ne[1], ith, nth);
  thread_local std::vector<float> row;
  row.resize(static_cast<size_t>(src->ne[0]));
  for (long r = rows.begin; r < rows.end; ++r) {
    to_float(static_cast<const char*>(src->data) + r * src->nb[1], row.data(), src->ne[0]);
    ggml_cpu_fp32_to_bf16(row.data(), reinterpret_cast<ggml_bf16_t*>(static_cast<char*>(dst->data) + r * dst->nb[1]),
                          src->ne[0]);
  }
}

}  // namespace

int64_t n_rows(Tensor t) { return ggml_nrows(t); }
int64_t n_cols(Tensor t) { return t->ne[0]; }
Tensor custom_input(Tensor dst, int i) { return dst->src[i]; }

float* f32_data(Tensor t) {
  check(t->type == GGML_TYPE_F32 && ggml_is_contiguous(t), "f32_data: not a contiguous f32 tensor");
  return static_cast<float*>(t->data);
}

struct Graph::Impl {
  Compute& compute;
  const Weights& weights;
  int64_t capacity = 0;
  ContextPtr context;
  ggml_cgraph* graph = nullptr;
  GallocrPtr scratch;
  ggml_cplan plan{};
  bool finished = false;

  Impl(Compute& c, const Weights& w) : compute(c), weights(w) {}
  ~Impl() {
    if (scratch)
      compute.impl().spare_scratch.push_back(std::move(scratch));
  }

  // Nodes join the graph when they are made, so they run in the order of the calls. It also keeps dequantised weights
  // short-lived: ggml's own depth-first order would dequantise all of a layer's matrices first and hold them together.
  Tensor add(Tensor t) {
    check(!finished, "a finished graph takes no more nodes");
    ggml_build_forward_expand(graph, t);
    check(ggml_graph_n_nodes(graph) < capacity, "a graph has more nodes than it was made for");
    return t;
  }
  Tensor dequantised(Tensor weight, bool to_bf16) {
    ggml_tensor* args[] = {weight};
    return add(ggml_custom_4d(context.get(), to_bf16 ? GGML_TYPE_BF16 : GGML_TYPE_F32, weight->ne[0], weight->ne[1], 1,
                              1, args, 1, to_bf16 ? dequantise_bf16 : dequantise_f32, GGML_N_TASKS_MAX, nullptr));
  }
  Tensor weight_for(Tensor weight, int64_t n_rows);
  Tensor rounded(Tensor x, int type);

  // The last rows that were rounded: q, k and v share theirs, and so do gate and up.
  Tensor rounded_from = nullptr;
  Tensor rounded_rows = nullptr;
  int rounded_type = -1;
};

// x as ggml's dot product with a quantised weight would see it (round_rows.h).
Tensor Graph::Impl::rounded(Tensor x, int type) {
  static constexpr int kTypes[] = {GGML_TYPE_Q8_0, GGML_TYPE_Q8_1, GGML_TYPE_Q8_K};  // nodes point to their type
  if (x == rounded_from && type == rounded_type)
    return rounded_rows;
  const int* user = std::find(std::begin(kTypes), std::end(kTypes), type);
  check(user != std::end(kTypes), "an activation type that rows can be rounded to");
  ggml_tensor* args[] = {x};
  rounded_from = x;
  rounded_type = type;
  rounded_rows = add(ggml_custom_4d(context.get(), GGML_TYPE_F32, x->ne[0], x->ne[1], 1, 1, args, 1, round_rows_node,
                                    GGML_N_TASKS_MAX, const_cast<int*>(user)));
  return rounded_rows;
}

// How this product reads its weight: see PromptWeights.
Tensor Graph::Impl::weight_for(Tensor weight, int64_t n_rows) {
  const PromptWeights mode = weights.prompt_weights();
  const bool stored_is_best =
      weight->type == GGML_TYPE_F32 || (weight->type == GGML_TYPE_BF16 && mode == PromptWeights::bf16) ||
      (weight->type == GGML_TYPE_F16 && mode == PromptWeights::bf16);  // bf16 would lose three bits of f16
  const bool convertible = ggml_get_type_traits(weight->type)->to_float != nullptr;
  const int64_t bytes = ggml_nelements(weight) * (mode == PromptWeights::bf16 ? 2 : 4);
  if (n_rows < kMinPromptRows || mode == PromptWeights::native || stored_is_best || !convertible ||
      bytes > kMaxDequantisedBytes) {
    return weights.repacked(weight);
  }
  return dequantised(weight, mode == PromptWeights::bf16);
}

Graph::Graph(Compute& compute, const Weights& weights) : impl_(std::make_unique<Impl>(compute, weights)) {
  // A whole model's decode graph is some 25 nodes a layer over 9 or more weights a layer; a layer has room for taps.
  impl_->capacity = static_cast<int64_t>(weights.n_tensors()) * 8 + 1024;
  const auto n = static_cast<size_t>(impl_->capacity);
  const size_t bytes = 2 * n * ggml_tensor_overhead() + ggml_graph_overhead_custom(n, false);
  impl_->context.reset(ggml_init({.mem_size = bytes, .mem_buffer = nullptr, .no_alloc = true}));
  impl_->graph = ggml_new_graph_custom(impl_->context.get(), n, false);
}

Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;

Tensor Graph::input_f32(int64_t rows, int64_t cols) {
  ggml_tensor* t = ggml_new_tensor_2d(impl_->context.get(), GGML_TYPE_F32, cols, rows);
  ggml_set_input(t);
  ggml_set_output(t);  // inputs stay as set until they are set again: without this the allocator reuses their memory
  return impl_->add(t);
}

Tensor Graph::input_i32(int64_t n) {
  ggml_tensor* t = ggml_new_tensor_1d(impl_->context.get(), GGML_TYPE_I32, n);
  ggml_set_input(t);
  ggml_set_output(t);
  return impl_->add(t);
}

Tensor Graph::get_rows(Tensor table, Tensor ids) { return impl_->add(ggml_get_rows(impl_->context.get(), table, ids)); }

Tensor Graph::matmul(Tensor weight, Tensor x) {
  check(weight->ne[0] == x->ne[0], "matmul: the weight's columns differ from the row's length");
  Tensor form = impl_->weight_for(weight, x->ne[1]);
  const int type = activation_type(weight->type);
  if (form->type != weight->type && type >= 0)
    x = impl_->rounded(x, type);
  return impl_->add(ggml_mul_mat(impl_->context.get(), form, x));
}

Tensor Graph::add(Tensor a, Tensor b) { return impl_->add(ggml_add(impl_->context.get(), a, b)); }
Tensor Graph::mul(Tensor a, Tensor b) { return impl_->add(ggml_mul(impl_->context.get(), a, b)); }
Tensor Graph::scale(Tensor a, float s) { return impl_->add(ggml_scale(impl_->context.get(), a, s)); }

Tensor Graph::rms_norm(Tensor x, Tensor weight, float eps) {
  Tensor normed = impl_->add(ggml_rms_norm(impl_->context.get(), x, eps));
  return weight == nullptr ? normed : mul(normed, weight);
}

Tensor Graph::swiglu(Tensor gate, Tensor up) { return impl_->add(ggml_swiglu_split(impl_->context.get(), gate, up)); }

Tensor Graph::beside(Tensor a, Tensor b) { return impl_->add(ggml_concat(impl_->context.get(), a, b, 0)); }

Tensor Graph::gelu(Tensor x) { return impl_->add(ggml_gelu_erf(impl_->context.get(), x)); }

Tensor Graph::affine(Tensor weight, Tensor bias, Tensor x, Activation activation) {
  const bool is_gelu = activation == Activation::gelu;
  if (x->ne[1] >= kMinPromptRows) {
    Tensor sum = add(matmul(weight, x), bias);
    return is_gelu ? gelu(sum) : sum;
  }
  check(weight->ne[0] == x->ne[0], "affine: the weight's columns differ from the row's length");
  static const bool kGelu = true;
  const Tensor inputs[] = {x, weight, bias};
  return custom(inputs, x->ne[1], weight->ne[1], affine_node, is_gelu ? const_cast<bool*>(&kGelu) : nullptr);
}

Tensor Graph::rope(Tensor x, int n_heads, int head_dim, Tensor positions, const RopeParams& params) {
  check(x->ne[0] == int64_t{n_heads} * head_dim, "rope: a row is not n_heads * head_dim long");
  ggml_context* context = impl_->context.get();
  Tensor heads = impl_->add(ggml_reshape_3d(context, x, head_dim, n_heads, x->ne[1]));
  Tensor rotated = impl_->add(ggml_rope_ext(context, heads, positions, params.freq_factors, params.n_dims,
                                            params.neox ? GGML_ROPE_TYPE_NEOX : GGML_ROPE_TYPE_NORMAL,
                                            params.n_ctx_orig, params.freq_base, params.freq_scale, params.ext_factor,
                                            params.attn_factor, params.beta_fast, params.beta_slow));
  return impl_->add(ggml_reshape_2d(context, rotated, x->ne[0], x->ne[1]));
}

Tensor Graph::row_slice(Tensor x, int64_t first_row, int64_t n_rows) {
  check(first_row >= 0 && n_rows > 0 && first_row + n_rows <= x->ne[1], "row_slice: rows outside the tensor");
  return impl_->add(
      ggml_view_2d(impl_->context.get(), x, x->ne[0], n_rows, x->nb[1], static_cast<size_t>(first_row) * x->nb[1]));
}

Tensor Graph::custom(std::span<const Tensor> inputs, int64_t rows, int64_t cols, CustomFn fn, void* user) {
  std::vector<Tensor> args(inputs.begin(), inputs.end());
  return impl_->add(ggml_custom_4d(impl_->context.get(), GGML_TYPE_F32, cols, rows, 1, 1, args.data(),
                                   static_cast<int>(args.size()), fn, GGML_N_TASKS_MAX, user));
}

void Graph::output(Tensor t) {
  ggml_set_output(t);
  if (t->view_src != nullptr)
    ggml_set_output(t->view_src);
}

Status Graph::finish() {
  check(!impl_->finished, "finish: called twice");
  impl_->finished = true;
  impl_->scratch = impl_->compute.impl().take_scratch();
  if (!impl_->scratch || !ggml_gallocr_alloc_graph(impl_->scratch.get(), impl_->graph)) {
    return Error{ErrorCode::failed, "graph: no memory for its scratch"};
  }
  // Most graphs run in scratch that an earlier one has touched: for them this says what is so already.
  ggml_backend_buffer_t advised = nullptr;
  for (int i = 0; i < ggml_graph_n_nodes(impl_->graph); ++i) {
    ggml_backend_buffer_t buffer = ggml_graph_node(impl_->graph, i)->buffer;
    if (buffer != nullptr && buffer != advised)
      advise_huge_pages(memory_of(buffer));
    advised = buffer;
  }
  impl_->plan = impl_->compute.impl().plan(impl_->graph);
  return {};
}

void Graph::set(Tensor t, std::span<const float> values) {
  check(impl_->finished && t->type == GGML_TYPE_F32 && ggml_nelements(t) == static_cast<int64_t>(values.size()),
        "set: wrong type or size");
  std::memcpy(t->data, values.data(), values.size_bytes());
}

void Graph::set(Tensor t, std::span<const int32_t> values) {
  check(impl_->finished && t->type == GGML_TYPE_I32 && ggml_nelements(t) == static_cast<int64_t>(values.size()),
        "set: wrong type or size");
  std::memcpy(t->data, values.data(), values.size_bytes());
}

void Graph::run() {
  check(impl_->finished, "run: the graph is not finished");
  impl_->compute.impl().compute(impl_->graph, impl_->plan);
}

std::span<const float> Graph::read(Tensor t) const {
  check(impl_->finished && t->type == GGML_TYPE_F32 && ggml_is_contiguous(t),
        "read: not a contiguous f32 tensor of a finished graph");
  return {static_cast<const float*>(t->data), static_cast<size_t>(ggml_nelements(t))};
}

std::span<float> Graph::data(Tensor t) {
  const std::span<const float> values = read(t);
  return {const_cast<float*>(values.data()), values.size()};
}

int64_t Graph::scratch_bytes() const {
  if (!impl_->scratch)
    return 0;
  return static_cast<int64_t>(ggml_gallocr_get_buffer_size(impl_->scratch.get(), 0) + impl_->plan.work_size);
}

}  // namespace kedge::tensor
