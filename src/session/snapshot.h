// What a timeline changes while it runs, apart from its rows: what a mark remembers, a fork copies and a file holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/taps.h"
#include "eviction/policy.h"
#include "kedge/model.h"
#include "kedge/stats.h"
#include "session/ledger.h"
#include "session/planner.h"
#include "session/schedule_state.h"

namespace kedge::session {

// What Observations records, but for the notes of rows.
struct HistoryState {
  std::vector<int64_t> n_added;                 // [layer]: queries below this position were added
  std::vector<eviction::QueryMoments> moments;  // [layer][kv head], or none
  // For echoes: the last queries that were added, f32 [layer][kEchoReach][n_heads * head_dim], and the position behind
  // them (-1: none yet). Both empty where no echo is recorded.
  std::vector<float> lead;
  std::vector<int64_t> lead_end;
};

struct LayerNote {  // shared layers: what was measured when the layer was last scored
  double demand = 1;
  std::vector<double> measured;  // [kv head]
  int64_t n_tokens = 0;          // the sequence's length then; 0: never
  double share = 0;              // rows that the last division left it beyond those of every layer; 0: none yet
  bool fell_back = false;        // the time limit had left the scores to the fallback; not saved: divisions score first
};

struct Snapshot {
  int64_t n_tokens = 0;
  std::vector<Token> tokens;  // all that were read, evicted or not: n_tokens of them
  std::vector<float> logits;  // f32 [n_vocab], or empty
  attention::Taps taps{{}};
  HistoryState history;
  std::vector<LayerNote> layer_notes;  // [n_layers], empty unless layers share a total
  EvictionTarget last_target;          // of the last eviction
  ScheduleState schedule;
  Ledger ledger{0, 0, false};  // not in a file: it begins anew there
  Stats counters;              // what the timeline itself counts
  int64_t evicted_rows = 0;    // since the beginning of the sequence
  int64_t evicted_until = 0;   // length of the sequence at its last eviction
  int64_t peak_bytes = 0;
  size_t n_trace = 0;  // points of the memory trace
};

// Notes and flags of all rows. They lie in blocks that a mark and what follows it share, and are written in place: to
// come back they must be known. 5 bytes a row and 4 more for each further note, outside of the KV budget.
struct RowNotes {
  std::vector<std::vector<float>> notes;    // [layer][kv head][note column]: f32 [n_rows]
  std::vector<std::vector<uint8_t>> flags;  // [layer][kv head]: u8 [n_rows]
};

}  // namespace kedge::session
