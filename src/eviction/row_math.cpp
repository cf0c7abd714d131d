#include "eviction/row_math.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace kedge::eviction {
namespace {

constexpr int kLanes = kBlockRows;
constexpr int kRowsAtOnce = 256;  // of the values that meet a slice of W_O: 128 KiB at 128 dimensions

// Rows in one block, dimension by dimension: f32 [head_dim][kLanes], zeros behind the last row.
class Turned {
 public:
  Turned(const KvHeadView& rows, Part part)
      : rows_(rows),
        part_(part),
        flat_(static_cast<size_t>(rows.head_dim) * kLanes),
        lanes_(static_cast<size_t>(rows.head_dim) * kLanes) {}

  const float* read(int32_t begin) {
    const int32_t n = std::min(rows_.n_rows - begin, kLanes);
    read_rows(rows_, begin, begin + n, part_ == Part::keys ? flat_.data() : nullptr,
              part_ == Part::values ? flat_.data() : nullptr);
    std::fill(lanes_.begin(), lanes_.end(), 0.0F);
    for (int32_t r = 0; r < n; ++r) {
      for (int32_t j = 0; j < rows_.head_dim; ++j)
        lanes_[static_cast<size_t>(j * kLanes + r)] = flat_[static_cast<size_t>(r * rows_.head_dim + j)];
    }
    return lanes_.data();
  }

 private:
  const KvHeadView& rows_;
  Part part_;
  std::vector<float> flat_, lanes_;
};

// out[r] = sum over j of x[j] * lanes[j][r]
void multiply(const float* x, const float* lanes, int dim, float* out) {
  float acc[kLanes] = {};
  for (int j = 0; j < dim; ++j) {
    for (int r = 0; r < kLanes; ++r)
      acc[r] += x[j] * lanes[j * kLanes + r];
  }
  std::copy_n(acc, kLanes, out);
}

// Calls use(begin, n, lanes) for every block of rows.
template <typename Function>
void for_blocks(const KvHeadView& rows, Part part, const Function& use) {
  Turned turned(rows, part);
  for (int32_t begin = 0; begin < rows.n_rows; begin += kLanes)
    use(begin, std::min(rows.n_rows - begin, kLanes), turned.read(begin));
}

// sum[r] += ||w^T v[r]||_1;  v f32 [sum.size()][head_dim], w f32 [head_dim][n_embd]. kLanes columns of w at a time.
void add_projections(const float* v, std::span<const float> w, int head_dim, std::span<float> sum) {
  const size_t dim = static_cast<size_t>(head_dim);
  const size_t n_embd = w.size() / dim;
  std::vector<float> slice(dim * kLanes);
  for (size_t first = 0; first < n_embd; first += kLanes) {
    std::fill(slice.begin(), slice.end(), 0.0F);
    for (size_t j = 0; j < dim; ++j)
      std::copy_n(w.data() + j * n_embd + first, std::min<size_t>(n_embd - first, kLanes), &slice[j * kLanes]);
    for (size_t r = 0; r < sum.size(); ++r) {
      float product[kLanes];
      multiply(v + r * dim, slice.data(), head_dim, product);
      for (const float x : product)
        sum[r] += std::abs(x);
    }
  }
}

}  // namespace

std::vector<float> row_norms(const KvHeadView& rows, Part part, Norm norm) {
  std::vector<float> norms(static_cast<size_t>(rows.n_rows));
  for_blocks(rows, part, [&](int32_t begin, int32_t n, const float* lanes) {
    float acc[kLanes] = {};
    for (int j = 0; j < rows.head_dim; ++j) {
      for (int r = 0; r < kLanes; ++r) {
        const float x = lanes[j * kLanes + r];
        acc[r] += norm == Norm::l1 ? std::abs(x) : x * x;
      }
    }
    for (int32_t r = 0; r < n; ++r)
      norms[static_cast<size_t>(begin + r)] = norm == Norm::l2 ? std::sqrt(acc[r]) : acc[r];
  });
  return norms;
}

void key_products(const KvHeadView& rows, const float* x, int n, float factor, std::span<float> out) {
  for_blocks(rows, Part::keys, [&](int32_t begin, int32_t n_here, const float* lanes) {
    float product[kLanes];
    for (int m = 0; m < n; ++m) {
      multiply(x + static_cast<ptrdiff_t>(m) * rows.head_dim, lanes, rows.head_dim, product);
      float* to = out.data() + static_cast<ptrdiff_t>(m) * rows.n_rows + begin;
      for (int32_t r = 0; r < n_here; ++r)
        to[r] = factor * product[r];
    }
  });
}

void add_output_errors(const KvHeadView& rows, const OutputErrors& errors, std::span<float> sum) {
  for_blocks(rows, Part::values, [&](int32_t begin, int32_t n, const float* lanes) {
    for (int m = 0; m < errors.n; ++m) {
      const float* y = errors.y + static_cast<ptrdiff_t>(m) * rows.head_dim;
      const ptrdiff_t at = static_cast<ptrdiff_t>(m) * rows.n_rows + begin;
      float lean[kLanes];
      std::fill_n(lean, kLanes, 1.0F);
      if (errors.lean != nullptr)
        std::copy_n(errors.lean + at, n, lean);
      float acc[kLanes] = {};
      for (int j = 0; j < rows.head_dim; ++j) {
        for (int r = 0; r < kLanes; ++r) {
          const float v = lanes[j * kLanes + r];
          const float e = errors.own * v + lean[r] * (v - y[j]);
          acc[r] += e * e;
        }
      }
      for (int32_t r = 0; r < n; ++r)
        sum[static_cast<size_t>(begin + r)] += errors.weight[at + r] * acc[r];
    }
  });
}

double unit_mean(const HeadInput& in, std::span<const float> values) {
  double sum = 0;
  int64_t n = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!in.is_protected.empty() && in.is_protected[i] != 0)
      continue;
    sum += static_cast<double>(values[i]);
    ++n;
  }
  return sum > 0 ? static_cast<double>(n) / sum : 0;
}

std::vector<float> projected_norms(const HeadInput& in) {
  const KvHeadView& rows = in.rows;
  std::vector<float> norms(static_cast<size_t>(rows.n_rows), 0.0F);
  if (rows.n_rows == 0)
    return norms;
  check(in.w_o != nullptr && in.n_embd > 0, "a scorer that projects values needs the output weights");
  const size_t dim = static_cast<size_t>(rows.head_dim);
  const size_t width = static_cast<size_t>(in.n_embd);
  std::vector<float> v(static_cast<size_t>(std::min(rows.n_rows, kRowsAtOnce)) * dim);
  for (int32_t begin = 0; begin < rows.n_rows; begin += kRowsAtOnce) {
    const int32_t n = std::min(rows.n_rows - begin, kRowsAtOnce);
    read_rows(rows, begin, begin + n, nullptr, v.data());
    const auto sum = std::span(norms).subspan(static_cast<size_t>(begin), static_cast<size_t>(n));
    for (size_t g = 0; g < static_cast<size_t>(in.group); ++g)
      add_projections(v.data(), {in.w_o + g * dim * width, dim * width}, rows.head_dim, sum);
  }
  for (float& norm : norms)
    norm /= static_cast<float>(in.group);
  return norms;
}

std::vector<float> unit_keys(const KvHeadView& rows) {
  const size_t dim = static_cast<size_t>(rows.head_dim);
  std::vector<float> keys(static_cast<size_t>(rows.n_rows) * dim);
  read_rows(rows, 0, rows.n_rows, keys.data(), nullptr);
  const std::vector<float> norms = row_norms(rows, Part::keys, Norm::l2);
  for (size_t i = 0; i < norms.size(); ++i) {
    const float factor = norms[i] > 0 ? 1 / norms[i] : 0;
    for (size_t j = 0; j < dim; ++j)
      keys[i * dim + j] *= factor;
  }
  return keys;
}

std::vector<float> key_redundancy(const KvHeadView& rows, float threshold) {
  const size_t dim = static_cast<size_t>(rows.head_dim);
  const int32_t n_rows = rows.n_rows;
  std::vector<float> mean(static_cast<size_t>(n_rows), 0.0F);
  const std::vector<float> keys = unit_keys(rows);
  std::vector<uint8_t> has_last(static_cast<size_t>(n_rows), 0);  // the last similar row has been met
  std::vector<float> lanes(dim * kLanes);
  for (int32_t begin = (n_rows - 1) / kLanes * kLanes; n_rows > 0 && begin >= 0; begin -= kLanes) {  // newest first
    const int32_t n = std::min(n_rows - begin, kLanes);
    std::fill(lanes.begin(), lanes.end(), 0.0F);
    for (int32_t r = 0; r < n; ++r) {
      for (size_t j = 0; j < dim; ++j)
        lanes[j * kLanes + static_cast<size_t>(r)] = keys[static_cast<size_t>(begin + r) * dim + j];
    }
    float sum[kLanes] = {};
    for (int32_t m = 0; m < n_rows; ++m) {
      float cosine[kLanes];
      multiply(keys.data() + static_cast<size_t>(m) * dim, lanes.data(), rows.head_dim, cosine);
      if (m >= begin && m < begin + n)
        cosine[m - begin] = 0;
      for (int32_t r = n - 1; r >= 0 && has_last[static_cast<size_t>(m)] == 0; --r) {
        if (cosine[r] <= threshold)
          continue;
        cosine[r] = 0;
        has_last[static_cast<size_t>(m)] = 1;
      }
      for (int r = 0; r < kLanes; ++r)
        sum[r] += cosine[r];
    }
    for (int32_t r = 0; r < n; ++r)
      mean[static_cast<size_t>(begin + r)] = sum[r] / static_cast<float>(n_rows);
  }
  return mean;
}

}  // namespace kedge::eviction
