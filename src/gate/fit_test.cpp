// Both fits on functions whose answer is known, and the gradient against differences of the loss.
#include "gate/fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

#include "gate/mlp.h"
#include "gate/standardise.h"

namespace kedge::gate {
namespace {

// Rounds towards zero; |value| in 2^-14 ... 65504, or 0.
uint16_t half(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  const uint32_t rounded = magnitude < (113U << 23) ? 0 : (magnitude >> 13) - (112U << 10);
  return static_cast<uint16_t>((bits >> 16 & 0x8000U) | rounded);
}

struct Data {
  int n, n_embd, n_heads;
  std::vector<uint16_t> x;
  std::vector<float> y;
  Examples examples() const { return {.n = n, .n_embd = n_embd, .n_heads = n_heads, .x = x, .y = y}; }
};

// x: normal; label(row's x as f32, head)
template <typename Label>
Data draw(int n, int n_embd, int n_heads, uint32_t seed, const Label& label) {
  Data out{.n = n, .n_embd = n_embd, .n_heads = n_heads, .x = {}, .y = {}};
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 1);
  for (int row = 0; row < n; ++row) {
    std::vector<float> x;
    for (int i = 0; i < n_embd; ++i) {
      out.x.push_back(half(normal(random)));
      x.push_back(widen(out.x.back()));
    }
    for (int head = 0; head < n_heads; ++head)
      out.y.push_back(label(x, head));
  }
  return out;
}

float bent(const std::vector<float>& x, int head) {
  return head == 0 ? std::abs(x[0]) + x[1] * x[2] : 5 - 20 * (x[1] * x[3] - std::abs(x[2]));
}

GateInfo info_of(const Data& data, int width) {
  return {.model = {.n_layers = 1, .n_embd = data.n_embd, .n_kv_heads = data.n_heads}, .width = width};
}

bool same(const LayerGate& a, const LayerGate& b) {
  return a.w1 == b.w1 && a.b1 == b.b1 && a.w2 == b.w2 && a.b2 == b.b2;
}

TEST(Standardise, HalvesByHand) {
  EXPECT_EQ(widen(0x3C00), 1.0F);
  EXPECT_EQ(widen(0xC100), -2.5F);
  EXPECT_EQ(widen(0x7BFF), 65504.0F);
  EXPECT_EQ(widen(0x0400), 0x1p-14F) << "the least normal";
  EXPECT_EQ(widen(0x03FF), 1023 * 0x1p-24F) << "the greatest subnormal";
  EXPECT_EQ(widen(0x8001), -0x1p-24F);
  EXPECT_EQ(widen(0x0000), 0.0F);
}

TEST(Standardise, ColumnsByHand) {
  Data data{.n = 4, .n_embd = 2, .n_heads = 2, .x = {}, .y = {1, 7, 3, 7, 1, 7, 3, 7}};
  for (const float x : {1.0F, 3.0F, 5.0F, 3.0F, 1.0F, 3.0F, 5.0F, 3.0F})
    data.x.push_back(half(x));
  SerialExecutor serial;
  const Columns inputs = input_columns(data.examples(), serial);
  EXPECT_EQ(inputs.mean, (std::vector<float>{3, 3}));
  EXPECT_EQ(inputs.scale, (std::vector<float>{0.5F, 0}));
  EXPECT_EQ(label_columns(data.examples()).mean, (std::vector<float>{2, 7}));
  EXPECT_EQ(label_columns(data.examples()).scale, (std::vector<float>{1, 0}));
}

// Column 3 is constant, column 4 a thousandth as wide as the others, column 5 a thousand times and far from 0.
Data badly_scaled(uint32_t seed) {
  Data data = draw(3000, 8, 2, seed, [](const std::vector<float>&, int) { return 0.0F; });
  for (size_t row = 0; row < 3000; ++row) {
    uint16_t* x = data.x.data() + row * 8;
    x[3] = half(2.5F);
    x[4] = half(widen(x[4]) * 0.001F);
    x[5] = half(widen(x[5]) * 1000 + 6000);
    const float v[] = {widen(x[0]), widen(x[4]) * 1000, widen(x[5]) / 1000, widen(x[7])};
    data.y[row * 2] = 1 + 2 * v[0] - 3 * v[1] + 0.5F * v[2];
    data.y[row * 2 + 1] = v[1] - v[3] - 4 * v[2];
  }
  return data;
}

TEST(FitLinear, FindsTheWeightsOfAnyScale) {
  const Data data = badly_scaled(1);
  SerialExecutor serial;
  const Result<LayerGate> gate = fit_linear(data.examples(), {.ridge = 0}, serial);
  ASSERT_TRUE(gate.ok()) << gate.error().message;
  EXPECT_TRUE(gate->w1.empty() && gate->b1.empty());
  const float expected[] = {2, 0, 0, 0, -3000, 0.0005F, 0, 0, 0, 0, 0, 0, 1000, -0.004F, 0, -1};
  const float width[] = {1, 1, 1, 1, 0.001F, 1000, 1, 1};
  ASSERT_EQ(gate->w2.size(), 16U);
  for (size_t i = 0; i < 16; ++i)
    EXPECT_NEAR(gate->w2[i] * width[i % 8], expected[i] * width[i % 8], 1e-3) << i;
  EXPECT_EQ(gate->w2[3], 0) << "a constant tells nothing";
  EXPECT_NEAR(gate->b2[0], 1, 1e-3);
  EXPECT_NEAR(gate->b2[1], 0, 1e-3);
  const FitQuality found = quality(*gate, info_of(data, 0), badly_scaled(2).examples());
  EXPECT_GT(found.r2[0], 0.99999);
  EXPECT_GT(found.spearman[1], 0.99999);
}

TEST(FitLinear, RidgeShrinks) {
  const auto label = [](const std::vector<float>& x, int) { return 3 * x[1] + 7; };
  const Data data = draw(20000, 4, 1, 3, label);
  SerialExecutor serial;
  for (const double ridge : {0.0, 1.0, 3.0}) {
    const Result<LayerGate> gate = fit_linear(data.examples(), {.ridge = ridge}, serial);
    ASSERT_TRUE(gate.ok());
    EXPECT_NEAR(gate->w2[1], 3 / (1 + ridge), 0.03) << "one uncorrelated input: w / (1 + ridge)";
    EXPECT_NEAR(gate->b2[0], 7, 0.06) << "the mean is not penalised";
  }
}

TEST(FitLinear, DependentInputsNeedARidge) {
  Data data = draw(300, 3, 1, 4, [](const std::vector<float>& x, int) { return x[0]; });
  for (size_t row = 0; row < 300; ++row)
    data.x[row * 3 + 2] = data.x[row * 3];
  SerialExecutor serial;
  const Result<LayerGate> refused = fit_linear(data.examples(), {.ridge = 0}, serial);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::failed);
  EXPECT_NE(refused.error().message.find("a larger one is needed"), std::string::npos);
  const Result<LayerGate> shared = fit_linear(data.examples(), {.ridge = 1e-4}, serial);
  ASSERT_TRUE(shared.ok());
  EXPECT_NEAR(shared->w2[0], 0.5, 0.01) << "two equal inputs share a weight";
  EXPECT_NEAR(shared->w2[2], 0.5, 0.01);
}

TEST(FitLinear, IsTheSameOnAnyNumberOfThreads) {
  const Data data = draw(2500, 101, 3, 5,
                         [](const std::vector<float>& x, int head) { return x[static_cast<size_t>(head)] - x[100]; });
  ThreadExecutor one(1);
  const Result<LayerGate> expected = fit_linear(data.examples(), {.ridge = 0.01}, one);
  for (const int n_threads : {2, 3}) {
    ThreadExecutor executor(n_threads);
    EXPECT_TRUE(same(*fit_linear(data.examples(), {.ridge = 0.01}, executor), *expected)) << n_threads;
  }
}

TEST(FitMlp, LearnsWhatALineCannot) {
  Data train = draw(8000, 6, 2, 6, bent);
  Data held_out = draw(1000, 6, 2, 7, bent);
  for (Data* data : {&train, &held_out}) {  // an input that never changes, one that is far from 0
    for (size_t row = 0; row < static_cast<size_t>(data->n); ++row) {
      data->x[row * 6 + 4] = half(3);
      data->x[row * 6 + 5] = half(widen(data->x[row * 6 + 5]) * 100 + 900);
    }
  }
  SerialExecutor serial;
  const Result<LayerGate> line = fit_linear(train.examples(), {.ridge = 0}, serial);
  std::vector<EpochReport> reports;
  const MlpOptions options{.width = 40, .epochs = 30, .rate = 1e-2F, .batch = 100};
  const Result<LayerGate> gate = fit_mlp(train.examples(), held_out.examples(), options, serial,
                                         [&](const EpochReport& report) { reports.push_back(report); });
  ASSERT_TRUE(line.ok() && gate.ok());
  const FitQuality of_line = quality(*line, info_of(train, 0), held_out.examples());
  const FitQuality of_gate = quality(*gate, info_of(train, 40), held_out.examples());
  for (size_t head = 0; head < 2; ++head) {
    EXPECT_LT(of_line.r2[head], 0.3);
    EXPECT_GT(of_gate.r2[head], 0.9);
    EXPECT_GT(of_gate.spearman[head], 0.9);
  }
  ASSERT_EQ(reports.size(), 30U);
  EXPECT_EQ(reports[29].epoch, 30);
  EXPECT_LT(reports[29].train, 0.1 * reports[0].train);
}

TEST(FitMlp, ReturnsTheEpochThatIsBestOnTheHeldOut) {
  // Labels of chance: each epoch learns the training rows better and the others worse.
  std::mt19937 random(8);
  const auto chance = [&](const std::vector<float>& x, int) {
    return 0.3F * x[0] + static_cast<float>(random() % 100);
  };
  const Data train = draw(300, 20, 1, 9, chance);
  const Data held_out = draw(300, 20, 1, 10, chance);
  SerialExecutor serial;
  std::vector<double> errors;
  const MlpOptions options{.width = 64, .epochs = 20, .rate = 1e-2F, .batch = 50};
  const Result<LayerGate> gate = fit_mlp(train.examples(), held_out.examples(), options, serial,
                                         [&](const EpochReport& report) { errors.push_back(report.held_out); });
  ASSERT_TRUE(gate.ok());
  const double least = *std::min_element(errors.begin(), errors.end());
  ASSERT_GT(errors.back(), 1.2 * least);
  const double scale = double{label_columns(train.examples()).scale[0]};
  double error = 0;
  for (int row = 0; row < held_out.n; ++row) {
    std::vector<float> x(20);
    std::transform(held_out.x.begin() + row * 20, held_out.x.begin() + (row + 1) * 20, x.begin(), widen);
    const float logit = gate_logits(info_of(train, 64), *gate, x)[0];
    error += std::pow((double{logit} - double{held_out.y[static_cast<size_t>(row)]}) * scale, 2) / held_out.n;
  }
  EXPECT_NEAR(error, least, 1e-4 * least) << "the report's units, by the plain loops, after folding";
}

TEST(FitMlp, IsTheSameOnAnyNumberOfThreadsAndAnotherForAnotherSeed) {
  const auto label = [](const std::vector<float>& x, int head) { return x[static_cast<size_t>(head)] * x[7]; };
  const Data train = draw(700, 37, 3, 11, label);
  const Data held_out = draw(90, 37, 3, 12, label);
  const auto fit = [&](int n_threads, uint64_t seed) {
    ThreadExecutor executor(n_threads);
    const MlpOptions options{.width = 50, .epochs = 2, .batch = 64, .seed = seed};
    return *fit_mlp(train.examples(), held_out.examples(), options, executor, {});
  };
  const LayerGate expected = fit(1, 1);
  EXPECT_TRUE(same(fit(1, 1), expected));
  EXPECT_TRUE(same(fit(2, 1), expected));
  EXPECT_TRUE(same(fit(3, 1), expected));
  EXPECT_FALSE(same(fit(1, 2), expected));
}

// AdamW as its paper writes it, in double, with the gradients of MlpPass: all rows in each of `options.epochs` steps.
LayerGate plain_adamw(const std::vector<float>& x, const std::vector<float>& y, MlpShape shape,
                      const MlpOptions& options) {
  SerialExecutor serial;
  const int n = options.batch;
  Mlp net = first_weights(shape, options.seed);
  Mlp gradient(shape);
  MlpPass pass(shape, n);
  std::vector<double> mean(net.w1.size() + net.b1.size() + net.w2.size() + net.b2.size());
  std::vector<double> square(mean.size());
  for (int step = 1; step <= options.epochs; ++step) {
    pass.forward(net, x.data(), n, serial);
    pass.backward(net, x.data(), y.data(), n, gradient, serial, [](int) {});
    const double rate = options.rate * 0.5 * (1 + std::cos(M_PI * (step - 1) / options.epochs));
    size_t at = 0;
    for (const auto part : {&Mlp::w1, &Mlp::w2, &Mlp::b1, &Mlp::b2}) {
      const bool decays = part == &Mlp::w1 || part == &Mlp::w2;
      for (size_t i = 0; i < (net.*part).size(); ++i, ++at) {
        const double g = double{(gradient.*part)[i]};
        mean[at] = 0.9 * mean[at] + 0.1 * g;
        square[at] = 0.999 * square[at] + 0.001 * g * g;
        const double unbiased = mean[at] / (1 - std::pow(0.9, step));
        const double deviation = std::sqrt(square[at] / (1 - std::pow(0.999, step)));
        const double w = double{(net.*part)[i]};
        const double decay = decays ? double{options.decay} * w : 0;
        (net.*part)[i] = static_cast<float>(w - rate * (unbiased / (deviation + 1e-8) + decay));
      }
    }
  }
  return to_layer_gate(net);
}

TEST(FitMlp, StepsAsAdamWWithHalfACosine) {
  // Inputs and labels of -1 and 1, as many of each, are their own standardised form.
  Data data{.n = 64, .n_embd = 4, .n_heads = 2, .x = {}, .y = {}};
  std::vector<float> x;
  for (int row = 0; row < 64; ++row) {
    for (int i = 0; i < 4; ++i)
      x.push_back((row >> i & 1) != 0 ? 1.0F : -1.0F);
    data.y.push_back(((row & 1) != 0) == ((row & 2) != 0) ? 1.0F : -1.0F);
    data.y.push_back((row & 32) != 0 ? 1.0F : -1.0F);
  }
  for (const float one : x)
    data.x.push_back(half(one));
  SerialExecutor serial;
  const MlpOptions options{.width = 6, .epochs = 12, .rate = 0.01F, .decay = 5, .batch = 64, .seed = 4};
  std::vector<double> errors;
  const Result<LayerGate> found = fit_mlp(data.examples(), data.examples(), options, serial,
                                          [&](const EpochReport& report) { errors.push_back(report.held_out); });
  ASSERT_TRUE(found.ok());
  ASSERT_EQ(std::min_element(errors.begin(), errors.end()) - errors.begin(), 11) << "so the last epoch is returned";
  const LayerGate expected = plain_adamw(x, data.y, {.n_embd = 4, .width = 6, .n_heads = 2}, options);
  for (size_t i = 0; i < expected.w1.size(); ++i)
    EXPECT_NEAR(found->w1[i], expected.w1[i], 1e-4) << i;
  for (size_t i = 0; i < expected.b1.size(); ++i)
    EXPECT_NEAR(found->b1[i], expected.b1[i], 1e-4) << i;
  for (size_t i = 0; i < expected.w2.size(); ++i)
    EXPECT_NEAR(found->w2[i], expected.w2[i], 1e-4) << i;
}

TEST(FitMlp, TakesRowsInAShuffledOrder) {
  // The last tenth of the rows is of another kind: in the given order its turn would come when the rate is almost 0.
  const auto sorted = [](int n, uint32_t seed) {
    Data data = draw(n, 3, 1, seed, [](const std::vector<float>&, int) { return 1.0F; });
    for (int row = 0; row < n; ++row) {
      const bool other = row >= n - n / 10;
      data.x[static_cast<size_t>(row) * 3] = half(other ? 1 : 0);
      data.y[static_cast<size_t>(row)] = other ? -1 : 1;
    }
    return data;
  };
  const Data train = sorted(2000, 18);
  const Data held_out = sorted(300, 19);
  SerialExecutor serial;
  const MlpOptions options{.width = 16, .epochs = 1, .rate = 0.03F, .batch = 20};
  const Result<LayerGate> gate = fit_mlp(train.examples(), held_out.examples(), options, serial, {});
  ASSERT_TRUE(gate.ok());
  EXPECT_GT(quality(*gate, info_of(train, 16), held_out.examples()).r2[0], 0.9);
}

TEST(FitMlp, AConstantLabelIsItsOwnFit) {
  const Data data = draw(200, 5, 2, 13, [](const std::vector<float>& x, int head) { return head == 0 ? -4.5F : x[0]; });
  SerialExecutor serial;
  const Result<LayerGate> gate = fit_mlp(data.examples(), data.examples(), {.width = 8, .batch = 32}, serial, {});
  ASSERT_TRUE(gate.ok());
  EXPECT_EQ(gate->b2[0], -4.5F);
  for (size_t unit = 0; unit < 8; ++unit)
    EXPECT_EQ(gate->w2[unit], 0);
}

TEST(Fits, RefuseRowsThatAreNotFinite) {
  const Data good = draw(50, 4, 2, 14, bent);
  SerialExecutor serial;
  Data bad = good;
  bad.y[2 * 17 + 1] = std::nanf("");
  Result<LayerGate> refused = fit_linear(bad.examples(), {.ridge = 1}, serial);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::failed);
  EXPECT_EQ(refused.error().message, "examples: row 17: the label of head 1 is not a finite number");
  refused = fit_mlp(good.examples(), bad.examples(), {.width = 4}, serial, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "held-out examples: row 17: the label of head 1 is not a finite number");
  bad = good;
  bad.x[4 * 9 + 2] = 0xFC00;  // -infinity
  bad.y[2 * 30] = -INFINITY;
  refused = fit_mlp(bad.examples(), good.examples(), {.width = 4}, serial, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "examples: row 9: input 2 is not a finite number");
  const Examples none{.n = 0, .n_embd = 4, .n_heads = 2};
  EXPECT_EQ(fit_linear(none, {}, serial).error().message, "examples: found no rows, at least one is needed");
}

TEST(Fits, ARateWithoutBoundsIsAnErrorAndNotAGateOfNaN) {
  const Data data = draw(200, 4, 2, 15, bent);
  SerialExecutor serial;
  const MlpOptions options{.width = 4, .epochs = 2, .rate = 1e30F, .batch = 10};
  const Result<LayerGate> refused = fit_mlp(data.examples(), data.examples(), options, serial, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("the rate is too high"), std::string::npos);
}

// The mean over rows and heads of (output - y)^2, by the plain loops in double.
double plain_loss(const Mlp& net, const std::vector<float>& x, const std::vector<float>& y) {
  const GateInfo info{.model = {.n_layers = 1, .n_embd = net.shape.n_embd, .n_kv_heads = net.shape.n_heads},
                      .width = net.shape.width};
  const std::vector<float> logits = gate_logits(info, to_layer_gate(net), x);
  double sum = 0;
  for (size_t i = 0; i < y.size(); ++i)
    sum += std::pow(double{logits[i]} - double{y[i]}, 2);
  return sum / static_cast<double>(y.size());
}

TEST(Mlp, GradientIsTheDifferenceOfTheLoss) {
  const MlpShape shape{.n_embd = 7, .width = 19, .n_heads = 3};  // two panels, 13 units of padding
  const int n = 5;
  Mlp net = first_weights(shape, 16);
  std::mt19937 random(17);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> x(7 * n);
  std::vector<float> y(3 * n);
  for (std::vector<float>* values : {&x, &y, &net.b2}) {
    for (float& one : *values)
      one = normal(random);
  }
  SerialExecutor serial;
  MlpPass pass(shape, n + 2);
  Mlp gradient(shape);
  pass.forward(net, x.data(), n, serial);
  EXPECT_NEAR(pass.loss(y.data(), n), plain_loss(net, x, y), 1e-5);
  pass.backward(net, x.data(), y.data(), n, gradient, serial, [](int) {});
  double largest = 0;
  for (const auto part : {&Mlp::w1, &Mlp::b1, &Mlp::w2, &Mlp::b2}) {
    for (size_t i = 0; i < (net.*part).size(); ++i) {
      const float kept = (net.*part)[i];
      const float step = 0x1p-7F;
      (net.*part)[i] = kept + step;
      const double above = plain_loss(net, x, y);
      (net.*part)[i] = kept - step;
      const double below = plain_loss(net, x, y);
      (net.*part)[i] = kept;
      const double slope = (above - below) / (2 * double{step});  // 0 of a unit past the width
      EXPECT_NEAR((gradient.*part)[i], slope, 2e-4) << i;
      largest = std::max(largest, std::abs(slope));
    }
  }
  EXPECT_GT(largest, 0.1) << "against which 2e-4 is little";
}

TEST(RankCorrelation, ByHand) {
  const float up[] = {1, 2, 3, 4};
  const float cubes[] = {1, 8, 27, 64};
  const float down[] = {9, 3, 2, -7};
  const float level[] = {5, 5, 5, 5};
  EXPECT_DOUBLE_EQ(rank_correlation(up, cubes), 1);
  EXPECT_DOUBLE_EQ(rank_correlation(up, down), -1);
  EXPECT_EQ(rank_correlation(up, level), 0);
  const float swapped[] = {2, 1, 4, 3};  // 1 - 6 * 4 / (4 * 15)
  EXPECT_DOUBLE_EQ(rank_correlation(up, swapped), 0.6);
  // Ranks 0, 1.5, 1.5, 3 against 0, 1, 2, 3: 4.5 / sqrt(4.5 * 5).
  const float tied[] = {1, 2, 2, 3};
  EXPECT_DOUBLE_EQ(rank_correlation(tied, up), 4.5 / std::sqrt(22.5));
  EXPECT_EQ(rank_correlation({}, {}), 0);
}

TEST(Quality, ByHand) {
  const Data data{.n = 3, .n_embd = 1, .n_heads = 2, .x = {half(1), half(2), half(3)}, .y = {1, 5, 2, 5, 6, 5}};
  const LayerGate gate{.w1 = {}, .b1 = {}, .w2 = {2, 0}, .b2 = {-1, 4}};  // logits 1, 3, 5 and 4, 4, 4
  const FitQuality found = quality(gate, info_of(data, 0), data.examples());
  EXPECT_FLOAT_EQ(found.r2[0], 1 - 2.0F / 14);  // errors 0, 1, 1; from the mean 3: 2, 1, 3
  EXPECT_FLOAT_EQ(found.spearman[0], 1);
  EXPECT_EQ(found.r2[1], 0) << "labels of one value have nothing to explain";
  EXPECT_EQ(found.spearman[1], 0);
}

}  // namespace
}  // namespace kedge::gate
