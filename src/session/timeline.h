// One timeline of tokens: prefill, decode, score, evict. Everything that changes while a sequence runs lives here.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attention/ragged_attention.h"
#include "attention/taps.h"
#include "eviction/gate_mode.h"
#include "eviction/policy.h"
#include "eviction/select.h"
#include "eviction/share_layers.h"
#include "kedge/error.h"
#include "kedge/session.h"
#include "kv/store.h"
#include "model/model.h"
#include "model/tokenizer.h"
#include "session/ledger.h"
#include "session/planner.h"
#include "session/protection/protected_text.h"
#include "session/reading.h"
#include "session/schedule_state.h"
#include "session/snapshot.h"
#include "tensor/compute.h"

namespace kedge::session {

struct FileView;           // session/file.h
struct SessionFileExtras;  // session/file.h
struct SavedHistory;       // session/history_bytes.h

struct Engine {  // what sessions share
  tensor::Compute* compute = nullptr;
  const model::Model* model = nullptr;
  const AttentionKernels* kernels = nullptr;
  const model::Tokenizer* tokenizer = nullptr;  // sessions that need no token's text need none
  // Of policies that ask a gate: its logits of a layer's rows as nodes of a graph (RaggedAttention::Options), where it
  // has an append stage, and its ageing stage, where it has one.
  attention::RowNodes gate = {};
  const gate::Ageing* ageing = nullptr;
  bool gate_ranks_model = false;                         // gate::GateInfo::ranks
  std::span<const gate::KeepThreshold> gate_curve = {};  // what its thresholds keep
  std::string gate_sha256 = {};                          // of the gate's file
};

// What a session records: for its own policy and for those of its forks.
eviction::Needs recorded_needs(const SessionOptions& options, const eviction::Policy& policy);
// With the note columns that `recorded` takes. Error usage: cache types or window of the options.
Result<kv::StoreShape> store_shape(const model::HyperParams& hyper, const SessionOptions& options,
                                   const eviction::Needs& recorded);
// Columns of notes beside a row's score; -1: not kept.
struct NoteColumns {
  int attention_sum = -1;
  int past = -1;
  int echo = -1;
  int reconstruction = -1;
  int gate = -1;
  int n_notes = 1;  // with the score
};
NoteColumns note_columns(const eviction::Needs& needs);
// What the engine's gate means for policies that ask one.
eviction::PolicyOverrides gate_overrides(const Engine& engine);
// The policy of the options, or eviction::default_scorer() where none is named.
Result<eviction::Policy> session_policy(const Engine& engine, const SessionOptions& options);
// Error usage: a mode that cannot be read; a mode, policy or history that asks a gate where the engine has none.
Result<eviction::GateMode> session_gate_mode(const Engine& engine, const SessionOptions& options,
                                             const eviction::Policy& policy);
// What the planner is asked.
Request session_request(const Engine& engine, const SessionOptions& options, const eviction::Needs& recorded);
// n_ctx of the options resolved: the model's own length without eviction, none (0) with it.
Result<Plan> plan_session(const Engine& engine, const SessionOptions& options, const eviction::Policy& policy);

class Observations;
struct LayerQueries;
struct Probe;

int64_t rows_of(const eviction::LayerInput& in);  // over its heads

class Timeline final : public attention::KvRows {
 public:
  static Result<std::unique_ptr<Timeline>> create(const Engine& engine, const SessionOptions& options);
  ~Timeline() override;

  Status prefill(std::span<const Token> tokens, const Session::Progress& progress);
  Result<std::unique_ptr<Timeline>> fork(const SessionOptions& options) const;
  // A timeline of its own over copies of the same rows, with the same options: what follows is what would follow here.
  Result<std::unique_ptr<Timeline>> fork() const;
  Status decode(Token token);
  Status score(std::span<const Token> tokens, const Session::EachLogits& each);

  std::span<const float> logits() const { return logits_; }
  int64_t n_tokens() const { return n_tokens_; }
  const std::vector<Token>& tokens() const { return tokens_; }
  const SessionOptions& options() const { return asked_; }

  // mark.cpp: coming back to a point (kedge/session.h)
  void mark(Mark kind);
  Status rewind();
  Status rewind(int64_t n_tokens);
  void drop_mark();
  bool has_mark() const { return mark_.has_value(); }

  // resume.cpp: everything that what follows depends on, as a file and back
  Status save(const SessionFileExtras& extras, const std::string& path) const;
  static Result<std::unique_ptr<Timeline>> restore(const Engine& engine, const FileView& file);
  Stats stats() const;
  KvMap kv_map() const;
  std::span<const MemoryPoint> memory_trace() const { return memory_trace_; }
  const Observations& observations() const { return *observations_; }

  // Called before each eviction of a layer with what the policy's scorer sees of it. Forks are not watched.
  using Watch = std::function<void(const eviction::LayerInput&)>;
  void watch(Watch watch) { watch_ = std::move(watch); }
  std::vector<LayerStats> layer_stats() const;                       // explain.cpp
  Result<Explanation> explain(const ExplainOptions& options) const;  // explain.cpp

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
  struct LayerGraph {  // one graph of a prompt
    int layer = 0;
    std::span<float> hidden;  // f32 [n, n_embd], read and then written
    std::span<const int32_t> positions;
    bool only_last_row = false;  // only the last of the rows is written
    attention::RaggedAttention* port = nullptr;
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
  Snapshot snapshot() const;
  void adopt(const Snapshot& from);
  RowNotes row_notes() const;
  void set_row_notes(const RowNotes& from);
  Status take_over(const FileView& file);
  Status check_pending(const Snapshot& at) const;
  SavedHistory saved_history() const;
  bool has_room(int64_t n_tokens);
  bool branch_has_room(int64_t n_tokens) const;
  std::vector<int> eviction_order(const EvictionTarget& mean) const;
  Status prepare_eviction(const EvictionTarget& target);
  Status run_graph(const LayerGraph& of);
  Status acceptable_fork(const Timeline& child) const;
  Status copy_prompt(const Timeline& parent);
  Status copy_layer(const Timeline& parent, int layer);
  void embed(std::span<const Token> tokens, std::vector<float>& hidden);
  void start_recording(const eviction::Needs& recorded);
  void add_queries(int layer, const LayerQueries* queries);  // nullptr: those that the ring holds
  void add_due_queries();
  void add_pending_queries();
  // Repetitions of the chunk, whose queries say what of it matters (reconstruct.cpp).
  bool is_repeated(const Chunk& chunk) const;
  void start_probes(const Chunk& chunk);
  Status run_probes(int layer, int64_t n);
  Status run_probe(int layer, Probe& probe);
  void head_logits(int64_t row, int64_t n_rows, std::vector<float>& out);
  Status make_room_for(int64_t n_tokens);
  Status run_appending(tensor::Graph& graph, int layer_begin, int layer_end, int n_rows);
  int64_t blocks_needed(int64_t n_tokens) const;
  Status evict_all(const EvictionTarget& target);
  Status evict_layer(int layer, const EvictionTarget& target, int64_t n_tokens);
  bool within(int layer, const EvictionTarget& target) const;
  // Layers that differ (session/evict_layers.cpp).
  bool shares_layers() const { return policy_.allocator->layers() == eviction::Allocator::Layers::shared; }
  bool keeps_shares() const;
  bool asks_gate() const { return gate_column_ >= 0 || policy_.needs().ageing; }
  void note_shares();
  std::vector<EvictionTarget> layer_targets(const EvictionTarget& mean) const;  // [n_layers]
  EvictionTarget layer_target(const EvictionTarget& mean, int layer) const;
  Status join_layer(int layer, const EvictionTarget& mean, int64_t n_tokens);
  Status divide_all(const EvictionTarget& mean);
  eviction::LayerInput score_shared(int layer, const EvictionTarget& mean, int64_t n_tokens);
  void score_as_others(int layer, eviction::ScoredLayer& scored) const;
  Status divide_layers(eviction::LayerInput all, int n_layers);
  void record_division(const eviction::LayerInput& all, std::span<const eviction::SharedLayer> layers,
                       const eviction::Division& division);
  eviction::LayerInput layer_input(int layer, const EvictionTarget& target, int64_t n_tokens,
                                   std::vector<attention::ObservedWindow>& windows) const;
  // Protection by the text (protect.cpp).
  Status open_text();
  HeadRoom head_room(const EvictionTarget& target, int64_t n_tokens) const;
  Status protection_fits(const EvictionTarget& target, int64_t n_tokens) const;
  Status prompt_protection_fits(int64_t n_tokens, bool planned, bool chunked) const;
  std::string enough_budget(int64_t n_rows) const;
  const Pinned& pinned_at(int64_t n_tokens) const;
  void add_protection(Stats& stats) const;
  // session/schedule_decode.cpp
  int64_t layer_blocks(int layer, int64_t ahead) const;
  EvictionTarget decoding_target() const;
  EvictionTarget forced_target(int64_t n_tokens) const;
  EvictionTarget measured_target(const EvictionTarget& target, const eviction::LayerInput& in);
  Status evict_due();
  LeastRows least_rows() const;
  bool can_cut_to(const EvictionTarget& target) const;
  double whole_use(const EvictionTarget& target) const;
  Status divide_due(const EvictionTarget& target, eviction::LayerMoment at);
  // session/gate_discard.cpp
  void follow_pressure(int64_t n_tokens);
  std::vector<uint8_t> beyond_the_gate(const KvHeadView& rows, int64_t n_tokens) const;
  Status discard_layer(int layer, int64_t n_tokens);
  Status discard_due();
  void begin_round();
  bool falls_back(const eviction::LayerInput& in);
  void count_fallbacks(int64_t n);  // layers
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
  SessionOptions asked_;    // as they were given
  SessionOptions options_;  // with what the plan made of them
  eviction::Policy policy_;
  eviction::GateMode gate_mode_;
  eviction::Policy fallback_;  // sinks + recent, for evictions over their time limit
  Plan plan_;
  std::unique_ptr<kv::Store> store_;
  int gate_column_ = -1;  // NoteColumns::gate
  kv::SequenceId sequence_ = 0;
  attention::Taps taps_;
  attention::RaggedAttention decode_attention_;
  attention::RaggedAttention prompt_attention_;
  std::unique_ptr<attention::RaggedAttention> probe_attention_;  // leaves the ring alone
  std::vector<float> graph_queries_;  // f32 [tokens of a prompt's graph][n_heads * head_dim], where somebody wants them
  std::unique_ptr<Observations> observations_;
  std::vector<Probe> probes_;  // of the chunk that is being read
  std::unique_ptr<DecodeGraph> decode_graph_;
  std::vector<float> hidden_;  // f32 [chunk tokens, n_embd]
  std::vector<float> logits_;  // f32 [n_vocab] of the last token
  int64_t n_tokens_ = 0;
  std::vector<Token> tokens_;  // by position, as far as they have been read [n_tokens_]; a chunk's while it is read
  std::unique_ptr<ProtectedText> text_;  // what tokens_ say; while a prompt is read, of all of its tokens
  EvictionTarget last_target_;           // of the last eviction
  Stats counters_;
  Ledger ledger_;
  std::vector<MemoryPoint> memory_trace_;
  Watch watch_;
  std::vector<LayerNote> layer_notes_;  // [n_layers], empty unless layers share a total
  ScheduleState schedule_;
  bool round_fell_back_ = false;   // in the running eviction
  int64_t evicted_until_ = 0;      // length of the sequence at its last eviction
  int64_t evicted_before_ = 0;     // evicted rows that the store does not count; negative: that were taken back
  int64_t peak_before_bytes_ = 0;  // of the store that held these rows before a restore
  struct MarkedPoint {
    kv::SequenceId sequence = 0;  // shares the blocks that the timeline held
    Snapshot at;
    RowNotes notes;
    Mark kind = Mark::firm;
    Plan plan;  // the timeline's own: while a firm mark stands, plan_ is that of a branch
  };
  std::optional<MarkedPoint> mark_;
};

}  // namespace kedge::session
