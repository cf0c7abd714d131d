#include "bench/turn.h"

#include "base/clock.h"
#include "bench/memory.h"
#include "cli/run_report.h"
#include "cli/signals.h"
#include "llama_side/quiet.h"

namespace kedge::bench {
namespace {

Error interrupted() { return {.code = ErrorCode::cancelled, .message = "interrupted"}; }

bool go_on(int64_t /*done*/, int64_t /*total*/) { return !cli::stop_requested(); }

// The test's tokens: those of the depth, the prompt's, those decoded.
struct Parts {
  std::span<const Token> depth, prompt, gen;
};

Parts parts_of(const Test& test, std::span<const Token> tokens) {
  const auto depth = static_cast<size_t>(test.depth);
  const auto n_prompt = static_cast<size_t>(test.n_prompt);
  return {.depth = tokens.first(depth),
          .prompt = tokens.subspan(depth, n_prompt),
          .gen = tokens.subspan(depth + n_prompt, static_cast<size_t>(test.n_gen))};
}

Status timed_part(Session& session, const Parts& parts) {
  if (!parts.prompt.empty()) {
    if (Status status = session.prefill(parts.prompt, go_on); !status)
      return status;
  }
  for (const Token token : parts.gen) {
    if (cli::stop_requested())
      return interrupted();
    if (Status status = session.decode(token); !status)
      return status;
  }
  return {};
}

}  // namespace

// SplitMix64 (Steele, Lea, Flood 2014).
std::vector<Token> bench_tokens(const Model& model, int64_t n) {
  std::vector<Token> out(static_cast<size_t>(n));
  uint64_t state = 1;
  for (Token& token : out) {
    uint64_t z = (state += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    token = static_cast<Token>((z ^ (z >> 31)) % static_cast<uint64_t>(model.info().n_vocab));
  }
  if (!out.empty() && model.bos() >= 0)
    out.front() = model.bos();
  return out;
}

SessionOptions options_for(const Setup& setup, const Test& test, const Variant& variant) {
  SessionOptions options;
  options.budget = variant.budget;
  options.policy = variant.policy;
  options.sinks = variant.sinks;
  options.recent = variant.recent;
  options.order = variant.order;
  options.n_ctx = static_cast<int>(test.n_tokens());
  options.n_batch = setup.n_batch;
  options.n_ubatch = setup.n_ubatch;
  options.cache_type_k = setup.cache_type_k;
  options.cache_type_v = setup.cache_type_v;
  options.f16_window = setup.f16_window;
  options.expected_prompt = test.depth > 0 ? test.depth : test.n_prompt;
  options.expected_generated = test.n_tokens() - options.expected_prompt;
  return options;
}

Result<Turn> kedge_turn(const Model& model, const SessionOptions& options, const Test& test,
                        std::span<const Token> tokens) {
  Turn turn;
  turn.rss_of_turn = reset_peak_rss();
  const Parts parts = parts_of(test, tokens);
  Result<std::unique_ptr<Session>> session = Session::create(model, options);
  if (!session)
    return session.error();
  if (!parts.depth.empty()) {
    if (Status status = (*session)->prefill(parts.depth, go_on); !status)
      return status.error();
  }
  const Stats before = (*session)->stats();
  const Stopwatch watch;
  if (Status status = timed_part(**session, parts); !status)
    return status.error();
  turn.seconds = watch.seconds();
  turn.stats = (*session)->stats();
  turn.policy_ms = turn.stats.policy_ms - before.policy_ms;
  turn.attention_seconds = turn.stats.decode_attention_seconds - before.decode_attention_seconds;
  turn.attention_row_bytes = turn.stats.decode_attention_row_bytes - before.decode_attention_row_bytes;
  turn.rss_peak_bytes = cli::peak_rss_bytes();
  return turn;
}

Result<double> llama_turn(llama_side::LlamaSide& llama, const Test& test, std::span<const Token> tokens) {
  llama_side::wait_until_quiet();
  const Parts parts = parts_of(test, tokens);
  llama.truncate(test.depth);
  if (llama.n_tokens() < test.depth) {
    const Result<double> filled = llama.append(parts.depth.subspan(static_cast<size_t>(llama.n_tokens())));
    if (!filled)
      return filled.error();
  }
  double seconds = 0;
  if (!parts.prompt.empty()) {
    const Result<double> prompt = llama.append(parts.prompt);
    if (!prompt)
      return prompt.error();
    seconds += *prompt;
  }
  for (size_t i = 0; i < parts.gen.size(); ++i) {
    const Result<double> one = llama.append(parts.gen.subspan(i, 1));
    if (!one)
      return one.error();
    seconds += *one;
  }
  llama.rest();
  return seconds;
}

}  // namespace kedge::bench
