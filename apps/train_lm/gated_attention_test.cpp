#include "train_lm/gated_attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

namespace kedge::lm {
namespace {

using at::Tensor;

struct Inputs {
  Tensor q, k, v, u;
};

// Four query heads on two kv heads; more rows than two blocks of queries.
Inputs inputs_of(int64_t n) {
  at::manual_seed(7);
  const auto f64 = at::TensorOptions(at::kDouble);
  return {.q = at::randn({n, 4, 6}, f64).requires_grad_(true),
          .k = at::randn({n, 2, 6}, f64).requires_grad_(true),
          .v = at::randn({n, 2, 6}, f64).requires_grad_(true),
          .u = at::sigmoid(2 * at::randn({n, 2}, f64)).requires_grad_(true)};
}

double largest_difference(const Tensor& a, const Tensor& b) { return (a - b).abs().max().item<double>(); }

struct Case {
  int64_t n, window, sinks;
};

TEST(GatedAttention, ValuesAndGradientsAreThoseOfTheFormula) {
  for (const Case& c :
       {Case{150, 20, 3}, Case{150, 100, 0}, Case{70, 1, 69}, Case{64, 64, 4}, Case{5, 1, 0}, Case{200, 7, 80}}) {
    const GatedRows rows{.window = c.window, .sinks = c.sinks};
    const Inputs in = inputs_of(c.n);
    const Tensor weight = at::randn({c.n, 4 * 6}, in.q.options().requires_grad(false));
    const Tensor fast = gated_attention(in.q, in.k, in.v, in.u, rows);
    const Tensor plain = plain_gated_attention(in.q, in.k, in.v, in.u, rows);
    EXPECT_LT(largest_difference(fast, plain), 1e-12) << c.n << " " << c.window << " " << c.sinks;
    const auto gradient = [&](const Tensor& out) {
      return torch::autograd::grad({(out * weight).sum()}, {in.q, in.k, in.v, in.u});
    };
    const auto of_fast = gradient(fast);
    const auto of_plain = gradient(plain);
    for (size_t i = 0; i < of_fast.size(); ++i)
      EXPECT_LT(largest_difference(of_fast[i], of_plain[i]), 1e-11) << "input " << i << " of " << c.n;
    EXPECT_EQ(of_fast[3].abs().max().item<double>() > 1e-3, rows.n_gated(c.n) > 0)
        << "gates matter where there are any";
  }
}

TEST(GatedAttention, WithoutAGateItIsCausalAttention) {
  const Inputs in = inputs_of(130);
  const Tensor fast = gated_attention(in.q, in.k, in.v, Tensor(), {});
  const Tensor plain = plain_gated_attention(in.q, in.k, in.v, Tensor(), {});
  EXPECT_LT(largest_difference(fast, plain), 1e-12);
  const auto of_fast = torch::autograd::grad({fast.square().sum()}, {in.q, in.k, in.v});
  const auto of_plain = torch::autograd::grad({plain.square().sum()}, {in.q, in.k, in.v});
  for (size_t i = 0; i < of_fast.size(); ++i)
    EXPECT_LT(largest_difference(of_fast[i], of_plain[i]), 1e-11);
}

TEST(GatedAttention, ARowThatIsGoneIsNotReadButHasAGradient) {
  const GatedRows rows{.window = 8, .sinks = 2};
  Inputs in = inputs_of(80);
  const Tensor u = at::ones({80, 2}, in.u.options().requires_grad(false));
  u[30].fill_(0);
  const Tensor gone = u.clone().requires_grad_(true);
  const Tensor out = gated_attention(in.q, in.k, in.v, gone, rows);
  // Queries from 38 on are those of a text without row 30.
  const Tensor keep = at::cat({at::arange(0, 30, at::kLong), at::arange(31, 80, at::kLong)});
  const auto without = [&](const Tensor& x) { return x.index_select(0, keep); };
  const Tensor cut = gated_attention(without(in.q), without(in.k), without(in.v), Tensor(), rows);
  EXPECT_LT(largest_difference(out.slice(0, 38), cut.slice(0, 37)), 1e-12);
  EXPECT_GT(largest_difference(out.slice(0, 31, 38), cut.slice(0, 30, 37)), 1e-3) << "within the window it is read";
  // The gradient says what letting a little of it back in does.
  const Tensor by_u = torch::autograd::grad({out.sum()}, {gone})[0];
  const Tensor ajar = u.clone();
  ajar[30].fill_(1e-6);
  const double change = (gated_attention(in.q, in.k, in.v, ajar, rows).sum() - out.sum()).item<double>();
  EXPECT_NEAR(by_u[30].sum().item<double>(), change / 1e-6, 1e-3 * std::abs(change / 1e-6));
}

}  // namespace
}  // namespace kedge::lm
