#include "train_lm/late_features.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <string>
#include <vector>

#include "eviction/ageing.h"
#include "train_lm/tail_attention.h"

namespace kedge::lm {
namespace {

using at::Tensor;
using gate::Feature;

using eviction::kAnchorFeaturePool;
using eviction::kLeastFeatureNorm;
using eviction::kLeastFeatureWeight;

Tensor log_of(const Tensor& value, double least) { return value.clamp_min(least).log(); }

// What the window's queries make of all rows, a column a feature: [n_kv_heads, cut] each.
class Window {
 public:
  explicit Window(const AtCut& at) : at_(at), weights_(tail_weights(at.q, at.k)) {}

  Tensor most() const { return weights_.amax({1}); }
  Tensor mean() const {  // over the queries that see the row
    const int64_t m = at_.q.size(0), cut = at_.k.size(0), group = at_.q.size(1) / at_.k.size(1);
    const Tensor n_seen = at::arange(cut, 0, -1, at::kLong).clamp_max(m) * group;
    return weights_.sum({1}) / n_seen;
  }
  // log(1 + tokens since the last query with more than an even share); `window` where there is none.
  Tensor last_access(int64_t window) const {
    const int64_t n_kv = at_.k.size(1), m = at_.q.size(0), cut = at_.k.size(0);
    const Tensor even = 1 / at::arange(cut - m + 1, cut + 1, at::kDouble).to(weights_.options());
    const Tensor looked = at::gt(weights_.view({n_kv, -1, m, cut}), even.view({1, 1, m, 1})).any(1);
    const Tensor which = (looked.to(at::kLong) * at::arange(1, m + 1, at::kLong).view({1, m, 1})).amax({1});
    const Tensor since = at::where(which > 0, m - which, at::full({}, window, which.options()));
    return since.to(weights_.options()).log1p();
  }
  Tensor anchor() const {
    const Tensor values = at_.v.transpose(0, 1);
    const Tensor y = at::bmm(weights_, values);
    const Tensor pooled = at::max_pool1d(weights_, kAnchorFeaturePool, 1, kAnchorFeaturePool / 2);
    const Tensor score = (pooled * at::bmm(y, values.transpose(1, 2))).sum({1});
    return score.clamp_min(0) / (y * y).sum(at::IntArrayRef({1, 2})).unsqueeze(1);
  }

 private:
  const AtCut& at_;
  Tensor weights_;  // [n_kv_heads, group * window, cut]
};

Tensor feature_of(Feature feature, const AtCut& at, const Window& window, const gate::AgeingInfo& info) {
  const int64_t cut = at.k.size(0);
  switch (feature) {
    case Feature::logit:
      return at.logits.t();
    case Feature::window_max:
      return log_of(window.most(), kLeastFeatureWeight);
    case Feature::window_mean:
      return log_of(window.mean(), kLeastFeatureWeight);
    case Feature::last_access:
      return window.last_access(info.window);
    case Feature::age:
      return (cut - at::arange(cut, at::kLong)).to(at.k.options()).log().unsqueeze(0).expand({at.k.size(1), cut});
    case Feature::key_norm:
      return log_of(at.k.norm(2, 2).t(), kLeastFeatureNorm);
    case Feature::value_norm:
      return log_of(at.v.norm(2, 2).t(), kLeastFeatureNorm);
    case Feature::anchor:
      return log_of(window.anchor(), kLeastFeatureWeight);
    case Feature::attention:
    case Feature::past:
    case Feature::echo:
      break;
  }
  return {};
}

}  // namespace

Status can_learn(const gate::AgeingInfo& info) {
  for (const Feature feature : info.features) {
    if (feature == Feature::attention || feature == Feature::past || feature == Feature::echo)
      return Error{ErrorCode::usage, std::string("--lm-learns ageing: found a gate with the feature '") +
                                         gate::feature_name(feature) +
                                         "', which only a session records; allowed are those of --gate-input window"};
  }
  return {};
}

Tensor late_features(const AtCut& at, const gate::AgeingInfo& info, int64_t begin, int64_t end) {
  const c10::NoGradGuard constant;
  const Window window(at);
  std::vector<Tensor> columns;
  for (const Feature feature : info.features)
    columns.push_back(feature_of(feature, at, window, info).slice(1, begin, end));
  return at::stack(columns, 2).transpose(0, 1).contiguous();
}

}  // namespace kedge::lm
