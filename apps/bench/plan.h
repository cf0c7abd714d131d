// What one call of `kedge bench` runs: the cross product of its axes, in the order of the table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/settings.h"
#include "kedge/budget.h"
#include "kedge/error.h"
#include "kedge/session.h"

namespace kedge::bench {

// What is loaded and opened once for several tests.
struct Setup {
  int n_threads = 0;  // 0: one per CPU
  int n_batch = 2048;
  int n_ubatch = 512;
  std::string cache_type_k = "f16";
  std::string cache_type_v = "f16";
  int f16_window = 32;
  bool operator==(const Setup&) const = default;
};

// `depth` tokens are in the cache, untimed; then n_prompt are read and n_gen decoded, timed together.
struct Test {
  int n_prompt = 0;
  int n_gen = 0;
  int depth = 0;

  std::string name() const;  // "pp512", "tg128 @ d4096", "pp512+tg128"
  int64_t n_timed() const { return int64_t{n_prompt} + n_gen; }
  int64_t n_tokens() const { return depth + n_timed(); }
};

struct Variant {
  Budget budget;
  std::string policy;  // as written; "none" without a budget
  std::string sinks;   // empty: the policy's default
  std::string recent;
  PrefillOrder order = PrefillOrder::automatic;

  std::string budget_text() const;  // "full" without a budget
};

// Variants of one test, timed in turn, repetition by repetition.
struct Group {
  Setup setup;
  Test test;
};

struct Plan {
  std::vector<Group> groups;  // those of one Setup are neighbours
  std::vector<Variant> variants;
  int repetitions = 5;
  int delay_seconds = 0;
  bool warmup = true;
  bool beside_llama = false;

  int64_t most_tokens() const;  // of any test
};

// Error usage: a list, value or policy; nothing to run.
Result<Plan> make_plan(const cli::Settings& settings);

}  // namespace kedge::bench
