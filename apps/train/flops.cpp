#include "train/flops.h"

#include <cstdio>

namespace kedge::train {
namespace {

double linear_flops(const model::HyperParams& of, int64_t n) {
  const int64_t n_embd = of.n_embd;
  const int64_t heads = int64_t{of.n_heads} * of.head_dim;
  const int64_t kv_heads = int64_t{of.n_kv_heads} * of.head_dim;
  const auto products = static_cast<double>(n_embd * (2 * heads + 2 * kv_heads) + 3 * n_embd * of.n_ff);
  return 2 * products * static_cast<double>(n * of.n_layers);
}

// Two products with every row up to the query's own.
double attention_flops(const model::HyperParams& of, int64_t n) {
  const double rows = static_cast<double>(n) * static_cast<double>(n + 1) / 2;
  return 4 * static_cast<double>(int64_t{of.n_heads} * of.head_dim * of.n_layers) * rows;
}

}  // namespace

double full_reading_flops(const model::HyperParams& of, int64_t n) {
  return linear_flops(of, n) + attention_flops(of, n);
}

double pass_flops(const model::HyperParams& of, const PassWork& work) {
  const double forward = full_reading_flops(of, work.n);
  // Frozen weights have no gradient of their own: going back is one product for each of the way there; attention's
  // two products are made once again and have four gradients of that size, two of them of rows.
  const double back = linear_flops(of, work.n) + 2.5 * attention_flops(of, work.n);
  const double gate =
      3 * 2 * static_cast<double>(work.n * (work.width > 0 ? work.width : of.n_kv_heads) * of.n_embd * of.n_layers);
  const double output = 2 * static_cast<double>(int64_t{of.n_embd} * of.n_vocab) * static_cast<double>(work.n_counted);
  return forward * (1 + (work.full ? 1 : 0) + (work.recompute ? 1 : 0)) + back + gate +
         output * (work.from_full ? 3 : 2);
}

double label_flops(const model::HyperParams& of, int64_t n, bool repeats) {
  return full_reading_flops(of, repeats ? 2 * n : n);
}

double fit_flops(const model::HyperParams& of, int width, int64_t n_rows, int epochs) {
  // There, and back with the gradients of the weights: three products for each of the network's, less that of x.
  const double products = static_cast<double>(int64_t{width} * (2 * of.n_embd + 3 * of.n_kv_heads) * of.n_layers);
  return 2 * products * static_cast<double>(n_rows) * epochs;
}

double own_training_flops(int64_t n_params) {
  const auto n = static_cast<double>(n_params);
  return 6 * n * (20 * n);
}

std::string effort_line(double flops, double seconds, int64_t n_params) {
  const double own = own_training_flops(n_params);
  char line[256];
  std::snprintf(line, sizeof line,
                "%.2e FLOP in %.0f s (%.1f GFLOP/s), %.2g %% of the model's own training, estimated as 6 x %.0f M "
                "parameters x 20 tokens a parameter = %.2e FLOP",
                flops, seconds, seconds > 0 ? flops / seconds / 1e9 : 0, 100 * flops / own,
                static_cast<double>(n_params) / 1e6, own);
  return line;
}

}  // namespace kedge::train
