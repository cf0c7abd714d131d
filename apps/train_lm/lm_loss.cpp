#include "train_lm/lm_loss.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>

namespace kedge::lm {
namespace {

using at::Tensor;

constexpr int64_t kRows = 256;  // positions whose logits are held at a time

struct LogSoftmax {
  Tensor logits;   // [rows, n_vocab], less the largest of each row
  Tensor weights;  // softmax
  Tensor log_sum;  // [rows, 1]
};

LogSoftmax softmax_of(const FrozenModel& model, const Tensor& hidden) {
  LogSoftmax out;
  out.logits = at::mm(hidden, model.output.t());
  out.logits.sub_(out.logits.amax({1}, true));
  out.weights = out.logits.exp();
  const Tensor sum = out.weights.sum({1}, true);
  out.weights.div_(sum);
  out.log_sum = sum.log();
  return out;
}

Tensor by_hidden(const FrozenModel& model, const Tensor& by_logits) {
  if (model.output_bf16.defined())
    return at::mm(by_logits.to(at::kBFloat16), model.output_bf16);
  return at::mm(by_logits, model.output);
}

}  // namespace

Loss lm_loss(const FrozenModel& model, const Tensor& hidden, const LossTarget& target, bool with_gradient) {
  const c10::NoGradGuard by_hand;
  Loss loss;
  if (with_gradient)
    loss.by_hidden = at::zeros_like(hidden);
  for (int64_t begin = target.first; begin < hidden.size(0); begin += kRows) {
    const int64_t end = std::min(begin + kRows, hidden.size(0));
    LogSoftmax own = softmax_of(model, hidden.slice(0, begin, end));
    const Tensor weight = target.weight.slice(0, begin, end).unsqueeze(1);
    Tensor row;  // the loss of each position
    if (target.full.defined()) {
      LogSoftmax full = softmax_of(model, target.full.slice(0, begin, end));
      full.logits.sub_(own.logits).mul_(full.weights);
      row = full.logits.sum({1}, true) - full.log_sum + own.log_sum;
      own.weights.sub_(full.weights);
    } else {
      const Tensor next = target.next.slice(0, begin, end).unsqueeze(1);
      row = own.log_sum - own.logits.gather(1, next);
      own.weights.scatter_add_(1, next, at::full({}, -1.0, hidden.options()).expand_as(next));
    }
    loss.value += at::sum(row * weight, at::kDouble).item<double>();
    if (with_gradient)
      loss.by_hidden.slice(0, begin, end).copy_(by_hidden(model, own.weights.mul_(weight)));
  }
  return loss;
}

}  // namespace kedge::lm
