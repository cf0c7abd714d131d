// policy = scorer x allocator x schedule. Each is one file in scorers/, allocators/, schedules/, found by its listing.
// All three are const after construction; what changes while a sequence runs lives with the sequence.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eviction/defaults.h"
#include "eviction/schedule.h"
#include "kedge/error.h"
#include "kernels/attention.h"
#include "kernels/kv_view.h"

namespace kedge::gate {
struct Ageing;
}

namespace kedge::eviction {

// ---- options of a method: a table, so that help, parsing, defaults and documents have one source ----
struct OptionInfo {
  enum class Kind { integer, real, percent_or_rows, choice, flag, text };
  std::string name;
  Kind kind = Kind::integer;
  std::string fallback;  // as the user would write it, e.g. "32", "0.2", "45%", "full"
  double min = 0;
  double max = 0;
  std::vector<std::string> choices;  // for choice
  std::string help;
  bool must_be_odd = false;  // integers: kernels that are centred on a row
  // Scorers only: another spelling of the allocator's option of the same name; never part of the scorer's own values.
  bool to_allocator = false;
};
// What an option allows, for people: "1..1024", "1..63, odd", "0..100% or 0..16777216", "full|nonprotected|window".
std::string range_text(const OptionInfo& option);

// A number of rows, or a share of the budget's rows per head.
struct RowCount {
  double value = 0;
  bool is_share = false;               // value in 0..1 of the budgeted rows per kv head
  int rows(double budget_rows) const;  // rounds half up
};

// What the sequence must record or compute for a scorer; nothing is, unless a scorer or allocator asks.
struct Needs {
  int window = 0;               // last W query rows (q, y) of each query head; 0 = none
  bool values = false;          // reads K or V rows at all
  bool attention_sum = false;   // HeadInput::attention_sum: a note column of the store, counted by the budget
  bool echo = false;            // HeadInput::past, echo: two note columns of the store, counted by the budget
  bool query_moments = false;   // HeadInput::moments
  bool reconstruction = false;  // HeadInput::reconstruction: a second pass over every chunk of the prompt
  bool gate = false;            // HeadInput::gate: a note column of the store, counted by the budget
  bool ageing = false;          // HeadInput::ageing
  bool output_weights = false;  // HeadInput::w_o
  bool tokens = false;          // HeadInput::tokens, token_kinds
  bool running_anchor = false;  // HeadInput::running_y
};
// Both: what a policy needs is what its scorer and its allocator need.
Needs operator|(const Needs& a, const Needs& b);

// Parsed and range-checked values of one method, by name; every option of the table is present.
struct OptionValues {
  std::map<std::string, double> numbers;       // integer, real, flag (0/1)
  std::map<std::string, std::string> choices;  // choice, text
  std::map<std::string, RowCount> rows;        // percent_or_rows
  Needs gate = {.gate = true};                 // what asking the model's gate takes (PolicyOverrides::gate)
};

struct MethodInfo {
  std::string name;
  std::string summary;  // one line
  std::string source;   // paper and equation
  std::vector<OptionInfo> options;
};

// ---- what a scorer sees ----
// Rotary positions of a head's dimensions: pair j is dimensions (first(j), second(j)), turned by position *
// frequency[j].
struct Rotation {
  std::vector<float> frequency;  // f32 [n_pairs], radians per position (scaling applied)
  float magnitude = 1;           // of the rotated pair (YaRN's attention factor)
  bool is_split = false;         // false: pairs (2j, 2j+1); true: (j, j + n_pairs)
  int n_pairs() const { return static_cast<int>(frequency.size()); }
  int first(int pair) const { return is_split ? pair : 2 * pair; }
  int second(int pair) const { return is_split ? pair + n_pairs() : 2 * pair + 1; }
};

// Sums over the queries of one kv head's group before rotation, since the sequence began, but for the sinks' queries.
struct QueryMoments {
  int64_t n_queries = 0;
  std::vector<double> sum;     // f64 [group][head_dim]
  std::vector<double> outer;   // f64 [group][head_dim][head_dim], sum of q q^T
  std::vector<double> length;  // f64 [group][n_pairs], sum of the lengths of q's pairs (Rotation)
};

// Classes of a token, bits of HeadInput::token_kinds.
enum TokenKind : uint8_t {
  kSpecialToken = 1,      // control tokens of the vocabulary (BOS, chat markers)
  kPunctuationToken = 2,  // its text is punctuation and white space only, with at least one mark
};

// One kv head of one layer, at the moment of an eviction. Rows are in order of position.
struct HeadInput {
  int layer = 0;
  int head = 0;
  KvHeadView rows;
  // Last n_window query rows of the group: q (after RoPE) and y (pre-eviction head output),
  // f32 [n_window][group][head_dim]
  const float* q = nullptr;
  const float* y = nullptr;
  const int32_t* query_positions = nullptr;  // i32 [n_window], ascending
  int n_window = 0;
  int group = 1;
  float scale = 1;
  int32_t n_tokens = 0;                   // logical length of the sequence so far
  std::span<const uint8_t> is_protected;  // [n_rows], by index (AnDPro's anchor=nonprotected needs it)
  uint64_t seed = 0;                      // of the run, for `random`
  const AttentionKernels* kernels = nullptr;
  int n_layers = 1;
  int32_t n_keep = 0;             // rows that a head of the layer may keep on average (two-stage scorers)
  std::span<const float> cached;  // f32, of the first rows: their scores of an earlier eviction (Scoring)

  // Only what Needs asked for; empty or nullptr otherwise.
  // Attention that each row has received from all queries since it was written, mean over the group's heads: f32
  // [n_rows]
  std::span<const float> attention_sum;
  // What the text's own queries look at (session/echo.h): the mean weight that each row has received from a sample of
  // the queries since it was written, and the largest that neighbouring queries give it when they ask from behind the
  // text. Means over the group's heads, and the largest of them: f32 [n_rows]
  std::span<const float> past;
  std::span<const float> echo;
  // Largest weight that each row gets while the model repeats the text (KVzip), over the group's heads: f32 [n_rows].
  // Rows that no reconstruction has seen yet: 0.
  std::span<const float> reconstruction;
  // What a learned gate says of each row (gate/gate.h): the logit of its keep probability. f32 [n_rows]
  std::span<const float> gate;
  const gate::Ageing* ageing = nullptr;  // what judges the row anew (eviction/ageing.h)
  const QueryMoments* moments = nullptr;
  const Rotation* rotation = nullptr;  // with moments
  // The slice of the output projection that this group's heads feed: f32 [group][head_dim][n_embd].
  const float* w_o = nullptr;
  int n_embd = 0;
  std::span<const int32_t> tokens;       // i32 [n_tokens], by position
  std::span<const uint8_t> token_kinds;  // TokenKind bits [n_tokens], by position
  std::span<const float> running_y;      // mean of the sequence's last outputs, f32 [group][head_dim]
};

// How the rows of a layer get their scores. all: from the whole window. sampled: from a few of its queries, blended
// with the scores that rows have. cached: rows keep what they have; those that have none yet stay. (eviction/rescore.h)
enum class Scoring { all, sampled, cached };

// For scorers that add up the window's queries, while tokens are decoded: rows are scored again once in `refresh`
// tokens, from `queries` of the window's queries. refresh = 0: all rows from the whole window in every eviction.
struct Caching {
  int refresh = 0;
  int queries = 0;
  float memory = 0;  // weight of the score that a row has at a refresh
};

// What scores are made of, for people: one number for each row beside its score. f32 [n_rows].
struct ScorePart {
  std::string name;  // one word
  std::vector<float> value;
};

class Scorer {
 public:
  virtual ~Scorer() = default;
  virtual Needs needs() const = 0;
  // score f32 [rows.n_rows], higher = keep. Never NaN on finite input. Called concurrently for different heads.
  virtual void score(const HeadInput& in, std::span<float> score) const = 0;
  virtual Caching caching() const { return {}; }
  // A second look when it is known that k rows of a head stay: may change scores near the threshold.
  virtual void refine(const HeadInput& /*in*/, int64_t /*k*/, std::span<float> /*score*/) const {}
  // Sums over the window that mean something else over a part of it: no eviction may shorten the window.
  virtual bool needs_whole_window() const { return false; }
  // Rows kept or dropped together: runs of this many neighbouring rows share one score (1 = single rows).
  virtual int chunk() const { return 1; }
  // Published with one list for all heads of a layer: each row then gets the mean of its scores over the heads that
  // hold its position (average_over_heads()).
  virtual bool has_one_list() const { return false; }

  // Parts of the scores that score() gave the same head; none: the score says it all.
  virtual std::vector<ScorePart> explain(const HeadInput& /*in*/, std::span<const float> /*score*/) const { return {}; }

  // A scorer that sums over the window's queries may be split by query, so that few heads fill many threads:
  // add_queries() adds what queries [begin, end) of the window say (it never zeroes `sum`), finish() turns the sum over
  // all queries into scores. The split is cut by geometry (decide.cpp), never by thread count.
  virtual bool splits_by_query() const { return false; }
  virtual void add_queries(const HeadInput& /*in*/, int /*begin*/, int /*end*/, std::span<float> /*sum*/) const {}
  virtual void finish(const HeadInput& /*in*/, std::span<float> /*sum*/) const {}
};

// ---- allocator: scores and a total -> rows per head ----
struct LayerScores {
  std::vector<std::span<const float>> score;           // [n_kv_heads][n_rows of that head]
  std::vector<std::span<const uint8_t>> is_protected;  // same shape; protected rows are always kept
  int chunk = 1;                                       // the scorer's: rows compete in runs of this many (see select())
  int layer = 0;
  int n_layers = 1;
  std::vector<double> measured;  // [n_kv_heads] what measure() said when the layer was scored; empty: nothing was
  double demand = 1;             // what demand() said when the layer was scored
};
class Allocator {
 public:
  virtual ~Allocator() = default;
  virtual Needs needs() const { return {}; }

  // How the layers of a model share a budget. equal: the same total each. weighted: layer_weight() says, before
  // anything is read. shared: allocate_layers() divides one total over the layers that have been scored so far; while a
  // prompt is read layer by layer, earlier layers are divided again as later ones join, from their stored scores
  // (eviction/share_layers.h).
  enum class Layers { equal, weighted, shared };
  virtual Layers layers() const { return Layers::equal; }
  // weighted: relative share of a layer; only ratios count. > 0.
  virtual double layer_weight(int /*layer*/, int /*n_layers*/) const { return 1; }
  // A number for one head, when its layer is scored with all its rows: LayerScores::measured. Called concurrently for
  // different heads; the window is the allocator's own.
  virtual double measure(const HeadInput& /*in*/) const { return 0; }
  // shared: rewrites a head's scores so that rows of different heads and layers compare, or leaves them. Rows of a
  // chunk have its sum by now. The order of the unprotected rows must not change. Called as measure() is.
  virtual void make_comparable(const HeadInput& /*in*/, std::span<float> /*score*/) const {}
  // shared: a number that is measured once, when the layer is scored with all its rows, and kept with the sequence. >
  // 0.
  virtual double demand(const LayerScores& /*layer*/) const { return 1; }
  // shared: rows [layer][kv head], sums to exactly min(total, rows there are), minima as below.
  virtual std::vector<std::vector<int32_t>> allocate_layers(std::span<const LayerScores> /*layers*/,
                                                            int64_t /*total*/) const {
    return {};
  }
  // Rows per kv head of one layer: sums to exactly min(total, rows there are), each at least
  // max(protected rows of the head, 1) and at most its rows. `total` >= the sum of those minima (the planner's check);
  // a smaller one lowers the largest minima first and leaves every head a row.
  virtual std::vector<int32_t> allocate(const LayerScores& layer, int64_t total) const = 0;
};

// What a scorer says of the six rows in eviction/example.h: shown in its page, checked by a test.
struct WorkedExample {
  std::string options;       // "window=2,pool=1"
  std::vector<float> score;  // f32 [6]; within 1e-3 * max(1, |score|)
};

struct Method {  // a registry entry: make() gets values that passed the option table
  MethodInfo info;
  // defaults that belong to the scorer: what it is published with
  std::string default_allocator = {};     // scorers only
  std::string default_schedule = {};      // scorers only; kEveryTurn of most
  std::string default_sinks = {};         // scorers only, e.g. "4"
  std::string default_recent = {};        // scorers only, e.g. "45%" or "32"
  ModelWideDefaults model_wide = {};      // scorers that ask a gate
  std::vector<std::string> aliases = {};  // other names that are understood, e.g. kvpress's
  bool evicts = true;                     // false: `none`
  // Work of one eviction of a kv head with n rows, for people: "n", "window * n * head_dim", "2 prompts", ...
  std::string cost = "n";
  WorkedExample example = {};  // scorers only
  // Values that the table cannot judge, such as a file's content; nullptr: nothing to add. Called before make.
  Status (*validate)(const OptionValues&) = nullptr;
  std::unique_ptr<Scorer> (*make_scorer)(const OptionValues&) = nullptr;
  std::unique_ptr<Allocator> (*make_allocator)(const OptionValues&) = nullptr;
  std::unique_ptr<Schedule> (*make_schedule)(const OptionValues&) = nullptr;
};

// Generated from scorers/ etc., sorted by name. Every scorer also has the options `recent` and `sinks`.
const std::vector<Method>& scorers();
const std::vector<Method>& allocators();
const std::vector<Method>& schedules();

// SCORER[:k=v,...][/ALLOCATOR[:k=v,...]][/SCHEDULE[:k=v,...]]; the last two in either order.
// Error usage: unknown names and keys (names the nearest valid one), values out of range.
struct Policy {
  std::string text;  // resolved, every option spelled out; parses back to the same policy
  const Method* scorer_method = nullptr;
  std::unique_ptr<Scorer> scorer;
  std::unique_ptr<Allocator> allocator;
  std::unique_ptr<Schedule> schedule;
  bool evicts = true;
  RowCount sinks;
  RowCount recent;            // protected newest rows; not the observation window
  int cold_start_tokens = 0;  // the scorer's option `cold`: below this nothing is evicted while it still fits
  Needs needs() const;        // of the scorer and the allocator; nothing where nothing is evicted
};
// From --kv-sinks and --kv-recent; empty: the scorer's default. A scorer's own option `recent` or `sinks` wins over
// both.
struct PolicyOverrides {
  std::string sinks;
  std::string recent;
  // What scorers that ask the model's gate need of it (eviction/ageing.h): the logit that is noted with each row, or
  // what its ageing stage reads.
  Needs gate = {.gate = true};
  bool gate_ranks_model = false;  // its logits rank the rows of all heads: Method::model_wide
};
Result<Policy> parse_policy(std::string_view text, const PolicyOverrides& overrides);

}  // namespace kedge::eviction
