// Oracles of the scorers that look at keys and values only, of the wrappers, and of the controls (eviction/oracle.h).
#include <algorithm>
#include <cmath>

#include "eviction/oracle.h"

namespace kedge::eviction {
namespace {

// ---- controls ----------------------------------------------------------------------------------------------------
std::vector<double> by_position(const PlainHead& head, const OptionValues&) {
  return {head.position.begin(), head.position.end()};
}
const AddOracle kRecent("recent", by_position);
const AddOracle kStreaming("streaming", by_position);

uint64_t splitmix(uint64_t state) {
  state += 0x9E3779B97F4A7C15U;
  state ^= state >> 30;
  state *= 0xBF58476D1CE4E5B9U;
  state ^= state >> 27;
  state *= 0x94D049BB133111EBU;
  return state ^ state >> 31;
}

std::vector<double> random_rows(const PlainHead& head, const OptionValues&) {
  std::vector<double> score;
  const uint64_t place = static_cast<uint64_t>(head.layer) * 4294967296U + static_cast<uint64_t>(head.head);
  for (const int position : head.position) {
    const uint64_t bits = splitmix(splitmix(splitmix(head.seed) ^ place) ^ static_cast<uint64_t>(position));
    score.push_back(std::ldexp(static_cast<double>(bits >> 40), -24));
  }
  return score;
}
const AddOracle kRandom("random", random_rows);

// ---- keys --------------------------------------------------------------------------------------------------------
std::vector<double> knorm(const PlainHead& head, const OptionValues&) {
  std::vector<double> score;
  for (int i = 0; i < head.n_rows; ++i)
    score.push_back(-l2_norm(head.key(i), head.dim));
  return score;
}
const AddOracle kKnorm("knorm", knorm);

std::vector<double> keydiff(const PlainHead& head, const OptionValues& options) {
  std::vector<double> anchor(head.dim, 0.0);
  for (int i = 0; i < head.n_rows; ++i) {
    const double length = options.choices.at("anchor") == "unit" ? l2_norm(head.key(i), head.dim) : 1;
    for (int j = 0; j < head.dim; ++j)
      anchor[j] += head.key(i)[j] / length / head.n_rows;
  }
  std::vector<double> score;
  for (int i = 0; i < head.n_rows; ++i) {
    score.push_back(-dot(head.key(i), anchor.data(), head.dim) /
                    (l2_norm(head.key(i), head.dim) * l2_norm(anchor.data(), head.dim)));
  }
  return score;
}
const AddOracle kKeyDiff("keydiff", keydiff);

// ---- lagkv -------------------------------------------------------------------------------------------------------
// Softmax over rows [begin, begin + lag) of the deviation of their dimensions, scaled by rows [begin + lag, + 2 lag).
std::vector<double> lag_spread(const std::vector<double>& x, int dim, int begin, int lag) {
  std::vector<double> deviation;
  for (int i = begin; i < begin + lag; ++i) {
    std::vector<double> place;
    for (int j = 0; j < dim; ++j) {
      double low = x[(begin + lag) * dim + j];
      double high = low;
      for (int r = begin + lag; r < begin + 2 * lag; ++r) {
        low = std::min(low, x[r * dim + j]);
        high = std::max(high, x[r * dim + j]);
      }
      place.push_back(high > low ? (x[i * dim + j] - low) / (high - low) : 0);
    }
    double mean = 0;
    for (const double p : place)
      mean += p / dim;
    double squares = 0;
    for (const double p : place)
      squares += (p - mean) * (p - mean);
    deviation.push_back(std::sqrt(squares / (dim - 1)));
  }
  return softmax_of(deviation);
}

std::vector<double> lagkv(const PlainHead& head, const OptionValues& options) {
  const int lag = static_cast<int>(options.numbers.at("lag"));
  int begin = 0;
  while (begin < head.n_rows && head.is_protected[begin])
    ++begin;
  std::vector<double> score(begin, 100.0);
  for (; begin + 2 * lag <= head.n_rows; begin += lag) {
    std::vector<double> mean = lag_spread(head.k, head.dim, begin, lag);
    const std::vector<double> of_values = lag_spread(head.v, head.dim, begin, lag);
    for (int i = 0; i < lag; ++i)
      mean[i] = (mean[i] + of_values[i]) / 2;
    for (int i = 0; i < lag; ++i) {
      int rank = 0;
      for (int j = 0; j < lag; ++j)
        rank += mean[j] < mean[i] || (mean[j] == mean[i] && j < i) ? 1 : 0;
      score.push_back(options.choices.at("cross_scoring") == "on" ? mean[i] : double(rank) / lag);
    }
  }
  while (static_cast<int>(score.size()) < head.n_rows)
    score.push_back(2 + (static_cast<double>(score.size()) - begin) / head.n_rows);
  return score;
}
const AddOracle kLagKv("lagkv", lagkv);

// ---- wrappers ----------------------------------------------------------------------------------------------------
std::vector<double> chunkkv(const PlainHead& head, const OptionValues& options) {
  const int chunk = static_cast<int>(options.numbers.at("chunk"));
  const std::vector<double> base = oracle_scores_of_base(head, options);
  std::vector<double> score = base;
  for (int begin = 0; begin < head.n_rows; begin += chunk) {
    const int end = std::min(begin + chunk, head.n_rows);
    double mean = 0;
    double of_free = 0;
    int n_free = 0;
    for (int i = begin; i < end; ++i) {
      mean += base[i] / (end - begin);
      of_free += head.is_protected[i] ? 0 : base[i];
      n_free += head.is_protected[i] ? 0 : 1;
    }
    for (int i = begin; i < end && n_free > 0; ++i)  // the free rows' sum is chunk * mean, their order the base's
      score[i] = base[i] - of_free / n_free + chunk * mean / n_free;
  }
  return score;
}
const AddOracle kChunkKv("chunkkv", chunkkv);

std::vector<double> criticalkv(const PlainHead& head, const OptionValues& options) {
  const std::vector<double> base = oracle_scores_of_base(head, options);
  std::vector<double> score;
  for (int i = 0; i < head.n_rows; ++i) {
    double norm = 0;
    for (int g = 0; g < head.group; ++g) {
      for (int e = 0; e < head.n_embd; ++e) {
        double projected = 0;
        for (int j = 0; j < head.dim; ++j)
          projected += head.value(i)[j] * head.w_o[(g * head.dim + j) * head.n_embd + e];
        norm += std::abs(projected) / head.group;
      }
    }
    score.push_back((base[i] + options.numbers.at("epsilon")) * norm);
  }
  // Stage 1 takes rows one by one, protected rows first.
  int n_first = 0;
  if (options.numbers.at("first_stage") > 0)
    n_first = std::max(static_cast<int>(head.n_keep * options.numbers.at("first_stage")), 1);
  const int n_protected = static_cast<int>(std::count(head.is_protected.begin(), head.is_protected.end(), true));
  n_first = std::clamp(n_first - n_protected, 0, head.n_rows - n_protected);
  std::vector<bool> is_taken = head.is_protected;
  double most = 0;
  for (const double s : score)
    most = std::max(most, std::abs(s));
  for (int rank = 0; rank < n_first; ++rank) {
    int best = -1;
    for (int i = 0; i < head.n_rows; ++i) {
      if (!is_taken[i] && (best < 0 || base[i] > base[best]))
        best = i;
    }
    is_taken[best] = true;
    score[best] = (most + 1) * (2 - static_cast<double>(rank) / n_first);
  }
  return score;
}
const AddOracle kCriticalKv("criticalkv", criticalkv);

}  // namespace
}  // namespace kedge::eviction
