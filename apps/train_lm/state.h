// Everything a training that was stopped needs to go on as if it had not been, as one file:
//   "KEDGELMT", u32 version, then the fields in their order here; lists with their lengths (u64) in front; the last
//   four bytes are the CRC-32 of all before. Little-endian.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kedge/error.h"

namespace kedge::lm {

struct TrainState {
  std::string made_from;             // what the training depends on: model, texts, options (hash)
  int64_t step = 0;                  // steps that are done
  std::vector<float> parameters;     // of the gate, all tensors in a row
  std::vector<float> first, second;  // the optimiser's moments, likewise
  std::vector<float> inputs;         // [n_layers][2][n_embd]: means and scales of gate inputs
  std::vector<float> best;           // parameters of the best gate so far; empty: none was judged
  // Of the adapter that learns beside it: the same four; empty where none does.
  std::vector<float> lora, lora_first, lora_second, best_lora;
  int64_t best_step = -1;
  double best_kld = 0;
  double start_kld = 0;  // of the gate it began with
  int64_t n_worse = 0;   // judgements since the best
  bool is_over = false;  // by patience
  double seconds = 0;    // of wall time
  double flops = 0;
  int64_t n_tokens = 0;
  // Lines of the report: of each step n_step_values numbers, of each judgement three (step, in training, by the
  // engine).
  uint64_t n_step_values = 0;
  std::vector<double> steps;
  std::vector<double> judgements;
  bool operator==(const TrainState&) const = default;
};

// Written beside `path`, then renamed. Error failed.
Status save_state(const TrainState& state, const std::string& path);
// Error failed: names the file, what was found and what is allowed.
Result<TrainState> read_state(const std::string& path);

}  // namespace kedge::lm
