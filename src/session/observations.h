// What a sequence records for scorers beyond its newest queries: how much attention each row has had, moments of the
// queries, what a repetition of the text looks at (KVzip), the tokens' kinds. Nothing unless somebody asks.
//
// Sums run over every query, in blocks of positions [64 i, 64 i + 64): partial sums of a block are f32 and added in
// order, so that neither threads nor the size of a graph changes a bit.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "attention/taps.h"
#include "eviction/policy.h"
#include "eviction/select.h"
#include "kv/store.h"
#include "session/echo.h"
#include "session/query_weights.h"
#include "session/timeline.h"

namespace kedge::session {

// The queries of the first positions are outliers and left out of the moments (Expected Attention, as kvpress).
inline constexpr int32_t kSinkQueries = 4;

// Queries of one layer after RoPE: f32 [n][n_heads * head_dim], n = positions.size(), ascending.
struct LayerQueries {
  const float* q = nullptr;
  std::span<const int32_t> positions;
};

// Rows [begin, end) by position that a repetition is about; the repetition's own rows stand at `probe` and behind.
struct Repeated {
  int32_t begin = 0;
  int32_t end = 0;
  int32_t probe = 0;
};

// What the HeadInputs of one eviction point to.
struct LayerHistory {
  std::vector<std::vector<float>> attention_sum;   // [kv head][row]
  std::vector<std::vector<float>> past;            // same
  std::vector<std::vector<float>> echo;            // same
  std::vector<std::vector<float>> reconstruction;  // same
  std::vector<std::vector<float>> gate;            // same
};

class Observations {
 public:
  // `recorded`: what the policy of this session or of its forks needs. The store has note_columns(recorded).
  Observations(const Engine& engine, const eviction::Needs& recorded, kv::Store& store, kv::SequenceId sequence);

  // True: every query must come by, through add() or add_pending().
  bool wants_queries() const { return recorded_.attention_sum || recorded_.query_moments || recorded_.echo; }
  // Whether layers may be added at different tokens while decoding: echoes alone are recorded.
  bool takes_turns() const { return recorded_.echo && !recorded_.attention_sum && !recorded_.query_moments; }
  // Queries that the ring must hold so that decoding can add them in blocks; 0: none.
  static int ring_size(const eviction::Needs& recorded);

  // After a graph over one layer: its queries, the next after those that were added before.
  void add(int layer, const LayerQueries& queries);
  // Adds what the ring holds of the queries below n_tokens and was not added yet.
  void add_pending(int layer, const attention::Taps& taps, int64_t n_tokens);
  // Largest weight of any of these queries on each repeated row, of the weights on sinks, repeated rows and the
  // repetition itself: what the released code of KVzip computes. Rows from `probe` on must be the layer's newest.
  void add_reconstruction(int layer, const LayerQueries& queries, const Repeated& repeated);
  // Positions from n_tokens on no longer exist. What their queries have added stays in the sums.
  void forget(int64_t n_tokens);

  HistoryState state() const {
    return {.n_added = n_added_, .moments = moments_, .lead = lead_, .lead_end = lead_end_};
  }
  // Of a sequence of n_tokens that has the same shape and records the same.
  void adopt(const HistoryState& state, int64_t n_tokens);
  // The sequence was read elsewhere up to n_tokens, and its rows (with their notes) put into the store: goes on from
  // there. moments: of every layer and kv head, as moments() gave them, or empty where none are recorded.
  void restore(int64_t n_tokens, std::vector<eviction::QueryMoments> moments);

  // A layer's rows were copied from `parent` (all of them, in order): takes over what it knows of them. `tested`: with
  // the reconstruction.
  void copy_layer(const Observations& parent, int layer, bool tested);
  // What `needs` asks for and was not recorded, for people; empty: nothing.
  std::string missing(const eviction::Needs& needs) const;

  // Fills what `needs` asks for into the heads of a layer. `history` and this must outlive `in`.
  void attach(int layer, const eviction::Needs& needs, std::span<const Token> tokens, LayerHistory& history,
              eviction::LayerInput& in);

  // For tests and introspection. f32 [rows of the head]; empty where the column is not kept.
  std::vector<float> attention_sum(int layer, int head) const;
  std::vector<float> past(int layer, int head, int32_t n_tokens) const;  // means over the queries so far
  std::vector<float> echo(int layer, int head) const;
  std::vector<float> reconstruction(int layer, int head) const;
  std::vector<float> gate(int layer, int head) const;
  const eviction::QueryMoments& moments(int layer, int head) const;

 private:
  std::vector<float> notes(int layer, int head, int column) const;
  // Adds the softmax weights of these queries, means over the group, to a column of notes, each as often as its
  // position says.
  using Times = int (*)(int32_t position);  // the same in all of a block
  void add_weights(int layer, const LayerQueries& queries, int column, Times times);
  void add_past(int layer, const LayerQueries& queries);
  void add_echo(int layer, const LayerQueries& queries);
  void add_moments(int layer, const LayerQueries& queries);
  void add_query_moments(int layer, int query_head, const LayerQueries& queries, std::span<const float> turns);
  size_t query_width() const;        // floats of a position, all heads
  std::span<float> lead(int layer);  // f32 [kEchoReach][n_heads * head_dim]
  size_t index(int layer, int head) const;
  TileQueries tile(const LayerQueries& queries, int head, size_t begin, size_t end) const;

  Engine engine_;
  eviction::Needs recorded_;
  NoteColumns columns_;
  kv::Store& store_;
  kv::SequenceId sequence_;
  std::vector<int64_t> n_added_;                 // [layer]: queries below this position were added
  std::vector<eviction::QueryMoments> moments_;  // [layer][kv head]
  std::vector<float> lead_;                      // as in HistoryState
  std::vector<int64_t> lead_end_;
  eviction::Rotation rotation_;
  EchoTurn turn_;
  std::vector<uint8_t> token_kinds_;   // by position
  std::vector<float> output_weights_;  // f32 [n_heads * head_dim][n_embd] of one layer
  int output_weights_layer_ = -1;
};

}  // namespace kedge::session
