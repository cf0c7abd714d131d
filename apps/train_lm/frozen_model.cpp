#include "train_lm/frozen_model.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>

#include "base/check.h"
#include "session/rotation.h"
#include "tensor/types.h"
#include "train_lm/learned_lora.h"
#include "train_lm/ops.h"
#include "train_lm/tail_attention.h"

namespace kedge::lm {
namespace {

using at::Tensor;

// Reads tensors of the file, which the engine has checked when it loaded the model.
class Reader {
 public:
  Reader(const tensor::GgufFile& file, at::ScalarType type) : file_(file), type_(type) {}

  bool has(const std::string& name) const { return file_.find(name) != nullptr; }
  // [rows, cols], or [n] of a vector
  Tensor take(const std::string& name) const {
    const tensor::TensorInfo* info = file_.find(name);
    check(info != nullptr && tensor::can_get_rows(info->type), "the engine has read this tensor");
    const int64_t cols = info->ne[0], rows = info->ne[1];
    Tensor out = at::empty({rows, cols}, at::kFloat);
    tensor::rows_to_f32(info->type, cols, info->data, {out.data_ptr<float>(), static_cast<size_t>(out.numel())});
    file_.release(*info);
    return (info->n_dims == 1 ? out[0] : out).to(type_);
  }
  Tensor take_or_none(const std::string& name) const { return has(name) ? take(name) : Tensor(); }

 private:
  const tensor::GgufFile& file_;
  at::ScalarType type_;
};

Tensor both(const Tensor& a, const Tensor& b, int64_t n) {  // one bias over two matrices of n rows each
  if (!a.defined() && !b.defined())
    return {};
  const at::TensorOptions options = (a.defined() ? a : b).options();
  return at::cat({a.defined() ? a : at::zeros({n}, options), b.defined() ? b : at::zeros({n}, options)});
}

FrozenLayer read_layer(const Reader& file, const model::HyperParams& hyper, int layer) {
  const std::string p = "blk." + std::to_string(layer) + ".";
  const double scale = static_cast<double>(hyper.attention_scale);
  const Tensor b_q = as_halves(file.take_or_none(p + "attn_q.bias"), hyper.n_heads);
  return {.attn_norm = file.take(p + "attn_norm.weight"),
          .ffn_norm = file.take(p + "ffn_norm.weight"),
          .w_q = as_halves(file.take(p + "attn_q.weight"), hyper.n_heads) * scale,
          .b_q = b_q.defined() ? b_q * scale : b_q,
          .w_k = as_halves(file.take(p + "attn_k.weight"), hyper.n_kv_heads),
          .b_k = as_halves(file.take_or_none(p + "attn_k.bias"), hyper.n_kv_heads),
          .w_v = file.take(p + "attn_v.weight"),
          .b_v = file.take_or_none(p + "attn_v.bias"),
          .w_o = file.take(p + "attn_output.weight"),
          .b_o = file.take_or_none(p + "attn_output.bias"),
          .w_gate_up = at::cat({file.take(p + "ffn_gate.weight"), file.take(p + "ffn_up.weight")}),
          .b_gate_up = both(file.take_or_none(p + "ffn_gate.bias"), file.take_or_none(p + "ffn_up.bias"), hyper.n_ff),
          .w_down = file.take(p + "ffn_down.weight"),
          .b_down = file.take_or_none(p + "ffn_down.bias")};
}

// x weight^T of a matrix in bf16.
struct Bf16Product : torch::autograd::Function<Bf16Product> {
  static Tensor forward(torch::autograd::AutogradContext* ctx, const Tensor& x, const Tensor& weight) {
    ctx->save_for_backward({weight});
    return at::mm(x.to(at::kBFloat16), weight.t()).to(x.scalar_type());
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradient) {
    const Tensor weight = ctx->get_saved_variables()[0];
    return {at::mm(gradient[0].to(at::kBFloat16), weight).to(gradient[0].scalar_type()), Tensor()};
  }
};

Tensor project(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (weight.scalar_type() == x.scalar_type())
    return bias.defined() ? at::addmm(bias, x, weight.t()) : at::mm(x, weight.t());
  const Tensor product = Bf16Product::apply(x, weight);
  return bias.defined() ? product + bias : product;
}

// What `lora` adds to the product with a matrix, and that product.
Tensor with_lora(const Tensor& product, const Tensor& x, const LoraProduct* lora) {
  return lora == nullptr ? product : product + at::mm(at::mm(x, lora->a.t()), lora->b.t());
}

}  // namespace

Tensor as_halves(const Tensor& weight, int64_t n_heads) {
  if (!weight.defined())
    return weight;
  std::vector<int64_t> paired = {n_heads, -1, 2};
  const auto rest = weight.sizes().slice(1);
  paired.insert(paired.end(), rest.begin(), rest.end());
  return weight.view(paired).transpose(1, 2).reshape(weight.sizes());
}

Result<FrozenModel> freeze(const model::Model& model, at::ScalarType type, bool bf16) {
  const model::HyperParams& hyper = model.hyper();
  if (hyper.architecture != "llama")
    return Error{ErrorCode::usage, "training on the language-model loss: found the architecture '" +
                                       hyper.architecture + "', allowed 'llama'"};
  const c10::NoGradGuard frozen;
  const Reader file(model.file(), type);
  const eviction::Rotation rotation = session::rotation_of(hyper.rope);
  check(!rotation.is_split, "the file's pairs are neighbours");
  FrozenModel out{.n_layers = hyper.n_layers,
                  .n_embd = hyper.n_embd,
                  .n_heads = hyper.n_heads,
                  .n_kv_heads = hyper.n_kv_heads,
                  .head_dim = hyper.head_dim,
                  .n_ff = hyper.n_ff,
                  .n_vocab = hyper.n_vocab,
                  .norm_eps = static_cast<double>(hyper.norm_eps),
                  .attention_scale = static_cast<double>(hyper.attention_scale),
                  .embed = file.take("token_embd.weight"),
                  .output = {},
                  .output_bf16 = {},
                  .output_norm = file.take("output_norm.weight"),
                  .frequency = at::tensor(rotation.frequency, at::kFloat).to(at::kDouble),
                  .magnitude = static_cast<double>(rotation.magnitude),
                  .layers = {}};
  out.output = file.has("output.weight") ? file.take("output.weight") : out.embed;
  if (bf16)
    out.output_bf16 = out.output.to(at::kBFloat16);
  for (int layer = 0; layer < hyper.n_layers; ++layer) {
    FrozenLayer& own = out.layers.emplace_back(read_layer(file, hyper, layer));
    for (Tensor* matrix : {&own.w_q, &own.w_k, &own.w_v, &own.w_o, &own.w_gate_up, &own.w_down})
      *matrix = bf16 ? matrix->to(at::kBFloat16) : *matrix;
  }
  return out;
}

bool bf16_is_fast() { return __builtin_cpu_supports("avx512bf16") && at::globalContext().userEnabledMkldnn(); }

Rotation rotation_of(const FrozenModel& model, int64_t n) {
  const Tensor angle = at::outer(at::arange(n, at::kDouble), model.frequency).unsqueeze(1);
  return {.cosine = (angle.cos() * model.magnitude).to(model.options()),
          .sine = (angle.sin() * model.magnitude).to(model.options())};
}

Rotation part_of(const Rotation& all, int64_t begin, int64_t end) {
  return {.cosine = all.cosine.slice(0, begin, end), .sine = all.sine.slice(0, begin, end)};
}

Tensor queries_of(const FrozenModel& model, int layer, const Tensor& x, const Rotation& rotation) {
  const FrozenLayer& own = model.layers[static_cast<size_t>(layer)];
  return rotate(project(x, own.w_q, own.b_q).view({x.size(0), model.n_heads, model.head_dim}), rotation.cosine,
                rotation.sine);
}

Tensor run_layer(const FrozenModel& model, int layer, const Tensor& x, const LayerCall& call) {
  const FrozenLayer& own = model.layers[static_cast<size_t>(layer)];
  const int64_t n = x.size(0), d = model.head_dim;
  const Rotation& turn = call.rotation;
  const LayerLora* lora = call.lora;
  const Tensor normed = rms_norm(x, own.attn_norm, model.norm_eps);
  // Heads of the normed row, with what the adapter adds.
  const auto heads = [&](const Tensor& weight, const Tensor& bias, const LoraProduct* added, int64_t n_heads) {
    return with_lora(project(normed, weight, bias), normed, added).view({n, n_heads, d});
  };
  const Tensor q = rotate(heads(own.w_q, own.b_q, lora ? &lora->q : nullptr, model.n_heads), turn.cosine, turn.sine);
  LayerRows rows;
  if (call.rows != nullptr) {
    rows = *call.rows;
  } else {
    rows = {.x = normed,
            .k = rotate(heads(own.w_k, own.b_k, lora ? &lora->k : nullptr, model.n_kv_heads), turn.cosine, turn.sine),
            .v = heads(own.w_v, own.b_v, lora ? &lora->v : nullptr, model.n_kv_heads)};
  }
  const Tensor u = call.gate ? call.gate(rows.x) : Tensor();
  const Tensor y = call.before == nullptr ? gated_attention(q, rows.k, rows.v, u, call.gated)
                                          : tail_attention(q, at::cat({call.before->k, rows.k}),
                                                           at::cat({call.before->v, rows.v}), call.through);
  if (call.keep_rows != nullptr)
    *call.keep_rows = std::move(rows);
  const Tensor attended = x + with_lora(project(y, own.w_o, own.b_o), y, lora ? &lora->o : nullptr);
  const Tensor ffn_in = rms_norm(attended, own.ffn_norm, model.norm_eps);
  return attended + project(swiglu(project(ffn_in, own.w_gate_up, own.b_gate_up)), own.w_down, own.b_down);
}

Tensor embed(const FrozenModel& model, const Tensor& tokens) { return model.embed.index_select(0, tokens); }

Tensor final_norm(const FrozenModel& model, const Tensor& x) { return rms_norm(x, model.output_norm, model.norm_eps); }

Tensor full_logits(const FrozenModel& model, const Tensor& tokens, const LearnedLora* lora) {
  const c10::NoGradGuard frozen;
  const Rotation rotation = rotation_of(model, tokens.size(0));
  Tensor x = embed(model, tokens);
  for (int layer = 0; layer < model.n_layers; ++layer) {
    const std::optional<LayerLora> own = lora == nullptr ? std::nullopt : std::optional(lora->layer(model, layer));
    x = run_layer(model, layer, x, {.rotation = rotation, .lora = own ? &*own : nullptr});
  }
  return at::mm(final_norm(model, x), model.output.t());
}

}  // namespace kedge::lm
