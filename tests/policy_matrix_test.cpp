// Every scorer x allocator x schedule x KV type of the registry, on a tiny model: what any policy owes under any
// condition. One test per scorer; a failure names its combination.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>

#include "door.h"
#include "kedge/policy.h"
#include "support/kl.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace kedge::test {
namespace {

constexpr int kPrompt = 128;   // beyond any cold start
constexpr int kDecoded = 30;   // more than the blocks that reading the prompt took can hold
constexpr int kUntouched = 3;  // decoded under a budget that holds everything
constexpr int kSinks = 3;
constexpr int kRecent = 8;
constexpr int kBlockRows = 16;
// Two threads on a machine that others keep busy wait a time slice at every node of a graph: half a second for one
// comparison at a load of 16, two milliseconds alone. Every so many of a scorer's combinations are compared; a number
// that shares no factor with those of allocators, schedules and types meets all of them. KEDGE_MATRIX_THREADS=1: all.
constexpr int kThreadsEvery = 11;
constexpr int64_t kHeads = 2 * 2;  // layers x kv heads
constexpr int kKeepPercent = 30;
constexpr const char* kDecodeBudget = "30tok";

int threads_every() {
  const char* asked = std::getenv("KEDGE_MATRIX_THREADS");
  return asked == nullptr ? kThreadsEvery : std::max(1, std::atoi(asked));
}

std::vector<std::string> names_of(const std::string& role) {
  std::vector<std::string> names;
  for (const PolicyMethod& method : list_policies()) {
    if (method.role == role)
      names.push_back(method.name);
  }
  return names;
}

struct KvTypes {
  std::string k, v;
};

// Every type for both, and where K and V are chosen separately every type of K beside another one of V.
std::vector<KvTypes> kv_types() {
  const std::vector<std::string> types = cache_types();
  std::vector<KvTypes> out;
  for (size_t i = 0; i < types.size(); ++i) {
    out.push_back({types[i], types[i]});
    if (has_separate_cache_types<SessionOptions>())
      out.push_back({types[i], types[(i + 1) % types.size()]});
  }
  return out;
}

bool is_plain(const KvTypes& types) { return types.k.ends_with("f16") && types.v.ends_with("f16"); }

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

bool all_finite(std::span<const float> x) {
  return std::ranges::all_of(x, [](float v) { return std::isfinite(v); });
}

// The logits after the prompt and after each of kUntouched tokens, of the full cache.
using Reference = std::vector<std::vector<float>>;

class PolicyMatrix : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string path = dir_.file("tiny.gguf");
    write_tiny_model(
        make_tiny_weights(
            {.n_heads = 4, .head_dim = 16, .n_embd = 32, .n_ff = 32, .n_vocab = 258, .qk_gain = 1.4F, .seed = 7}),
        path);
    one_ = open_model(path, 1);
    two_ = open_model(path, 2);
  }

  SessionOptions options_of(const std::string& policy, const KvTypes& types, const std::string& budget_text) const {
    SessionOptions options = session_options({.budget = budget_text, .policy = policy, .prompt = kPrompt});
    set_cache_types(options, types.k, types.v);
    options.expected_generated = kDecoded;
    options.sinks = std::to_string(kSinks);
    options.recent = std::to_string(kRecent);
    options.seed = 5;
    options.n_batch = 32;
    return options;
  }

  const Reference& reference(const KvTypes& types);
  void untouched(const std::string& policy, const KvTypes& types);
  void exact_budget(const std::string& policy, const KvTypes& types);
  void on_two_threads(Session& session, const SessionOptions& options, const KvTypes& types);
  void decoding(const std::string& policy, const KvTypes& types);
  void expect_sound(const Session& session, const KvTypes& types) const;
  void all_of(const std::string& policy, const KvTypes& types) {
    SCOPED_TRACE(policy + " with K " + types.k + ", V " + types.v);
    ++combinations_;
    untouched(policy, types);
    if (GetParam() == "none")
      return;
    exact_budget(policy, types);
    decoding(policy, types);
  }

  TempDir dir_;
  std::unique_ptr<Model> one_, two_;
  std::vector<Token> prompt_ = random_tokens(kPrompt, 31);
  std::vector<Token> more_ = random_tokens(kDecoded, 32);
  std::map<std::string, Reference> references_;              // by types
  std::map<std::string, std::unique_ptr<Session>> parents_;  // by types: the full cache, on two threads
  int combinations_ = 0;
};

const Reference& PolicyMatrix::reference(const KvTypes& types) {
  Reference& out = references_[types.k + types.v];
  if (out.empty()) {
    const auto session = open_session(*one_, options_of("none", types, ""));
    must(session->prefill(prompt_));
    out.push_back(logits_of(*session));
    for (int i = 0; i < kUntouched; ++i) {
      must(session->decode(more_[i]));
      out.push_back(logits_of(*session));
    }
  }
  return out;
}

// A budget that holds everything changes no bit. `pressure` keeps a part of any budget free: it gets twice as much.
void PolicyMatrix::untouched(const std::string& policy, const KvTypes& types) {
  const Reference& expected = reference(types);
  const auto session = open_session(*one_, options_of(policy, types, policy.ends_with("/pressure") ? "4MiB" : "100%"));
  must(session->prefill(prompt_));
  EXPECT_TRUE(same_bits(session->logits(), expected[0])) << "nothing evicted, after the prompt";
  for (int i = 0; i < kUntouched; ++i) {
    must(session->decode(more_[i]));
    EXPECT_TRUE(same_bits(session->logits(), expected[i + 1])) << "nothing evicted, after token " << i;
  }
  EXPECT_EQ(session->stats().evicted_rows, 0);
  EXPECT_EQ(session->stats().kv_rows, (kPrompt + kUntouched) * kHeads);
}

// Order, protected rows, finite logits, bytes, and no block held without need.
void PolicyMatrix::expect_sound(const Session& session, const KvTypes& types) const {
  const Stats stats = session.stats();
  const KvMap map = session.kv_map();
  const auto n_tokens = static_cast<int32_t>(session.n_tokens());
  int64_t rows = 0;
  int64_t slots = 0;
  for (size_t layer = 0; layer < map.layers.size(); ++layer) {
    for (size_t head = 0; head < map.layers[layer].size(); ++head) {
      const std::vector<int32_t>& held = map.layers[layer][head];
      const auto where = [&] { return "layer " + std::to_string(layer) + " head " + std::to_string(head); };
      ASSERT_GE(held.size(), size_t{kSinks + kRecent}) << where();
      EXPECT_TRUE(std::ranges::adjacent_find(held, std::greater_equal<>()) == held.end()) << where() << ": order";
      for (int32_t i = 0; i < kSinks; ++i)
        EXPECT_EQ(held[static_cast<size_t>(i)], i) << where() << ": a sink";
      for (int32_t i = 1; i <= kRecent; ++i)
        EXPECT_EQ(held[held.size() - static_cast<size_t>(i)], n_tokens - i) << where() << ": a recent row";
      rows += static_cast<int64_t>(held.size());
      slots += (static_cast<int64_t>(held.size()) + kBlockRows - 1) / kBlockRows * kBlockRows;
    }
  }
  EXPECT_EQ(rows, stats.kv_rows);
  EXPECT_EQ(rows + stats.evicted_rows, n_tokens * kHeads);
  EXPECT_LE(stats.kv_live_bytes, stats.kv_budget_bytes);
  EXPECT_LE(stats.kv_peak_bytes, stats.kv_budget_bytes);
  EXPECT_TRUE(all_finite(session.logits())) << "logits";
  // Blocks that hold no row would lower the fill; quantised rows may stand in two lists of blocks.
  const int64_t spare = is_plain(types) ? 0 : kHeads * kBlockRows;
  EXPECT_GE(stats.fill, static_cast<double>(rows) / static_cast<double>(slots + spare) - 1e-9) << "blocks not freed";
}

// Live bytes before and after the evictions of a prompt: at least one falls, none rises.
void expect_freed(std::span<const MemoryPoint> trace) {
  int falls = 0;
  for (size_t i = 1; i < trace.size(); ++i) {
    if (trace[i].evicted_rows == trace[i - 1].evicted_rows)
      continue;
    EXPECT_LE(trace[i].kv_live_bytes, trace[i - 1].kv_live_bytes) << "an eviction took memory";
    falls += trace[i].kv_live_bytes < trace[i - 1].kv_live_bytes ? 1 : 0;
  }
  EXPECT_GT(falls, 0) << "no eviction freed memory";
}

// A share of the prompt, evicted once: exactly the rows that the plan says.
void PolicyMatrix::exact_budget(const std::string& policy, const KvTypes& types) {
  SessionOptions options = options_of(policy, types, std::to_string(kKeepPercent) + "%");
  options.hold_continuation = true;
  options.trace_memory = true;
  const Result<BudgetMeaning> plan = explain_budget(*one_, options);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->rows_per_head, kPrompt * kKeepPercent / 100);
  const auto session = open_session(*one_, options);
  must(session->prefill(prompt_));
  const Stats stats = session->stats();
  EXPECT_EQ(stats.kv_rows, static_cast<int64_t>(plan->rows_per_head) * kHeads) << "rows of the plan, exactly";
  EXPECT_GT(stats.evicted_rows, 0);
  EXPECT_GE(stats.evictions, kHeads / 2) << "every layer is evicted";
  expect_freed(session->memory_trace());
  expect_sound(*session, types);
  if (combinations_ % threads_every() == 0)
    on_two_threads(*session, options, types);
}

// The same rows and bits from a model with two threads. Its session is forked from one that has read the prompt, where
// that recorded what the policy needs: two threads on a busy machine wait for each other at every node of a graph.
void PolicyMatrix::on_two_threads(Session& session, const SessionOptions& options, const KvTypes& types) {
  std::unique_ptr<Session>& parent = parents_[types.k + types.v];
  if (parent == nullptr) {
    SessionOptions full = options_of("none", types, "");
    for (const std::string& scorer : evicting_scorers())
      full.n_observed = std::max(full.n_observed, *observed_rows(scorer, two_.get()));
    parent = open_session(*two_, full);
    must(parent->prefill(prompt_));
  }
  std::unique_ptr<Session> two;
  if (Result<std::unique_ptr<Session>> forked = parent->fork(options); forked.ok()) {
    two = *std::move(forked);
  } else {
    two = open_session(*two_, options);
    must(two->prefill(prompt_));
  }
  EXPECT_EQ(session.kv_map().layers, two->kv_map().layers) << "1 and 2 threads keep other rows";
  must(session.decode(more_[0]));
  must(two->decode(more_[0]));
  EXPECT_TRUE(same_bits(session.logits(), two->logits())) << "1 and 2 threads compute other logits";
}

// In chunks, then token by token with evictions in between.
void PolicyMatrix::decoding(const std::string& policy, const KvTypes& types) {
  SessionOptions options = options_of(policy, types, kDecodeBudget);
  options.order = PrefillOrder::chunked;
  const auto session = open_session(*one_, options);
  must(session->prefill(prompt_));
  const int64_t after_prompt = session->stats().evicted_rows;
  EXPECT_GT(after_prompt, 0) << "the prompt evicts";
  expect_sound(*session, types);
  for (const Token token : more_) {
    must(session->decode(token));
    expect_sound(*session, types);
    ASSERT_FALSE(HasFailure()) << "after " << session->n_tokens() << " tokens";
  }
  // These wait until the budget is full, which the room for a repetition of the text may put off.
  const bool waits =
      policy.ends_with("/after-prompt") || policy.ends_with("/between-chunks") || policy.ends_with("/pressure");
  if (!waits) {
    EXPECT_GT(session->stats().evicted_rows, after_prompt) << "decoding evicts";
  }
}

TEST_P(PolicyMatrix, EveryCombination) {
  for (const std::string& allocator : names_of("allocator")) {
    for (const std::string& schedule : names_of("schedule")) {
      for (const KvTypes& types : kv_types()) {
        all_of(GetParam() + "/" + allocator + "/" + schedule, types);
        if (HasFailure())
          return;  // the first says enough
      }
    }
  }
  EXPECT_EQ(static_cast<size_t>(combinations_),
            names_of("allocator").size() * names_of("schedule").size() * kv_types().size());
  RecordProperty("combinations", combinations_);
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::ranges::replace(name, '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Scorers, PolicyMatrix, testing::ValuesIn(names_of("scorer")), test_name);

// ctest has one entry for each file of src/eviction/scorers: that none of the registry is left out.
TEST(PolicyMatrixEntries, CoverTheRegistry) {
  std::string entries = KEDGE_SCORER_FILES;  // "andpro,none,..."
  entries = "," + entries + ",";
  for (std::string name : names_of("scorer")) {
    std::ranges::replace(name, '-', '_');
    EXPECT_NE(entries.find("," + name + ","), std::string::npos)
        << "scorer " << name << " is not in a file " << name << ".cpp";
  }
}

TEST(PolicyMatrixEntries, CacheTypesAreThoseThatASessionTakes) {
  TempDir dir;
  write_tiny_model(make_tiny_weights({.n_embd = 32, .n_ff = 32}), dir.file("tiny.gguf"));
  const auto model = open_model(dir.file("tiny.gguf"), 1);
  for (const std::string& type : cache_types()) {
    SessionOptions options = session_options({.policy = "none", .prompt = 8});
    set_cache_types(options, type, type);
    const auto session = Session::create(*model, options);
    EXPECT_TRUE(session.ok()) << type << ": " << session.error().message;
    set_cache_types(options, "f17", "f17");
    const auto refused = Session::create(*model, options);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find(type), std::string::npos) << refused.error().message;
  }
}

}  // namespace
}  // namespace kedge::test
