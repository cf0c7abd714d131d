// --explain, --explain-json, --explain-at: what evictions said of tokens, for people and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "kedge/explain.h"
#include "kedge/session.h"
#include "settings.h"

namespace kedge::cli {

bool explain_asked(const Settings& settings);
// Error usage: --explain-at is not LAYER[:HEAD], or nothing is to be explained.
Result<ExplainOptions> explain_options(const Settings& settings);
// Error usage: the model has no such layer or kv head.
Status check_explain_at(const Settings& settings, const ModelInfo& info);

// A token's text on one line: quoted, with control bytes and damaged UTF-8 as escapes, at most `width` characters.
std::string token_text(const std::string& piece, size_t width);

struct ExplainReport {
  ExplainOptions options;
  Explanation explanation;
  std::vector<LayerStats> layers;
  std::vector<std::string> best_texts;  // of explanation.best
  std::vector<std::string> worst_texts;
};
// [{"evictions", "policy_ms", "heads": [{"rows", "evicted", "evictions", "mean_kept_score", "min_kept_score"}]}]
nlohmann::ordered_json layers_json(const std::vector<LayerStats>& layers);
std::string explain_text(const ExplainReport& report);
std::string explain_json(const ExplainReport& report, const std::string& policy);

// Tells and writes what was asked for. Errors: usage (a layer that is not there), failed (the file).
Status write_explanation(const Settings& settings, const Model& model, const Session& session);

}  // namespace kedge::cli
