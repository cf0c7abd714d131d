#include "train_lm/settings.h"

#include <cstdio>

namespace kedge::lm {

std::string LmSettings::budget() const {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g%%", 100 * keep);
  return text;
}

Result<LmSettings> lm_settings(const cli::Settings& settings) {
  Result<train::TrainSettings> texts = train::train_settings(settings);
  if (!texts)
    return texts.error();
  LmSettings lm{.texts = *std::move(texts),
                .gate_init = settings.gate_init,
                .width = settings.gate_width,
                .steps = settings.lm_steps,
                .batch = settings.lm_batch,
                .loss = settings.lm_loss,
                .pressure = settings.lm_pressure,
                .rows = settings.lm_rows,
                .learns = settings.lm_learns,
                .keep = static_cast<double>(settings.lm_keep),
                .lambda = static_cast<double>(settings.lm_lambda),
                .adversarial = static_cast<double>(settings.lm_adversarial),
                .rate = static_cast<double>(settings.lm_rate),
                .lora = settings.lm_lora,
                .lora_rate = static_cast<double>(settings.lm_lora_rate),
                .recompute = settings.lm_recompute == "on"    ? Recompute::on
                             : settings.lm_recompute == "off" ? Recompute::off
                                                              : Recompute::automatic,
                .products = settings.lm_products,
                .save_every = settings.lm_save_every,
                .judge_every = settings.lm_judge_every,
                .patience = settings.lm_patience,
                .judge_windows = settings.lm_judge_windows,
                .seed = settings.seed && *settings.seed >= 0 ? static_cast<uint64_t>(*settings.seed) : 1,
                .threads = settings.threads};
  if (lm.learns == "ageing" && lm.pressure == "penalty")
    return Error{ErrorCode::usage, "--lm-pressure: found 'penalty', allowed with --lm-learns ageing: exact, layer"};
  if (lm.learns == "ageing" && lm.lora > 0)
    return Error{ErrorCode::usage,
                 "--lm-lora: found " + std::to_string(lm.lora) + ", allowed with --lm-learns ageing: 0"};
  if (lm.lora > 0 && lm.rows != "own")
    return Error{ErrorCode::usage, "--lm-rows: found '" + lm.rows +
                                       "', allowed with --lm-lora: own (an adapter makes keys and values of its own)"};
  return lm;
}

}  // namespace kedge::lm
