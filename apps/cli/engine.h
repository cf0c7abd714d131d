// From settings to the options of the public door: the part that run, perplexity and inspect share.
#pragma once

#include <memory>
#include <string>

#include "kedge/model.h"
#include "kedge/session.h"
#include "settings.h"

namespace kedge::cli {

// Everything that can be said without the model: budget, policy, cache types, model named. Error usage.
Result<SessionOptions> session_options(const Settings& settings);

Result<std::unique_ptr<Model>> load_model(const Settings& settings, const std::string& path);

// "f16", or "q8_0 K, q4_0 V" where they differ.
std::string cache_types(const SessionOptions& options);
// The start line: model, weights, adapter, gate, KV bytes a token, the budget as tokens at full precision, the policy,
// the plan. Errors of explain_budget.
Result<std::string> describe(const Model& model, const SessionOptions& options);

std::string report_row(const std::string& name, const std::string& value);  // "  weights           q4_1\n"
std::string grouped(int64_t number);                                        // "23,040"
std::string format_real(double value, int decimals);                        // "12.34"
std::string format_percent(double share);                                   // "12.3%"

}  // namespace kedge::cli
