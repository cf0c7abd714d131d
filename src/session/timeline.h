// One timeline of tokens: prefill, decode, score, evict. Everything that changes while a sequence runs lives here.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "attention/ragged_attention.h"
#include "attention/taps.h"
#include "eviction/policy.h"
#include "eviction/select.h"
#include "kedge/error.h"
#include "kedge/session.h"
#include "kv/store.h"
#include "model/model.h"
#include "session/planner.h"
#include "session/schedule_state.h"
#include "tensor/compute.h"

namespace kedge::session {

struct Engine {  // what sessions share
  tensor::Compute* compute = nullptr;
  const model::Model* model = nullptr;
  const AttentionKernels* kernels = nullptr;
};

// With the note columns that the policy's needs take.
kv::StoreShape store_shape(const model::HyperParams& hyper, RowType type, const eviction::Policy& policy);
// Columns of notes beside a row's score; -1: not kept.
struct NoteColumns {
  int attention_sum = -1;
  int reconstruction = -1;
  int n_notes = 1;  // with the score
};
NoteColumns note_columns(const eviction::Needs& needs);
// The policy of the options: "andpro" with a budget and "none" without, unless one is named.
Result<eviction::Policy> session_policy(const SessionOptions& options);
// n_ctx of the options resolved: the model's own length without eviction, none (0) with it.
Result<Plan> plan_session(const model::HyperParams& hyper, const SessionOptions& options,
                          const eviction::Policy& policy);

int64_t rows_of(const eviction::LayerInput& in);  // over its heads

class Timeline final : public attention::KvRows {
 public:
  static Result<std::unique_ptr<Timeline>> create(const Engine& engine, const SessionOptions& options);
  ~Timeline() override;

  Status prefill(std::span<const Token> tokens, const Session::Progress& progress);
  Result<std::unique_ptr<Timeline>> fork(const SessionOptions& options) const;
  Status decode(Token token);
  Status score(std::span<const Token> tokens, const Session::EachLogits& each);

  std::span<const float> logits() const { return logits_; }
  int64_t n_tokens() const { return n_tokens_; }
  Stats stats() const;
  KvMap kv_map() const;
  std::span<const MemoryPoint> memory_trace() const { return memory_trace_; }

  // KvRows
  void append(int layer, int head, const NewRows& rows) override;
  KvHeadView view(int layer, int head) const override;

 private:
  struct Chunk {  // tokens of one chunk and what happens to a layer after it has attended over them
    std::span<const Token> tokens;
    bool evict = false;
    EvictionTarget target;
    bool all_logits = false;
  };
  struct DecodeGraph {
    tensor::Graph graph;
    tensor::Tensor ids;
    tensor::Tensor positions;
    tensor::Tensor logits;
  };
  using Report = std::function<bool(double share_of_chunk)>;  // false: stop

  Timeline(const Engine& engine, const SessionOptions& options, eviction::Policy policy, Plan plan);
  Status acceptable(std::span<const Token> tokens) const;
  Status read_prompt(std::span<const Token> tokens, const Session::Progress& progress);
  Status run_chunk(const Chunk& chunk, const Report& report);
  Status run_layer(const Chunk& chunk, int layer, std::span<const int32_t> positions);
  Status acceptable_fork(const Timeline& child) const;
  Status copy_prompt(const Timeline& parent);
  void embed(std::span<const Token> tokens);
  void head_logits(int64_t row, int64_t n_rows, std::vector<float>& out);
  Status make_room_for(int64_t n_tokens);
  int64_t blocks_needed(int64_t n_tokens) const;
  Status evict_all(const EvictionTarget& target);
  Status evict_layer(int layer, const EvictionTarget& target, int64_t n_tokens);
  bool within(int layer, const EvictionTarget& target) const;
  eviction::LayerInput layer_input(int layer, const EvictionTarget& target, int64_t n_tokens,
                                   std::vector<attention::ObservedWindow>& windows) const;
  // session/schedule_decode.cpp
  int64_t layer_blocks(int layer, int64_t ahead) const;
  EvictionTarget decoding_target() const;
  EvictionTarget forced_target(int64_t n_tokens) const;
  EvictionTarget measured_target(const EvictionTarget& target, const eviction::LayerInput& in);
  Status evict_due();
  void begin_round();
  bool falls_back(const eviction::LayerInput& in);
  // session/score_cache.cpp
  using CachedScores = std::vector<std::vector<float>>;  // [kv head][row that has a score]
  eviction::Scoring take_cached(eviction::LayerInput& in, CachedScores& cached);
  void note_scored(const eviction::LayerInput& in, bool by_policy);
  void forget_scores();
  void trace(double tokens);
  void build_decode_graph();
  void abandon_chunk();
  std::vector<Token> truncated(std::span<const Token> tokens) const;

  Engine engine_;
  SessionOptions options_;
  eviction::Policy policy_;
  eviction::Policy fallback_;  // sinks + recent, for evictions over their time limit
  Plan plan_;
  std::unique_ptr<kv::Store> store_;
  kv::SequenceId sequence_ = 0;
  attention::Taps taps_;
  attention::RaggedAttention decode_attention_;
  attention::RaggedAttention prompt_attention_;
  std::unique_ptr<DecodeGraph> decode_graph_;
  std::vector<float> hidden_;  // f32 [chunk tokens, n_embd]
  std::vector<float> logits_;  // f32 [n_vocab] of the last token
  int64_t n_tokens_ = 0;
  std::vector<Token> tokens_;  // by position, as far as they have been read [n_tokens_]; a chunk's while it is read
  Stats counters_;
  std::vector<MemoryPoint> memory_trace_;
  ScheduleState schedule_;
  bool round_fell_back_ = false;  // in the running eviction
};

}  // namespace kedge::session
