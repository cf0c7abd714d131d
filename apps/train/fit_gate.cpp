#include "train/fit_gate.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/clock.h"

namespace kedge::train {
namespace {

// One layer's rows of several shards, side by side.
struct Rows {
  std::vector<uint16_t> x;
  std::vector<float> y;
  gate::Examples examples(const ShardShape& shape) const {
    return {.n = static_cast<int64_t>(y.size() / shape.n_heads),
            .n_embd = static_cast<int>(shape.n_embd),
            .n_heads = static_cast<int>(shape.n_heads),
            .x = x,
            .y = y};
  }
};

Rows rows_of(std::span<const ShardFile> shards, int layer) {
  Rows rows;
  for (const ShardFile& shard : shards) {
    const std::span<const uint16_t> x = shard.x(layer);
    const std::span<const float> y = shard.y(layer);
    rows.x.insert(rows.x.end(), x.begin(), x.end());
    rows.y.insert(rows.y.end(), y.begin(), y.end());
  }
  return rows;
}

Status same_shape(std::span<const ShardFile> shards, const ShardShape& shape) {
  for (const ShardFile& shard : shards) {
    const ShardShape& other = shard.shape();
    if (other.n_layers != shape.n_layers || other.n_embd != shape.n_embd || other.n_heads != shape.n_heads)
      return Error{ErrorCode::failed, "labelled rows of different models: delete them and collect anew"};
  }
  return {};
}

Result<gate::LayerGate> fit_layer(const gate::Examples& train, const gate::Examples& held_out,
                                  const FitOptions& options, Executor& executor) {
  if (options.width == 0)
    return gate::fit_linear(train, {.ridge = options.ridge}, executor);
  return gate::fit_mlp(train, held_out, {.width = options.width, .epochs = options.epochs, .seed = options.seed},
                       executor, {});
}

// The value above which the share `keep` of ascending values lies.
float above(std::span<const float> ascending, double keep) {
  const auto at = static_cast<size_t>((1 - keep) * static_cast<double>(ascending.size()));
  return ascending[std::min(at, ascending.size() - 1)];
}

}  // namespace

void calibrate(gate::Gate& gate, std::vector<float> logits) {
  gate.thresholds.clear();
  std::ranges::sort(logits);
  const float middle = above(logits, 0.5);
  for (gate::LayerGate& layer : gate.layers) {
    for (float& offset : layer.b2)
      offset -= middle;
  }
  for (int tenth = 1; tenth <= 9; ++tenth) {
    const float logit = above(logits, tenth / 10.0) - middle;
    gate.thresholds.push_back({.keep = static_cast<float>(tenth) / 10, .threshold = 1 / (1 + std::exp(-logit))});
  }
}

Result<FittedGate> fit_gate(std::span<const ShardFile> train, std::span<const ShardFile> held_out,
                            const gate::GateInfo& info, const FitOptions& options, Executor& executor,
                            const FitProgress& progress) {
  if (train.empty() || held_out.empty())
    return Error{ErrorCode::failed, "a gate needs rows to learn from and rows to be judged by: found " +
                                        std::to_string(train.size()) + " and " + std::to_string(held_out.size()) +
                                        " windows"};
  const ShardShape shape = train.front().shape();
  for (const std::span<const ShardFile> shards : {train, held_out}) {
    if (Status same = same_shape(shards, shape); !same)
      return same.error();
  }
  FittedGate fitted{.gate = {.info = info, .layers = {}}, .layers = {}};
  fitted.gate.info.width = options.width;
  std::vector<float> logits;
  for (int layer = 0; layer < static_cast<int>(shape.n_layers); ++layer) {
    const Stopwatch watch;
    const Rows learned = rows_of(train, layer);
    const Rows judged = rows_of(held_out, layer);
    Result<gate::LayerGate> own = fit_layer(learned.examples(shape), judged.examples(shape), options, executor);
    if (!own)
      return Error{own.error().code, "layer " + std::to_string(layer) + ": " + own.error().message};
    const auto said = gate::logits_by_head(*own, fitted.gate.info, judged.examples(shape));
    for (const std::vector<float>& head : said)
      logits.insert(logits.end(), head.begin(), head.end());
    fitted.layers.push_back(
        {.layer = layer, .held_out = gate::quality(said, judged.examples(shape)), .seconds = watch.seconds()});
    fitted.gate.layers.push_back(*std::move(own));
    if (progress && !progress(fitted.layers.back()))
      return Error{ErrorCode::cancelled, "stopped while a gate was fitted"};
  }
  calibrate(fitted.gate, std::move(logits));
  return fitted;
}

std::string report_csv(const std::string& name, std::span<const LayerReport> layers) {
  std::string csv;
  for (const LayerReport& layer : layers) {
    for (size_t head = 0; head < layer.held_out.r2.size(); ++head) {
      char line[160];
      std::snprintf(line, sizeof line, "%s,%d,%zu,%.4f,%.4f\n", name.c_str(), layer.layer, head,
                    static_cast<double>(layer.held_out.r2[head]), static_cast<double>(layer.held_out.spearman[head]));
      csv += line;
    }
  }
  return csv;
}

}  // namespace kedge::train
