#include "eval/noise_floor.h"

#include <algorithm>
#include <utility>

#include "cli/kl.h"

namespace kedge::eval {

Result<Json> measure_noise_floor(const Engine& engine, const Config& config, const ModelOptions& model,
                                 std::vector<Sample> samples) {
  ModelOptions other_options = model;
  const std::string& ours = engine.model.info().prompt_weights;
  other_options.prompt_weights = ours == "native" ? "f32" : "native";
  Result<std::unique_ptr<Model>> other_model = Model::load(other_options);
  if (!other_model)
    return other_model.error();
  const Engine own{.model = engine.model, .base = engine.base};
  const Engine other{.model = **other_model, .base = engine.base};
  std::vector<double> kld;
  double same_top = 0;
  for (const Sample& sample : samples) {
    Result<Prompt> prompt = make_prompt(engine.model, config, sample);
    if (!prompt)
      return prompt.error();
    SampleRun a(own, config, "noise", sample, *prompt);
    SampleRun b(other, config, "noise", sample, *prompt);
    Result<const LogitRows*> rows_a = a.full_rows();
    if (!rows_a)
      return rows_a.error();
    Result<const LogitRows*> rows_b = b.full_rows();
    if (!rows_b)
      return rows_b.error();
    const int n_threads = engine.model.info().n_threads;
    for (const cli::Comparison& c : compare_rows(**rows_a, **rows_b, prompt->continuation, n_threads)) {
      kld.push_back(c.kld);
      same_top += c.same_top ? 1 : 0;
    }
  }
  if (kld.empty())
    return Json();
  return Json{{"kld_mean", cli::mean(kld)},
              {"kld_max", *std::ranges::max_element(kld)},
              {"same_top", same_top / static_cast<double>(kld.size())},
              {"n_windows", samples.size()},
              {"what", "prompt weights " + other_options.prompt_weights + " against " + ours}};
}

}  // namespace kedge::eval
