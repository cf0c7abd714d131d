// What a sequence recorded and scored, as bytes for its file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "attention/running_anchor.h"
#include "session/snapshot.h"

namespace kedge::session {

// Vectors say how many numbers there are: a timeline that was just opened has the right ones.
struct SavedHistory {
  HistoryState observed;
  std::vector<LayerNote> layer_notes;
  std::vector<int64_t> scored_at;  // of ScheduleState; these three empty or [n_layers]
  std::vector<float> difficulty;
  std::vector<float> share;
  attention::RunningAnchor::State anchor;
};

//   n_added i64 [n_layers] | of each kv head that has moments: n_queries i64, sum f64, outer f64, length f64
//   | where echoes are recorded: lead_end i64 [n_layers], lead f32 [n_layers][queries][width]
//   | of each layer that shares a total: n_tokens i64, demand f64, share f64, n i64, measured f64 [n]
//   | n i64, scored_at i64 [n] | n i64, difficulty f32 [n] | n i64, share f32 [n]
//   | running anchor: values u16, scale f32, position i32
std::vector<std::byte> history_to_bytes(const SavedHistory& saved);

struct HistoryLimits {
  int64_t n_tokens = 0;
  int64_t n_layers = 0;
  int64_t n_kv_heads = 0;
};
// Reads into `saved`. Any bytes are safe. Empty = fine; else what was found and what is allowed, and `saved` is of no
// use.
std::string history_from_bytes(std::span<const std::byte> bytes, const HistoryLimits& limits, SavedHistory& saved);

}  // namespace kedge::session
