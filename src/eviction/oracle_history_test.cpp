// Oracles of the scorers that need more than the last queries: attention sums, moments of the queries, a
// reconstruction, draws (eviction/oracle.h).
#include <algorithm>
#include <cmath>
#include <complex>
#include <numeric>

#include "eviction/oracle.h"

namespace kedge::eviction {
namespace {

using Complex = std::complex<double>;

bool is_on(const OptionValues& options, const char* name) { return options.choices.at(name) == "on"; }

// ---- h2o, kvzip, gate, echo, hybrid ------------------------------------------------------------------------------
std::vector<double> h2o(const PlainHead& head, const OptionValues& options) {
  std::vector<double> score;
  for (int i = 0; i < head.n_rows; ++i) {
    const double n_seen = options.choices.at("norm") == "seen" ? head.n_tokens - head.position[i] : 1;
    score.push_back(head.in->attention_sum[i] / n_seen);
  }
  return score;
}
const AddOracle kH2o("h2o", h2o);

std::vector<double> kvzip(const PlainHead& head, const OptionValues&) {
  std::vector<double> score;
  for (int i = 0; i < head.n_rows; ++i) {
    const double seen = head.in->reconstruction[i];
    score.push_back(seen > 0 ? seen : 1 + double(head.position[i]) / head.n_tokens);
  }
  return score;
}
const AddOracle kKvZip("kvzip", kvzip);

std::vector<double> gate(const PlainHead& head, const OptionValues&) {
  std::vector<double> score;
  for (int i = 0; i < head.n_rows; ++i)
    score.push_back(0.5 * (1 + std::tanh(head.in->gate[i] / 2.0)));
  return score;
}
const AddOracle kGate("gate", gate);

// What a number is worth: its part of the sum over unprotected rows, times how many they are.
std::vector<double> by_mean(const PlainHead& head, const std::vector<double>& x) {
  double sum = 0;
  int n = 0;
  for (int i = 0; i < head.n_rows; ++i) {
    sum += head.is_protected[i] ? 0 : x[i];
    n += head.is_protected[i] ? 0 : 1;
  }
  std::vector<double> out(x.size(), 0.0);
  for (size_t i = 0; i < x.size() && sum > 0; ++i)
    out[i] = n * x[i] / sum;
  return out;
}

std::vector<double> echo(const PlainHead& head, const OptionValues& options) {
  const auto n = static_cast<size_t>(head.n_rows);
  std::vector<double> anchor(n, 0.0);
  for (int t = 0; t < head.n_window; ++t) {
    for (int g = 0; g < head.group; ++g) {
      std::vector<double> a(n);
      for (size_t i = 0; i < n; ++i)
        a[i] = head.weight(t, g, static_cast<int>(i));
      a = max_pooled(a, static_cast<int>(options.numbers.at("pool")));
      for (size_t i = 0; i < n; ++i)
        anchor[i] += a[i] * dot(head.output(t, g), head.value(static_cast<int>(i)), head.dim);
    }
  }
  for (double& one : anchor)
    one = std::max(one, 0.0);
  const std::vector<double> echoes = by_mean(head, {head.in->echo.begin(), head.in->echo.end()});
  const std::vector<double> past = by_mean(head, {head.in->past.begin(), head.in->past.end()});
  anchor = by_mean(head, anchor);
  std::vector<double> score(n);
  for (size_t i = 0; i < n; ++i)
    score[i] = echoes[i] + options.numbers.at("past") * past[i] + options.numbers.at("anchor") * anchor[i];
  return score;
}
const AddOracle kEcho("echo", echo);

std::vector<double> hybrid(const PlainHead& head, const OptionValues& options) {
  std::vector<double> seen = oracle_scores_of_base(head, options);
  std::vector<double> learned;
  for (int i = 0; i < head.n_rows; ++i) {
    seen[i] = std::max(seen[i], 0.0);
    learned.push_back(std::exp(std::min(static_cast<double>(head.in->gate[i]), 30.0)));
  }
  seen = by_mean(head, seen);
  if (options.choices.at("mix") == "product") {
    for (int i = 0; i < head.n_rows; ++i)
      seen[i] = head.in->gate[i] + options.numbers.at("weight") * std::log(std::max(seen[i], 1e-3));
    return seen;
  }
  learned = by_mean(head, learned);
  for (int i = 0; i < head.n_rows; ++i)
    seen[i] += options.numbers.at("weight") * learned[i];
  return seen;
}
const AddOracle kHybrid("hybrid", hybrid);

// ---- expected ----------------------------------------------------------------------------------------------------
// Mean rotation of the given positions as a matrix f64 [dim][dim], magnitude included.
std::vector<double> mean_rotation(const PlainHead& head, const std::vector<double>& positions) {
  const Rotation& rotation = *head.in->rotation;
  std::vector<double> matrix(static_cast<size_t>(head.dim) * head.dim, 0.0);
  for (int j = 0; j < rotation.n_pairs(); ++j) {
    double cosine = 0;
    double sine = 0;
    for (const double p : positions) {
      cosine += std::cos(rotation.frequency[j] * p) * rotation.magnitude / static_cast<double>(positions.size());
      sine += std::sin(rotation.frequency[j] * p) * rotation.magnitude / static_cast<double>(positions.size());
    }
    const int a = rotation.first(j);
    const int b = rotation.second(j);
    matrix[a * head.dim + a] = matrix[b * head.dim + b] = cosine;
    matrix[a * head.dim + b] = -sine;
    matrix[b * head.dim + a] = sine;
  }
  return matrix;
}

std::vector<double> times(const std::vector<double>& matrix, const std::vector<double>& x, bool is_transposed) {
  const size_t n = x.size();
  std::vector<double> out(n, 0.0);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j)
      out[i] += (is_transposed ? matrix[j * n + i] : matrix[i * n + j]) * x[j];
  }
  return out;
}

// Logit of one row: s k.(R m) + s^2/2 (R^T k)^T S (R^T k)
double expected_logit(const PlainHead& head, const std::vector<double>& rotation, int g, int row, bool has_covariance) {
  const QueryMoments& moments = *head.in->moments;
  const size_t d = head.dim;
  const auto n = static_cast<double>(moments.n_queries);
  const std::vector<double> k = times(rotation, {head.key(row), head.key(row) + d}, true);
  double linear = 0;
  double square = 0;
  for (size_t i = 0; i < d; ++i) {
    linear += k[i] * moments.sum[g * d + i] / n;
    for (size_t j = 0; j < d && has_covariance; ++j) {
      const double covariance =
          moments.outer[(g * d + i) * d + j] / n - moments.sum[g * d + i] * moments.sum[g * d + j] / n / n;
      square += k[i] * covariance * k[j];
    }
  }
  return head.scale * linear + head.scale * head.scale / 2 * square;
}

std::vector<double> expected(const PlainHead& head, const OptionValues& options) {
  std::vector<double> positions;
  for (int p = 0; p < static_cast<int>(options.numbers.at("future")); ++p)
    positions.push_back(head.n_tokens + p);
  const std::vector<double> rotation = mean_rotation(head, positions);
  int first = 0;
  while (first < head.n_rows && head.is_protected[first])
    ++first;
  first = first == head.n_rows ? 0 : first;
  std::vector<double> score(head.n_rows, 0.0);
  for (int g = 0; g < head.group; ++g) {
    std::vector<double> logit;
    for (int i = 0; i < head.n_rows; ++i)
      logit.push_back(expected_logit(head, rotation, g, i, is_on(options, "covariance")));
    const std::vector<double> weight = softmax_of({logit.begin() + first, logit.end()});
    for (int i = first; i < head.n_rows; ++i)
      score[i] += weight[i - first] / head.group;  // rows before `first` are protected
  }
  for (int i = 0; i < head.n_rows; ++i) {
    score[i] += options.numbers.at("epsilon");
    score[i] *= is_on(options, "vnorm") ? l2_norm(head.value(i), head.dim) : 1;
  }
  return score;
}
const AddOracle kExpected("expected", expected);

// ---- triattention ------------------------------------------------------------------------------------------------
// Straight from the series: lengths, angles and distances of keys before their rotation.
double series(const PlainHead& head, const OptionValues& options, int g, int row) {
  const Rotation& rotation = *head.in->rotation;
  const QueryMoments& moments = *head.in->moments;
  double sum = 0;
  for (int f = 0; f < rotation.n_pairs(); ++f) {
    const int a = rotation.first(f);
    const int b = rotation.second(f);
    const Complex mean =
        Complex(moments.sum[g * head.dim + a], moments.sum[g * head.dim + b]) / static_cast<double>(moments.n_queries);
    const Complex rotated(head.key(row)[a], head.key(row)[b]);
    const double angle = std::arg(rotated) - double{rotation.frequency[f]} * head.position[row];  // before rotation
    int n_offsets = 0;
    double part = 0;
    for (int64_t offset = 1; offset <= static_cast<int64_t>(options.numbers.at("offsets")); offset *= 2, ++n_offsets) {
      const double distance = static_cast<double>(head.n_tokens + offset) - head.position[row];
      part += std::abs(mean) * std::abs(rotated) *
              std::cos(double{rotation.frequency[f]} * distance + std::arg(mean) - angle);
    }
    sum += rotation.magnitude * part / n_offsets;
    const double length = moments.length[g * rotation.n_pairs() + f] / static_cast<double>(moments.n_queries);
    if (is_on(options, "length"))
      sum += rotation.magnitude * (length - std::abs(mean)) * std::abs(rotated);
  }
  return sum;
}

std::vector<double> triattention(const PlainHead& head, const OptionValues& options) {
  std::vector<double> score(head.n_rows, options.choices.at("group") == "max" ? -1e300 : 0);
  for (int g = 0; g < head.group; ++g) {
    std::vector<double> s;
    for (int i = 0; i < head.n_rows; ++i)
      s.push_back(series(head, options, g, i));
    const double mean = std::accumulate(s.begin(), s.end(), 0.0) / head.n_rows;
    double square = 0;
    for (const double x : s)
      square += (x - mean) * (x - mean) / head.n_rows;
    for (int i = 0; i < head.n_rows; ++i) {
      const double standard = (s[i] - mean) / std::max(std::sqrt(square), 1e-6);
      score[i] = options.choices.at("group") == "max" ? std::max(score[i], standard) : score[i] + standard / head.group;
    }
  }
  return score;
}
const AddOracle kTriAttention("triattention", triattention);

// ---- fastgen, duo ------------------------------------------------------------------------------------------------
std::vector<double> fastgen(const PlainHead& head, const OptionValues& options) {
  const int n = head.n_rows;
  const auto& sum = head.in->attention_sum;
  std::vector<double> score;
  for (int i = 0; i < n; ++i) {
    int rank = 0;  // rows with more attention
    for (int j = 0; j < n; ++j)
      rank += sum[j] > sum[i] || (sum[j] == sum[i] && j < i) ? 1 : 0;
    const int kind = head.in->token_kinds[head.position[i]];
    const bool is_frequent = rank < std::floor(options.numbers.at("frequent") * n + 0.5);
    const bool is_local = n - i <= std::floor(options.numbers.at("local") * n + 0.5);
    const bool is_named = (kind & (kSpecialToken | kPunctuationToken)) != 0;
    const double by_attention = double(n - 1 - rank) / n;
    if (is_named)
      score.push_back(((kind & kSpecialToken) != 0 ? 4 : 3) + by_attention);
    else if (is_frequent)
      score.push_back(2 + by_attention);
    else
      score.push_back(is_local ? 1 + double(head.position[i]) / head.n_tokens : by_attention);
  }
  return score;
}
const AddOracle kFastGen("fastgen", fastgen);

// Without a file of roles: all are retrieval heads.
std::vector<double> duo(const PlainHead& head, const OptionValues&) {
  std::vector<double> score(head.n_rows, 0.0);
  for (int i = 0; i < head.n_rows; ++i) {
    for (int t = 0; t < head.n_window; ++t) {
      for (int g = 0; g < head.group; ++g)
        score[i] += head.weight(t, g, i) / (head.n_window * head.group);
    }
  }
  return score;
}
const AddOracle kDuo("duo", duo);

// ---- vase --------------------------------------------------------------------------------------------------------
uint64_t splitmix(uint64_t state) {
  state += 0x9E3779B97F4A7C15U;
  state ^= state >> 30;
  state *= 0xBF58476D1CE4E5B9U;
  state ^= state >> 27;
  state *= 0x94D049BB133111EBU;
  return state ^ state >> 31;
}

double gumbel(const PlainHead& head, int position) {
  const uint64_t place = static_cast<uint64_t>(head.layer) * 4294967296U + static_cast<uint64_t>(head.head);
  const uint64_t what = static_cast<uint64_t>(head.n_tokens) * 4294967296U + static_cast<uint64_t>(position);
  const uint64_t bits = splitmix(splitmix(splitmix(head.seed) ^ place) ^ what);
  const double uniform = std::ldexp(static_cast<double>(bits >> 40), -24);
  return -std::log(-std::log(std::clamp(uniform, std::ldexp(1.0, -25), 1 - std::ldexp(1.0, -24))));
}

std::vector<double> vase(const PlainHead& head, const OptionValues& options) {
  std::vector<double> score;
  std::vector<double> range;
  for (int i = 0; i < head.n_rows; ++i) {
    double attention = 0;
    for (int t = 0; t < head.n_window; ++t) {
      for (int g = 0; g < head.group; ++g)
        attention += head.weight(t, g, i) / (head.n_window * head.group);
    }
    score.push_back(std::log(std::max(attention, 1e-30)));
    if (is_on(options, "draw"))
      score.back() += gumbel(head, head.position[i]);
    const auto [low, high] = std::minmax_element(head.value(i), head.value(i) + head.dim);
    range.push_back(*high - *low);
  }
  const int most = head.n_keep > 0 ? head.n_keep / 2 : head.n_rows / 2;
  const int n = std::min({static_cast<int>(options.numbers.at("reserve")), most, head.n_rows});
  std::vector<bool> is_taken(head.n_rows, false);
  for (int taken = 0; taken < n; ++taken) {
    int best = -1;
    for (int i = 0; i < head.n_rows; ++i) {
      if (!is_taken[i] && (best < 0 || range[i] > range[best]))
        best = i;
    }
    is_taken[best] = true;
    score[best] = 1000 + range[best];
  }
  return score;
}
const AddOracle kVase("vase", vase);

}  // namespace
}  // namespace kedge::eviction
