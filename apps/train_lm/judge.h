// What a gate costs in the engine itself, on texts that nothing was learned from.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "gate/gate.h"
#include "kedge/model.h"

namespace kedge::lm {

struct JudgeOptions {
  std::string policy = "gate";  // that evicts
  std::string budget = "25%";
  int64_t n_continue = 128;  // of a window: its last tokens, predicted under the budget
};

class Judge {
 public:
  // Windows outlive the judge. The model's gate is replaced.
  Judge(Model& model, std::vector<std::span<const Token>> windows, const JudgeOptions& options);
  // Mean KL divergence from the full cache over the windows' last tokens, policy `gate`. `path`: where the gate is put
  // down as a file for the engine to read. Errors: those of files and sessions.
  Result<double> kld(const gate::Gate& gate, const std::string& path);
  size_t n_windows() const { return windows_.size(); }

 private:
  using EachRow = void(size_t index, std::span<const float> logits);
  Status read(size_t window, bool with_gate, const std::function<EachRow>& each) const;
  int64_t n_continue(size_t window) const;

  Model& model_;
  std::vector<std::span<const Token>> windows_;
  JudgeOptions options_;
  std::vector<std::vector<float>> full_;  // [window] f32 [n_continue][n_vocab]: of the full cache, made when needed
};

}  // namespace kedge::lm
