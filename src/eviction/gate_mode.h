// What the probabilities of a learned gate decide (gate/gate.h), beside ranking rows for policies that ask it:
//   budget     nothing: a policy ranks by them, and the budget says how many rows stay
//   threshold  rows below a fixed probability are discarded once they leave the window, whatever the budget holds: the
//              rate that stays adapts to the text
//   adaptive   the threshold follows the memory that is still free: threshold = high - (high - low) * free, so that a
//              fuller memory discards more (0.8 - 0.6 * free by default)
// What is decided when a row is written takes effect when it leaves the window. The budget stays a hard limit: what is
// left is evicted by the policy as ever.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eviction/named_layers.h"
#include "eviction/policy.h"
#include "gate/gate.h"
#include "kedge/error.h"

namespace kedge::eviction {

struct GateMode {
  enum class Kind { budget, threshold, adaptive };
  Kind kind = Kind::budget;
  std::string text = "budget";  // resolved, parses back
  // Probabilities, of a layer and a token with weight 1. threshold: low == high.
  double low = 0;
  double high = 0;
  double gap = 0;  // hysteresis: the threshold moves only if it is further than this from where it should be
  int window = 0;  // newest rows, about which nothing is decided yet
  int sinks = 0;   // first rows, likewise
  int early = 0;   // first tokens that have early_weight
  double early_weight = 1;
  std::vector<NamedLayers> layers;
  bool discards() const { return kind != Kind::budget; }
};

// MODE[:k=v,...]; "": budget. Error usage: unknown names and keys (names the nearest), values out of range.
Result<GateMode> parse_gate_mode(std::string_view text);

// Where the threshold should be while the share `free` of the memory is free, clamped to 0..1.
double wanted_threshold(const GateMode& mode, double free);
// The share that is free once a text has been read, when its rows have been judged by the threshold that this share
// asks for. Less memory, a higher threshold, fewer rows: there is one such threshold.
struct Filling {
  double used = 0;                             // share of the memory before
  double coming = 0;                           // what all rows of the text would take
  std::span<const gate::KeepThreshold> curve;  // what a threshold keeps, as the gate's file says; empty: 1 - threshold
};
double free_when_read(const GateMode& mode, const Filling& filling);
// Where it goes from `current` (below 0: it has none yet).
double next_threshold(const GateMode& mode, double current, double free);

// One head of a layer.
struct GatedRows {
  KvHeadView rows;
  std::span<const float> logit;           // f32 [n_rows]
  std::span<const uint8_t> is_protected;  // u8 [n_rows]; not 0: stays
  int layer = 0;
};
// The rows that stay, ascending: protected ones and those whose probability is at least the threshold divided by the
// weights of layer and token. A head keeps at least one row.
std::vector<int32_t> open_rows(const GateMode& mode, double threshold, const GatedRows& in);

}  // namespace kedge::eviction
