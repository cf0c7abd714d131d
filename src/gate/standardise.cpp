#include "gate/standardise.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/check.h"

namespace kedge::gate {
namespace {

// Sums are kept for each block of rows and then added in order, so that threads can share the blocks.
constexpr int64_t kBlockRows = 2048;

// f64 [n_embd]: the sum over rows of `term(column, x)`.
template <typename Term>
std::vector<double> column_sums(const Examples& examples, Executor& executor, const Term& term) {
  const auto n_embd = static_cast<size_t>(examples.n_embd);
  const auto n_blocks = static_cast<size_t>((examples.n + kBlockRows - 1) / kBlockRows);
  std::vector<double> sums(n_blocks * n_embd);
  for_each_index(executor, static_cast<int>(n_blocks), [&](int block) {
    double* own = sums.data() + static_cast<size_t>(block) * n_embd;
    const int64_t end = std::min(examples.n, (block + 1) * kBlockRows);
    for (int64_t row = block * kBlockRows; row < end; ++row) {
      const uint16_t* x = examples.x.data() + static_cast<size_t>(row) * n_embd;
      for (size_t i = 0; i < n_embd; ++i)
        own[i] += term(i, double{widen(x[i])});
    }
  });
  for (size_t block = 1; block < n_blocks; ++block) {
    for (size_t i = 0; i < n_embd; ++i)
      sums[i] += sums[block * n_embd + i];
  }
  sums.resize(n_embd);
  return sums;
}

Columns columns_from(const std::vector<double>& mean, const std::vector<double>& squares, int64_t n) {
  Columns out;
  for (size_t i = 0; i < mean.size(); ++i) {
    // Below this a column's spread is what rounding leaves of a constant.
    const double variance = squares[i] / static_cast<double>(n);
    const bool constant = variance <= 1e-14 * mean[i] * mean[i];
    out.mean.push_back(static_cast<float>(mean[i]));
    out.scale.push_back(constant ? 0.0F : static_cast<float>(1 / std::sqrt(variance)));
  }
  return out;
}

}  // namespace

Status check_examples(const Examples& examples, const char* name) {
  const auto n = static_cast<size_t>(examples.n);
  const auto n_embd = static_cast<size_t>(examples.n_embd);
  const auto n_heads = static_cast<size_t>(examples.n_heads);
  check(examples.n >= 0 && examples.n_embd > 0 && examples.n_heads > 0, "examples: shape");
  check(examples.x.size() == n * n_embd && examples.y.size() == n * n_heads, "examples: sizes of x and y");
  if (n == 0)
    return Error{ErrorCode::failed, std::string(name) + ": found no rows, at least one is needed"};
  const auto finite = [](uint16_t half) { return (half & 0x7C00U) != 0x7C00U; };
  const auto refuse = [&](size_t row, const std::string& what) {
    return Error{ErrorCode::failed,
                 std::string(name) + ": row " + std::to_string(row) + ": " + what + " is not a finite number"};
  };
  for (size_t row = 0; row < n; ++row) {
    const std::span<const uint16_t> x = examples.x.subspan(row * n_embd, n_embd);
    if (!std::all_of(x.begin(), x.end(), finite)) {
      const auto input = std::find_if_not(x.begin(), x.end(), finite) - x.begin();
      return refuse(row, "input " + std::to_string(input));
    }
    for (size_t head = 0; head < n_heads; ++head) {
      if (!std::isfinite(examples.y[row * n_heads + head]))
        return refuse(row, "the label of head " + std::to_string(head));
    }
  }
  return {};
}

Columns input_columns(const Examples& examples, Executor& executor) {
  std::vector<double> mean = column_sums(examples, executor, [](size_t, double x) { return x; });
  for (double& one : mean)
    one /= static_cast<double>(examples.n);
  const std::vector<double> squares = column_sums(examples, executor, [&](size_t i, double x) {
    const double from_mean = x - mean[i];
    return from_mean * from_mean;
  });
  return columns_from(mean, squares, examples.n);
}

Columns label_columns(const Examples& examples) {
  const auto n_heads = static_cast<size_t>(examples.n_heads);
  std::vector<double> mean(n_heads);
  std::vector<double> squares(n_heads);
  for (size_t i = 0; i < examples.y.size(); ++i)
    mean[i % n_heads] += double{examples.y[i]} / static_cast<double>(examples.n);
  for (size_t i = 0; i < examples.y.size(); ++i) {
    const double from_mean = double{examples.y[i]} - mean[i % n_heads];
    squares[i % n_heads] += from_mean * from_mean;
  }
  return columns_from(mean, squares, examples.n);
}

void standardise_input(const Examples& examples, int64_t row, const Columns& columns, float* out) {
  const uint16_t* x = examples.x.data() + row * examples.n_embd;
  const float* mean = columns.mean.data();
  const float* scale = columns.scale.data();
  for (int i = 0; i < examples.n_embd; ++i)
    out[i] = (widen(x[i]) - mean[i]) * scale[i];
}

void standardise_label(const Examples& examples, int64_t row, const Columns& columns, float* out) {
  const float* y = examples.y.data() + row * examples.n_heads;
  for (int head = 0; head < examples.n_heads; ++head) {
    const auto i = static_cast<size_t>(head);
    out[head] = (y[head] - columns.mean[i]) * columns.scale[i];
  }
}

}  // namespace kedge::gate
