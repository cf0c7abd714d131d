#include "eviction/ageing.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "eviction/anchor.h"
#include "eviction/row_math.h"
#include "eviction/window_scorer.h"

namespace kedge::eviction {
namespace {

using gate::Feature;

bool asks_window(const gate::AgeingInfo& info) {
  return info.asks(Feature::window_max) || info.asks(Feature::window_mean) || info.asks(Feature::last_access);
}

// Positive parts of what AnDPro scores each row over the window, by the sum of ||y||^2 of its queries: f32 [n_rows].
std::vector<float> along_anchor(const HeadInput& in) {
  std::vector<float> score(static_cast<size_t>(in.rows.n_rows), 0.0F);
  add_anchor_scores(in, 0, in.n_window, kAnchorFeaturePool, score);
  double square = 0;
  for (int64_t i = 0; i < int64_t{in.n_window} * in.group * in.rows.head_dim; ++i)
    square += double{in.y[i]} * double{in.y[i]};
  const auto unit = static_cast<float>(square > 0 ? 1 / square : 0);
  for (float& one : score)
    one = std::max(one, 0.0F) * unit;
  return score;
}

float log_of(float value, float least) { return std::log(std::max(value, least)); }

// What the window's queries make of each row. All f32 or i32 [n_rows].
struct WindowUse {
  std::vector<float> most;           // largest weight
  std::vector<float> sum;            // of the weights, over queries and the group's heads
  std::vector<int32_t> last_access;  // position of the last query that gave it more than an even share; -1: none
};

WindowUse window_use(const HeadInput& in) {
  const auto n_rows = static_cast<size_t>(in.rows.n_rows);
  WindowUse use{.most = std::vector<float>(n_rows, 0.0F),
                .sum = std::vector<float>(n_rows, 0.0F),
                .last_access = std::vector<int32_t>(n_rows, -1)};
  size_t n_seen = 0;  // rows that the query sees; queries ascend
  for_weight_batches(in, 0, in.n_window, [&](int first, int n, std::span<float> a) {
    for (int m = 0; m < n * in.group; ++m) {
      const int32_t query = in.query_positions[first + m / in.group];
      while (n_seen < n_rows && in.rows.position(static_cast<int32_t>(n_seen)) <= query)
        ++n_seen;
      const float even = 1.0F / static_cast<float>(std::max<size_t>(n_seen, 1));
      const float* weight = a.data() + static_cast<size_t>(m) * n_rows;
      for (size_t i = 0; i < n_seen; ++i) {
        use.most[i] = std::max(use.most[i], weight[i]);
        use.sum[i] += weight[i];
        if (weight[i] > even)
          use.last_access[i] = query;
      }
    }
  });
  return use;
}

// How many of the window's queries could see a row at this position.
int queries_from(const HeadInput& in, int32_t position) {
  const int32_t* const end = in.query_positions + in.n_window;
  return static_cast<int>(end - std::lower_bound(in.query_positions, end, position));
}

// One column of all rows.
class Columns {
 public:
  Columns(const HeadInput& in, const gate::AgeingInfo& info)
      : in_(in), window_(info.window), use_(asks_window(info) ? window_use(in) : WindowUse()) {
    if (info.asks(Feature::key_norm))
      key_norm_ = row_norms(in.rows, Part::keys, Norm::l2);
    if (info.asks(Feature::value_norm))
      value_norm_ = row_norms(in.rows, Part::values, Norm::l2);
    if (info.asks(Feature::anchor))
      anchor_ = along_anchor(in);
  }

  float value(Feature feature, size_t i) const {
    const int32_t position = in_.rows.position(static_cast<int32_t>(i));
    switch (feature) {
      case Feature::logit:
        return in_.gate[i];
      case Feature::attention:
        return log_of(in_.attention_sum[i] / static_cast<float>(age(position)), kLeastFeatureWeight);
      case Feature::window_max:
        return log_of(use_.most[i], kLeastFeatureWeight);
      case Feature::window_mean: {
        const int n = queries_from(in_, position) * in_.group;
        return log_of(n > 0 ? use_.sum[i] / static_cast<float>(n) : 0.0F, kLeastFeatureWeight);
      }
      case Feature::last_access: {
        const int32_t since = use_.last_access[i] < 0 ? window_ : in_.n_tokens - 1 - use_.last_access[i];
        return std::log(1.0F + static_cast<float>(since));
      }
      case Feature::age:
        return std::log(static_cast<float>(age(position)));
      case Feature::key_norm:
        return log_of(key_norm_[i], kLeastFeatureNorm);
      case Feature::value_norm:
        return log_of(value_norm_[i], kLeastFeatureNorm);
      case Feature::past:
        return log_of(in_.past[i], kLeastFeatureWeight);
      case Feature::echo:
        return log_of(in_.echo[i], kLeastFeatureWeight);
      case Feature::anchor:
        return log_of(anchor_[i], kLeastFeatureWeight);
    }
    return 0;
  }

 private:
  // Tokens since the row was written, its own among them: as many queries could see it.
  int32_t age(int32_t position) const { return std::max(in_.n_tokens - position, 1); }

  const HeadInput& in_;
  int window_;
  WindowUse use_;
  std::vector<float> key_norm_, value_norm_, anchor_;  // f32 [n_rows]
};

}  // namespace

Needs ageing_needs(const gate::AgeingInfo& info) {
  const bool has_window = asks_window(info) || info.asks(Feature::anchor);
  return {.window = has_window ? info.window : 0,
          .values = has_window || info.asks(Feature::key_norm) || info.asks(Feature::value_norm),
          .attention_sum = info.asks(Feature::attention),
          .echo = info.asks(Feature::past) || info.asks(Feature::echo),
          .gate = info.asks(Feature::logit),
          .ageing = true};
}

std::vector<float> ageing_features(const HeadInput& in, const gate::AgeingInfo& info) {
  const auto n_rows = static_cast<size_t>(in.rows.n_rows);
  check(!info.asks(Feature::logit) || in.gate.size() == n_rows, "the gate has said something of every row");
  check(!info.asks(Feature::attention) || in.attention_sum.size() == n_rows, "an ageing stage needs attention sums");
  check(!ageing_needs(info).echo || (in.past.size() == n_rows && in.echo.size() == n_rows),
        "an ageing stage needs what the text's queries look at");
  const HeadInput head = last_queries(in, info.window);
  const Columns columns(head, info);
  std::vector<float> out;
  out.reserve(n_rows * info.features.size());
  for (size_t i = 0; i < n_rows; ++i) {
    for (const Feature feature : info.features)
      out.push_back(columns.value(feature, i));
  }
  return out;
}

std::vector<float> learned_logits(const HeadInput& in) {
  if (in.ageing == nullptr) {
    check(in.gate.size() == static_cast<size_t>(in.rows.n_rows), "the gate has said something of every row");
    return {in.gate.begin(), in.gate.end()};
  }
  return gate::ageing_logits(*in.ageing, {.layer = in.layer, .head = in.head}, ageing_features(in, in.ageing->info));
}

std::vector<ScorePart> ageing_parts(const HeadInput& in) {
  const std::vector<Feature>& features = in.ageing->info.features;
  const std::vector<float> all = ageing_features(in, in.ageing->info);
  std::vector<ScorePart> parts;
  for (const Feature feature : features)
    parts.push_back({.name = gate::feature_name(feature), .value = {}});
  for (size_t i = 0; i < all.size(); ++i)
    parts[i % features.size()].value.push_back(all[i]);
  return parts;
}

}  // namespace kedge::eviction
