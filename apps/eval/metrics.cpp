#include "eval/metrics.h"

namespace kedge::eval {

MetricInfo exact_metric();
MetricInfo contains_metric();
MetricInfo contains_all_metric();
MetricInfo f1_metric();
MetricInfo rouge_l_metric();
MetricInfo edit_metric();

std::span<const MetricInfo> metrics() {
  static const MetricInfo list[] = {exact_metric(), contains_metric(), contains_all_metric(),
                                    f1_metric(),    rouge_l_metric(),  edit_metric()};
  return list;
}

const MetricInfo* find_metric(std::string_view name) {
  for (const MetricInfo& info : metrics()) {
    if (info.name == name)
      return &info;
  }
  return nullptr;
}

}  // namespace kedge::eval
