// What a gate costs in the engine itself, on texts that nothing was learned from.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "gate/gate.h"
#include "kedge/model.h"

namespace kedge::lm {

struct JudgeOptions {
  std::string budget = "25%";
  int64_t n_continue = 128;  // of a window: its last tokens, predicted under the budget
};

// A gate, and an adapter where one learns, as files for the engine to read.
struct Judged {
  const gate::Gate& gate;
  std::string gate_path;
  std::vector<std::byte> lora = {};  // the file; empty: none
  std::string lora_path = {};
};

class Judge {
 public:
  // Windows outlive the judge. The model's gate is replaced, and its adapter taken away.
  Judge(Model& model, std::vector<std::span<const Token>> windows, const JudgeOptions& options);
  // Mean KL divergence from the full cache of the model without an adapter over the windows' last tokens, policy
  // `gate`. Puts the files down. Errors: those of files, of their readers and of sessions.
  Result<double> kld(const Judged& tried);
  size_t n_windows() const { return windows_.size(); }

 private:
  using EachRow = void(size_t index, std::span<const float> logits);
  Status read(size_t window, bool with_gate, const std::function<EachRow>& each) const;
  int64_t n_continue(size_t window) const;
  Status read_full();
  Status put_in_place(const Judged& tried);

  Model& model_;
  std::vector<std::span<const Token>> windows_;
  JudgeOptions options_;
  std::vector<std::vector<float>> full_;  // [window] f32 [n_continue][n_vocab]: of the full cache, made when needed
};

}  // namespace kedge::lm
