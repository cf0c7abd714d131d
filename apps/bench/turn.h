// One repetition of one test, on either side. Nothing is kept between turns of Kedge; libllama keeps the depth's rows.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/plan.h"
#include "kedge/model.h"
#include "kedge/session.h"
#include "llama_side/llama_side.h"

namespace kedge::bench {

// The same tokens for every test, both sides and every call: uniform over the vocabulary from a fixed seed, the first
// one BOS where the model has one.
std::vector<Token> bench_tokens(const Model& model, int64_t n);

// What is asked of a session for this test. A budget in % is a share of the test's tokens. With a depth, the depth is
// the announced prompt, and the timed prompt is one that follows it, as in a chat.
SessionOptions options_for(const Setup& setup, const Test& test, const Variant& variant);

struct Turn {
  double seconds = 0;    // of the timed part
  double policy_ms = 0;  // of the timed part
  double attention_seconds = 0;
  int64_t attention_row_bytes = 0;
  int64_t rss_peak_bytes = 0;
  bool rss_of_turn = false;
  Stats stats;  // at the end
};

// Errors of the session, and cancelled.
Result<Turn> kedge_turn(const Model& model, const SessionOptions& options, const Test& test,
                        std::span<const Token> tokens);

// Seconds of the timed part; waits first until Kedge's threads sleep. Errors of LlamaSide.
Result<double> llama_turn(llama_side::LlamaSide& llama, const Test& test, std::span<const Token> tokens);

}  // namespace kedge::bench
