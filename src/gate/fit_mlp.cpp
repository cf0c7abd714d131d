#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <random>
#include <utility>

#include "base/check.h"
#include "gate/fit.h"
#include "gate/mlp.h"
#include "gate/standardise.h"

namespace kedge::gate {
namespace {

constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.999;
constexpr float kEpsilon = 1e-8F;
constexpr int kRowsAtOnce = 32;  // rows that one thread standardises at a time

struct Scales {
  Columns inputs;
  Columns labels;
};

struct Batch {
  int n;
  const float* x;  // f32 [n][n_embd], standardised
  const float* y;  // f32 [n][n_heads], standardised
};

// Standardised rows of one set of examples, batch after batch in an order; the last batch may be smaller.
class Batches {
 public:
  Batches(const Examples& examples, const Scales& scales, int batch, Executor& executor)
      : examples_(examples), scales_(scales), batch_(batch), executor_(executor) {
    const auto n = static_cast<size_t>(std::min<int64_t>(examples.n, int64_t{batch} * kBatchesAtOnce));
    x_.resize(n * static_cast<size_t>(examples.n_embd));
    y_.resize(n * static_cast<size_t>(examples.n_heads));
  }

  template <typename Function>
  void for_each(std::span<const int64_t> order, const Function& fn) {
    const auto many = static_cast<size_t>(batch_) * kBatchesAtOnce;
    for (size_t first = 0; first < order.size(); first += many) {
      const std::span<const int64_t> rows = order.subspan(first, std::min(many, order.size() - first));
      fill(rows);
      const auto n_rows = static_cast<int64_t>(rows.size());
      for (int64_t row = 0; row < n_rows; row += batch_) {
        fn(Batch{.n = static_cast<int>(std::min<int64_t>(batch_, n_rows - row)),
                 .x = x_.data() + row * examples_.n_embd,
                 .y = y_.data() + row * examples_.n_heads});
      }
    }
  }

 private:
  // Threads meet once for many batches: each meeting costs as much as a tenth of a batch.
  static constexpr int kBatchesAtOnce = 8;

  void fill(std::span<const int64_t> rows) {
    const int n = static_cast<int>(rows.size());
    for_each_index(executor_, (n + kRowsAtOnce - 1) / kRowsAtOnce, [&](int part) {
      for (int i = part * kRowsAtOnce; i < std::min(n, (part + 1) * kRowsAtOnce); ++i) {
        const int64_t row = rows[static_cast<size_t>(i)];
        standardise_input(examples_, row, scales_.inputs, x_.data() + int64_t{i} * examples_.n_embd);
        standardise_label(examples_, row, scales_.labels, y_.data() + int64_t{i} * examples_.n_heads);
      }
    });
  }

  const Examples& examples_;
  const Scales& scales_;
  int batch_;
  Executor& executor_;
  std::vector<float> x_;
  std::vector<float> y_;
};

std::vector<int64_t> in_order(int64_t n) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  return order;
}

struct Step {
  float rate;        // over the first moment's bias
  float correction;  // 1 / the second moment's bias
  float kept;        // 1 - rate * decay, of a weight
};

// Part [first, first + n) of one kind of parameter.
struct Part {
  std::vector<float> Mlp::*of;
  size_t first;
  size_t n;
  bool decays;
};

class AdamW {
 public:
  explicit AdamW(MlpShape shape) : mean_(shape), square_(shape) {}

  Step next(double rate, double decay) {
    bias1_ *= kBeta1;
    bias2_ *= kBeta2;
    return {.rate = static_cast<float>(rate / (1 - bias1_)),
            .correction = static_cast<float>(1 / (1 - bias2_)),
            .kept = static_cast<float>(1 - rate * decay)};
  }

  void update_panel(Mlp& net, const Mlp& gradient, int of, const Step& step) {
    const auto panel = static_cast<size_t>(of);
    const size_t w1 = static_cast<size_t>(net.shape.n_embd) * kPanel;
    const size_t w2 = static_cast<size_t>(net.shape.n_heads) * kPanel;
    update(net, gradient, {.of = &Mlp::w1, .first = panel * w1, .n = w1, .decays = true}, step);
    update(net, gradient, {.of = &Mlp::b1, .first = panel * kPanel, .n = kPanel, .decays = false}, step);
    update(net, gradient, {.of = &Mlp::w2, .first = panel * w2, .n = w2, .decays = true}, step);
  }

  void update_b2(Mlp& net, const Mlp& gradient, const Step& step) {
    update(net, gradient, {.of = &Mlp::b2, .first = 0, .n = net.b2.size(), .decays = false}, step);
  }

 private:
  void update(Mlp& net, const Mlp& gradient, const Part& part, const Step& step) {
    constexpr auto kMean = static_cast<float>(kBeta1);
    constexpr auto kSquare = static_cast<float>(kBeta2);
    const float* g = (gradient.*part.of).data() + part.first;
    float* w = (net.*part.of).data() + part.first;
    float* mean = (mean_.*part.of).data() + part.first;
    float* square = (square_.*part.of).data() + part.first;
    const float kept = part.decays ? step.kept : 1.0F;
    for (size_t i = 0; i < part.n; ++i) {
      mean[i] = kMean * mean[i] + (1 - kMean) * g[i];
      square[i] = kSquare * square[i] + (1 - kSquare) * g[i] * g[i];
      w[i] = kept * w[i] - step.rate * mean[i] / (std::sqrt(square[i] * step.correction) + kEpsilon);
    }
  }

  Mlp mean_;
  Mlp square_;
  double bias1_ = 1;
  double bias2_ = 1;
};

class Trainer {
 public:
  Trainer(const Examples& train, const Examples& held_out, const MlpOptions& options, const Scales& scales,
          Executor& executor)
      : options_(options),
        executor_(executor),
        shape_{.n_embd = train.n_embd, .width = options.width, .n_heads = train.n_heads},
        train_(train, scales, options.batch, executor),
        held_out_(held_out, scales, options.batch, executor),
        order_(in_order(train.n)),
        held_out_order_(in_order(held_out.n)),
        net_(first_weights(shape_, options.seed)),
        gradient_(shape_),
        adam_(shape_),
        pass_(shape_, options.batch),
        random_(options.seed + 1),
        n_steps_(options.epochs * ((train.n + options.batch - 1) / options.batch)) {}

  const Mlp& net() const { return net_; }

  // One pass over the training rows; the mean error of the rows.
  double epoch() {
    for (size_t i = order_.size(); i > 1; --i)
      std::swap(order_[i - 1], order_[random_() % i]);
    double sum = 0;
    train_.for_each(order_, [&](const Batch& batch) {
      pass_.forward(net_, batch.x, batch.n, executor_);
      sum += pass_.loss(batch.y, batch.n) * batch.n;
      const double done = static_cast<double>(n_done_++) / static_cast<double>(n_steps_);
      const double rate = double{options_.rate} * 0.5 * (1 + std::cos(std::numbers::pi * done));
      const Step step = adam_.next(rate, double{options_.decay});
      pass_.backward(net_, batch.x, batch.y, batch.n, gradient_, executor_,
                     [&](int panel) { adam_.update_panel(net_, gradient_, panel, step); });
      adam_.update_b2(net_, gradient_, step);
    });
    return sum / static_cast<double>(order_.size());
  }

  double held_out_error() {
    double sum = 0;
    held_out_.for_each(held_out_order_, [&](const Batch& batch) {
      pass_.forward(net_, batch.x, batch.n, executor_);
      sum += pass_.loss(batch.y, batch.n) * batch.n;
    });
    return sum / static_cast<double>(held_out_order_.size());
  }

 private:
  const MlpOptions& options_;
  Executor& executor_;
  MlpShape shape_;
  Batches train_;
  Batches held_out_;
  std::vector<int64_t> order_;
  std::vector<int64_t> held_out_order_;
  Mlp net_;
  Mlp gradient_;
  AdamW adam_;
  MlpPass pass_;
  std::mt19937_64 random_;
  int64_t n_done_ = 0;  // steps
  int64_t n_steps_;
};

// A gate for standardised inputs and labels -> one for those that were given.
void fold(LayerGate& gate, const Scales& scales) {
  const size_t n_embd = scales.inputs.mean.size();
  const size_t width = gate.b1.size();
  for (size_t unit = 0; unit < width; ++unit) {
    auto offset = double{gate.b1[unit]};
    for (size_t i = 0; i < n_embd; ++i) {
      float& w = gate.w1[unit * n_embd + i];
      w *= scales.inputs.scale[i];
      offset -= double{w} * double{scales.inputs.mean[i]};
    }
    gate.b1[unit] = static_cast<float>(offset);
  }
  for (size_t head = 0; head < gate.b2.size(); ++head) {
    // A label that never changes has the scale 0: its head is its mean.
    const float scale = scales.labels.scale[head];
    const float deviation = scale == 0 ? 0.0F : 1 / scale;
    for (size_t unit = 0; unit < width; ++unit)
      gate.w2[head * width + unit] *= deviation;
    gate.b2[head] = gate.b2[head] * deviation + scales.labels.mean[head];
  }
}

}  // namespace

Result<LayerGate> fit_mlp(const Examples& train, const Examples& held_out, const MlpOptions& options,
                          Executor& executor, const std::function<void(const EpochReport&)>& progress) {
  check(options.width > 0 && options.epochs > 0 && options.batch > 0, "fit_mlp: options");
  check(train.n_embd == held_out.n_embd && train.n_heads == held_out.n_heads, "fit_mlp: sets of two shapes");
  if (Status usable = check_examples(train, "examples"); !usable)
    return usable.error();
  if (Status usable = check_examples(held_out, "held-out examples"); !usable)
    return usable.error();
  const Scales scales{.inputs = input_columns(train, executor), .labels = label_columns(train)};
  Trainer trainer(train, held_out, options, scales, executor);
  Mlp best = trainer.net();
  double least = std::numeric_limits<double>::infinity();
  for (int epoch = 1; epoch <= options.epochs; ++epoch) {
    const double error = trainer.epoch();
    const double held_out_error = trainer.held_out_error();
    if (held_out_error < least) {
      least = held_out_error;
      best = trainer.net();
    }
    if (progress)
      progress({.epoch = epoch, .epochs = options.epochs, .train = error, .held_out = held_out_error});
  }
  if (!std::isfinite(least))
    return Error{ErrorCode::failed, "the gate's error is not a number: the rate is too high"};
  LayerGate gate = to_layer_gate(best);
  fold(gate, scales);
  return gate;
}

}  // namespace kedge::gate
