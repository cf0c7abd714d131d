#include "eval/baseline.h"

#include <cstdio>

namespace kedge::eval {
namespace {

bool pools_all(const Json& group) { return group.at("length").is_null() && group.at("depth").is_null(); }

const Json* find_group(const Json& metrics, const Json& like) {
  for (const Json& group : metrics.at("groups")) {
    if (pools_all(group) && group.at("task") == like.at("task") && group.at("policy") == like.at("policy") &&
        group.at("budget") == like.at("budget"))
      return &group;
  }
  return nullptr;
}

std::string name_of(const Json& group) {
  return group.at("task").get<std::string>() + " " + group.at("policy").get<std::string>() + " " +
         group.at("budget").get<std::string>();
}

void compare(GateResult& result, const Json& now, const Json& before, const GateLimits& limits) {
  const auto line = [&](const char* what, double was, double is, bool failed) {
    char buffer[160];
    std::snprintf(buffer, sizeof buffer, ": %s %.4f, baseline %.4f%s\n", what, is, was, failed ? "  BELOW" : "");
    result.lines += name_of(before) + buffer;
    ++result.n_compared;
    result.n_failed += failed ? 1 : 0;
  };
  if (before.at("score").is_number() && now.at("score").is_number()) {
    const double was = before.at("score").get<double>();
    const double is = now.at("score").get<double>();
    line("score", was, is, was - is > limits.max_drop);
  }
  if (before.at("kld_mean").is_number() && now.at("kld_mean").is_number()) {
    const double was = before.at("kld_mean").get<double>();
    const double is = now.at("kld_mean").get<double>();
    line("KLD", was, is, is > was * (1 + limits.max_kld_rise) + 1e-9);
  }
}

}  // namespace

Result<GateResult> compare_to_baseline(const Json& metrics, const Json& baseline, const GateLimits& limits) {
  GateResult result;
  try {
    for (const Json& before : baseline.at("groups")) {
      if (!pools_all(before))
        continue;
      const Json* now = find_group(metrics, before);
      if (now == nullptr) {
        return Error{.code = ErrorCode::usage,
                     .message = "the baseline has " + name_of(before) + ", this run has not: run the same grid"};
      }
      compare(result, *now, before, limits);
    }
  } catch (const Json::exception& error) {
    return Error{.code = ErrorCode::failed, .message = std::string("the baseline's metrics.json: ") + error.what()};
  }
  if (result.n_compared == 0)
    return Error{.code = ErrorCode::usage, .message = "the baseline has no score and no KLD to compare with"};
  return result;
}

}  // namespace kedge::eval
