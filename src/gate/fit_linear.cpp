// Ridge regression by the normal equations: X'^T X' and X'^T y in f32 for each block of rows, the blocks summed in
// double, one Cholesky factorisation for all heads.
#include <algorithm>
#include <cmath>
#include <string>

#include "base/check.h"
#include "gate/fit.h"
#include "gate/gemm.h"
#include "gate/standardise.h"

namespace kedge::gate {
namespace {

constexpr int kBlockRows = 256;   // a block's inputs stay in the second cache
constexpr int kStripe = 48;       // rows of X'^T X' that one thread makes at a time
constexpr int kRowsAtOnce = 32;   // rows that one thread standardises at a time
constexpr double kPivot = 1e-10;  // of a correlation matrix, whose diagonal is 1: below it a column is of others

struct Normal {
  std::vector<double> xtx;  // f64 [n_embd][n_embd], upper triangle: correlations
  std::vector<double> xty;  // f64 [n_embd][n_heads]
};

struct Block {
  int n = 0;
  std::vector<float> x;  // f32 [kBlockRows][n_embd], standardised
  std::vector<float> y;  // f32 [kBlockRows][n_heads], less their means
};

void fill(Block& block, const Examples& examples, int64_t first, const Columns& inputs, const Columns& labels,
          Executor& executor) {
  block.n = static_cast<int>(std::min<int64_t>(kBlockRows, examples.n - first));
  for_each_index(executor, (block.n + kRowsAtOnce - 1) / kRowsAtOnce, [&](int part) {
    for (int row = part * kRowsAtOnce; row < std::min(block.n, (part + 1) * kRowsAtOnce); ++row) {
      standardise_input(examples, first + row, inputs, block.x.data() + int64_t{row} * examples.n_embd);
      standardise_label(examples, first + row, labels, block.y.data() + int64_t{row} * examples.n_heads);
    }
  });
}

// Rows [first, first + kStripe) of both products, from one block. scratch f32 [kStripe][max(n_embd, n_heads)].
void add_stripe(const Block& block, const Examples& examples, int first, float* scratch, Normal& sums) {
  const int n_embd = examples.n_embd;
  const int n_heads = examples.n_heads;
  const int m = std::min(kStripe, n_embd - first);
  const int n = n_embd - first;
  const float* a = block.x.data() + first;
  gemm({.m = m,
        .n = n,
        .k = block.n,
        .a = a,
        .a_row = 1,
        .a_column = n_embd,
        .b = a,
        .b_row = n_embd,
        .c = scratch,
        .c_row = n});
  for (int i = 0; i < m; ++i) {
    double* sum = sums.xtx.data() + int64_t{first + i} * n_embd + first;
    for (int j = 0; j < n; ++j)
      sum[j] += double{scratch[int64_t{i} * n + j]};
  }
  gemm({.m = m,
        .n = n_heads,
        .k = block.n,
        .a = a,
        .a_row = 1,
        .a_column = n_embd,
        .b = block.y.data(),
        .b_row = n_heads,
        .c = scratch,
        .c_row = n_heads});
  double* sum = sums.xty.data() + int64_t{first} * n_heads;
  for (int i = 0; i < m * n_heads; ++i)
    sum[i] += double{scratch[i]};
}

// Both divided by the number of rows.
Normal normal_equations(const Examples& examples, const Columns& inputs, const Columns& labels, Executor& executor) {
  const auto n_embd = static_cast<size_t>(examples.n_embd);
  const auto n_heads = static_cast<size_t>(examples.n_heads);
  const int n_stripes = (examples.n_embd + kStripe - 1) / kStripe;
  const size_t scratch_size = kStripe * std::max(n_embd, n_heads);
  Normal out{.xtx = std::vector<double>(n_embd * n_embd), .xty = std::vector<double>(n_embd * n_heads)};
  Block block{.x = std::vector<float>(kBlockRows * n_embd), .y = std::vector<float>(kBlockRows * n_heads)};
  std::vector<float> scratch(static_cast<size_t>(n_stripes) * scratch_size);
  for (int64_t first = 0; first < examples.n; first += kBlockRows) {
    fill(block, examples, first, inputs, labels, executor);
    for_each_index(executor, n_stripes, [&](int stripe) {
      add_stripe(block, examples, stripe * kStripe, scratch.data() + static_cast<size_t>(stripe) * scratch_size, out);
    });
  }
  for (std::vector<double>* sums : {&out.xtx, &out.xty}) {
    for (double& one : *sums)
      one /= static_cast<double>(examples.n);
  }
  return out;
}

// a f64 [n][n], upper triangle := U with U^T U = a. False where a pivot is not above kPivot.
bool cholesky(std::vector<double>& a, size_t n) {
  for (size_t k = 0; k < n; ++k) {
    double* pivot = a.data() + k * n;
    if (!(pivot[k] > kPivot))
      return false;
    const double root = std::sqrt(pivot[k]);
    for (size_t j = k; j < n; ++j)
      pivot[j] /= root;
    for (size_t i = k + 1; i < n; ++i) {
      double* row = a.data() + i * n;
      const double factor = pivot[i];
      for (size_t j = i; j < n; ++j)
        row[j] -= factor * pivot[j];
    }
  }
  return true;
}

// b f64 [n][n_right] := x with U^T U x = b.
void solve(const std::vector<double>& u, size_t n, std::vector<double>& b, size_t n_right) {
  for (size_t right = 0; right < n_right; ++right) {
    for (size_t i = 0; i < n; ++i) {
      b[i * n_right + right] /= u[i * n + i];
      for (size_t j = i + 1; j < n; ++j)
        b[j * n_right + right] -= u[i * n + j] * b[i * n_right + right];
    }
    for (size_t i = n; i-- > 0;) {
      for (size_t j = i + 1; j < n; ++j)
        b[i * n_right + right] -= u[i * n + j] * b[j * n_right + right];
      b[i * n_right + right] /= u[i * n + i];
    }
  }
}

// w f64 [n_embd][n_heads], for standardised inputs.
LayerGate fold(const std::vector<double>& w, const Columns& inputs, const Columns& labels) {
  const size_t n_heads = labels.mean.size();
  LayerGate out;
  for (size_t head = 0; head < n_heads; ++head) {
    double offset = double{labels.mean[head]};
    for (size_t i = 0; i < inputs.mean.size(); ++i) {
      const double own = w[i * n_heads + head] * double{inputs.scale[i]};
      out.w2.push_back(static_cast<float>(own));
      offset -= own * double{inputs.mean[i]};
    }
    out.b2.push_back(static_cast<float>(offset));
  }
  return out;
}

}  // namespace

Result<LayerGate> fit_linear(const Examples& examples, const LinearOptions& options, Executor& executor) {
  check(options.ridge >= 0, "fit_linear: ridge");
  if (Status usable = check_examples(examples, "examples"); !usable)
    return usable.error();
  const auto n_embd = static_cast<size_t>(examples.n_embd);
  const Columns inputs = input_columns(examples, executor);
  Columns labels = label_columns(examples);
  std::fill(labels.scale.begin(), labels.scale.end(), 1.0F);
  Normal sums = normal_equations(examples, inputs, labels, executor);
  for (size_t i = 0; i < n_embd; ++i) {
    double& diagonal = sums.xtx[i * n_embd + i];
    // A constant column is all zeros by now: any diagonal gives it the weight 0.
    diagonal = inputs.scale[i] == 0 ? 1 : diagonal + options.ridge;
  }
  if (!cholesky(sums.xtx, n_embd)) {
    return Error{ErrorCode::failed, "examples: inputs that depend on each other: found the ridge " +
                                        std::to_string(options.ridge) + ", a larger one is needed"};
  }
  solve(sums.xtx, n_embd, sums.xty, static_cast<size_t>(examples.n_heads));
  return fold(sums.xty, inputs, labels);
}

}  // namespace kedge::gate
