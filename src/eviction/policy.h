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

#include "kedge/error.h"
#include "kernels/attention.h"
#include "kernels/kv_view.h"

namespace kedge::eviction {

// ---- options of a method: a table, so that help, parsing, defaults and documents have one source ----
struct OptionInfo {
  enum class Kind { integer, real, percent_or_rows, choice, flag };
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

// Parsed and range-checked values of one method, by name; every option of the table is present.
struct OptionValues {
  std::map<std::string, double> numbers;  // integer, real, flag (0/1)
  std::map<std::string, std::string> choices;
  std::map<std::string, RowCount> rows;  // percent_or_rows
};

struct MethodInfo {
  std::string name;
  std::string summary;  // one line
  std::string source;   // paper and equation
  std::vector<OptionInfo> options;
};

// ---- what a scorer sees ----
struct Needs {
  int window = 0;       // last W query rows (q, y) of each query head; 0 = none
  bool values = false;  // reads K or V rows at all
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
};

class Scorer {
 public:
  virtual ~Scorer() = default;
  virtual Needs needs() const = 0;
  // score f32 [rows.n_rows], higher = keep. Never NaN on finite input. Called concurrently for different heads.
  virtual void score(const HeadInput& in, std::span<float> score) const = 0;
  // Rows kept or dropped together: runs of this many neighbouring rows share one score (1 = single rows).
  virtual int chunk() const { return 1; }

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
};
class Allocator {
 public:
  virtual ~Allocator() = default;
  // Rows per kv head of one layer: sums to exactly min(total, rows there are), each at least
  // max(protected rows of the head, 1) and at most its rows. `total` >= the sum of those minima (the planner's check);
  // a smaller one lowers the largest minima first and leaves every head a row.
  virtual std::vector<int32_t> allocate(const LayerScores& layer, int64_t total) const = 0;
};

// ---- schedule: when to evict ----
struct ScheduleInfo {
  bool after_prompt = true;
  bool between_chunks = true;
  int every_n = 0;  // while decoding; 0 = only when the next token would not fit
};
class Schedule {
 public:
  virtual ~Schedule() = default;
  virtual ScheduleInfo info() const = 0;
};

struct Method {  // a registry entry: make() gets values that passed the option table
  MethodInfo info;
  // defaults that belong to the scorer: what it is published with
  std::string default_allocator = {};     // scorers only
  std::string default_schedule = {};      // scorers only
  std::string default_sinks = {};         // scorers only, e.g. "4"
  std::string default_recent = {};        // scorers only, e.g. "45%" or "32"
  std::vector<std::string> aliases = {};  // other names that are understood, e.g. kvpress's
  int cold_start_tokens = 0;              // scorers only: below this many tokens nothing is evicted while it still fits
  bool evicts = true;                     // false: `none`
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
  RowCount recent;  // protected newest rows; not the observation window
  int cold_start_tokens = 0;
};
// From --kv-sinks and --kv-recent; empty: the scorer's default. A scorer's own option `recent` or `sinks` wins over
// both.
struct PolicyOverrides {
  std::string sinks;
  std::string recent;
};
Result<Policy> parse_policy(std::string_view text, const PolicyOverrides& overrides);

}  // namespace kedge::eviction
