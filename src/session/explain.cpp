// What a timeline tells of its evictions (ledger.h keeps it).
#include <string>

#include "session/timeline.h"

namespace kedge::session {

std::vector<LayerStats> Timeline::layer_stats() const { return ledger_.layer_stats(kv_map()); }

Result<Explanation> Timeline::explain(const ExplainOptions& options) const {
  const model::HyperParams& hyper = engine_.model->hyper();
  const auto usage = [](std::string message) { return Error{ErrorCode::usage, std::move(message)}; };
  if (!ledger_.explains())
    return usage("the session was not opened to explain its evictions");
  if (options.n < 1)
    return usage("nothing to explain: " + std::to_string(options.n) + " tokens asked for");
  if (options.layer < -1 || options.layer >= hyper.n_layers) {
    return usage("layer " + std::to_string(options.layer) + " does not exist; the model has layers 0 to " +
                 std::to_string(hyper.n_layers - 1));
  }
  if (options.head < -1 || options.head >= hyper.n_kv_heads) {
    return usage("kv head " + std::to_string(options.head) + " does not exist; the model has kv heads 0 to " +
                 std::to_string(hyper.n_kv_heads - 1) + " in each layer");
  }
  return ledger_.explain(options, kv_map(), tokens_);
}

}  // namespace kedge::session
