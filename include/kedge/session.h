// One timeline of tokens over a model inside a fixed number of KV bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kedge/budget.h"
#include "kedge/error.h"
#include "kedge/explain.h"
#include "kedge/model.h"
#include "kedge/policy.h"
#include "kedge/protection.h"
#include "kedge/stats.h"

namespace kedge {

enum class Overflow { evict, error, truncate };  // what happens when the tokens do not fit the budget

// How a prompt that does not fit is read. layer_major: each layer attends over the whole prompt before it is evicted
// (exact); chunked: evicted between chunks (any length in any budget). automatic: layer_major where the budget has room
// for it.
enum class PrefillOrder { automatic, layer_major, chunked };

struct SessionOptions {
  Budget budget;
  std::string policy;     // empty: "echo" with a budget ("gate" with one that ranks all heads), "none" without
  std::string sinks;      // "4"; empty: the policy's default
  std::string recent;     // "45%" or "64"; empty: the policy's default
  std::string gate_mode;  // whether a learned gate discards rows ahead of the budget (docs/gate.md); empty: it ranks
  Protection protect;     // rows that stay because of what their tokens are
  Overflow overflow = Overflow::evict;
  PrefillOrder order = PrefillOrder::automatic;
  int n_ctx = 0;       // logical length allowed; 0: what the model was trained to, or more if the budget evicts
  int n_batch = 2048;  // tokens of a chunk at most, where the prompt is read in chunks
  int n_ubatch = 512;  // tokens of one graph
  // Types of key and of value rows: f16 | bf16 | q8_0 (or q8) | q4_0 (or q4). Where one is quantised, at least
  // f16_window newest rows of a head (a multiple of 16) are held in f16 until they leave that window.
  std::string cache_type_k = "f16";
  std::string cache_type_v = "f16";
  int f16_window = 32;
  uint64_t seed = 0;  // of the `random` policy
  // Of an eviction of all layers, 0: none. A layer that would exceed its part gets sinks + recent rows, and is counted.
  double policy_time_limit_ms = 0;
  // The request, which a share budget and the planner need: tokens of the prompt and tokens that may follow.
  int64_t expected_prompt = 0;
  int64_t expected_generated = -1;  // -1: not known
  // Tokens that may follow a mark() and be taken back: the budget leaves room for them beside the marked rows. -1: as
  // much as for the marked rows (half of a budget in bytes; beside it where the budget is in rows). 0: none planned.
  int64_t branch_tokens = 0;
  int n_observed = 0;         // query rows kept for forks whose policies ask for more than this session's own
  Histories histories;        // likewise (kedge/policy.h); `reconstruction` needs all rows held
  bool trace_memory = false;  // record memory_trace()
  bool explain = false;  // record what explain() tells: beside the budget, some 16 bytes for each token of each kv head
  // Perplexity: evict once after the prompt to the budget's rows and hold what follows beside them.
  bool hold_continuation = false;
};

std::vector<std::string> cache_types();  // the types of rows that a session takes
struct SamplerOptions {
  float temperature = 0.8F;  // <= 0: greedy
  int top_k = 40;
  float top_p = 0.95F;
  float min_p = 0.05F;
  float repeat_penalty = 1.0F;
  int repeat_last_n = 64;
  float length_penalty = 1.0F;  // the odds of ending, at each token and before temperature, are divided by it
  uint32_t seed = 0xFFFFFFFF;   // that value: random
};

// When a mark's rows are in the way: a firm one stands (what does not fit is an error), a yielding one is dropped.
enum class Mark { firm, yielding };

class Session {
 public:
  // Errors: usage (policy), budget_impossible (arithmetic and the smallest budget that works), context_too_long.
  static Result<std::unique_ptr<Session>> create(const Model& model, const SessionOptions& options);
  ~Session();

  // Reads tokens; logits of the last one are then in logits(). `progress(done, total)` is called between graphs;
  // returning false stops (error cancelled; the session is then as before the call or ended cleanly).
  using Progress = std::function<bool(int64_t done, int64_t total)>;
  Status prefill(std::span<const Token> tokens, const Progress& progress = {});

  // A session over the same tokens under other options, without reading them again: in all it holds and says like one
  // that had read them in layer-major order itself, in a store of its own. Every row must still be held here.
  // Errors: those of create(); usage: other cache types, rows evicted here, options under which a prompt of this
  // length is read in chunks (BudgetMeaning::one_chunk), a policy that needs more than n_observed and histories say.
  Result<std::unique_ptr<Session>> fork(const SessionOptions& options) const;

  // A session that goes on as this one would, bit for bit, whatever was evicted: copies of the rows in a store of its
  // own, the same options, observations, counters and sampler. Error failed (memory).
  Result<std::unique_ptr<Session>> fork() const;

  // Marks this point for rewind(). The rows are shared with what follows until that changes them (eviction never writes
  // into a shared block), so marking costs nothing; what follows may own the rest of the budget. One mark at a time.
  void mark(Mark kind = Mark::firm);
  bool has_mark() const;
  void drop_mark();
  // Back to the mark, which stays: rows, logits, sampler and counters are those of a session that never went on. Error
  // usage: there is no mark.
  Status rewind();
  // Cuts off everything from token n_tokens on, where that is exact: no row was evicted since, and what the policy
  // observed is still there. logits() are empty until more is read. Error usage: why not; nothing has changed then.
  Status rewind(int64_t n_tokens);

  // One file of everything that what follows depends on, each part with a checksum (docs/sessions.md). `app_data`: any
  // bytes of the caller's. Written beside `path`, then renamed. A mark is not saved. Error failed.
  Status save(const std::string& path, std::string_view app_data = {}) const;
  // The saved session under its own options; any bytes are safe. Errors name the file, the part, what was found and
  // what is allowed: failed (unreadable, damaged), usage (saved with another model), those of create().
  static Result<std::unique_ptr<Session>> restore(const Model& model, const std::string& path);
  const std::string& app_data() const;  // of the file it was restored from; empty otherwise

  // Appends one token and computes the logits of the next. The budget holds; rows are evicted as the schedule says.
  Status decode(Token token);

  // Teacher forcing: appends tokens as one batch, nothing is evicted; logits f32 [tokens.size()][n_vocab] go to `each`
  // row by row.
  using EachLogits = std::function<void(int64_t index, std::span<const float> logits)>;
  Status score(std::span<const Token> tokens, const EachLogits& each);

  std::span<const float> logits() const;  // f32 [n_vocab]
  int64_t n_tokens() const;
  std::span<const Token> tokens() const;  // all that were read, evicted or not
  const SessionOptions& options() const;
  // Draws the next token from logits() (does not append it).
  void set_sampler(const SamplerOptions& options);
  SamplerOptions sampler() const;  // the seed is the one in use
  Token sample();

  Stats stats() const;
  KvMap kv_map() const;
  std::span<const MemoryPoint> memory_trace() const;
  std::vector<LayerStats> layer_stats() const;
  // The best and the worst tokens by what evictions said of them. Needs SessionOptions::explain. Error usage.
  Result<Explanation> explain(const ExplainOptions& options) const;

 private:
  Session();
  void accept(std::span<const Token> tokens);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// What a budget means for a model and a request, without reading anything: one line for people.
struct BudgetMeaning {
  int64_t budget_bytes = 0;
  int64_t full_bytes = 0;    // full cache of the request in f16
  int64_t token_bytes = 0;   // K and V rows of one token in the options' types, without metadata
  double rows_per_head = 0;  // kept on average after an eviction
  bool one_chunk = true;     // the prompt is read layer by layer, or nothing is evicted: fork() can do it
  std::string policy;        // resolved
  std::string plan;          // prefill order, chunk, eviction targets
};
Result<BudgetMeaning> explain_budget(const Model& model, const SessionOptions& options);

// What a session file holds, without a model and without its rows being read.
struct SessionFileInfo {
  std::string model_name;
  std::string architecture;
  std::string model_sha256;  // of the model file's metadata and tensor table, its size, and samples of its tensor data
  SessionOptions options;
  std::string policy;  // resolved
  std::string kernels;
  Stats stats;
  int64_t n_tokens = 0;
  int64_t file_bytes = 0;
  int64_t app_data_bytes = 0;
  struct Section {
    std::string name;
    int64_t bytes = 0;
    uint32_t crc32 = 0;
  };
  std::vector<Section> sections;
};
Result<SessionFileInfo> inspect_session_file(const std::string& path);  // checked as by restore(); error failed
bool is_session_file(const std::string& path);  // by its first bytes; false where there is no such file

}  // namespace kedge
