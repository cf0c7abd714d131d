// A store that fills while a gate's threshold follows it, and is emptied again: what is kept and what is lost.
//
//   probe_gate_pressure MODEL GATE TEXT BUDGET MODE N M
//
// Reads 512 tokens of the text, decodes N more beside a full cache, goes back to the first 512 and decodes M others.
// Lines on standard output, one for each 64 tokens, as CSV: phase, tokens of the sequence, share of the budget in use,
// threshold, share of the rows that just left the gate's window that stayed, KL divergence from the full cache (nats a
// token, mean of the 64).
#include <algorithm>

#include "base/huge_pages.h"
#include "probe.h"

namespace kedge {
namespace {

constexpr size_t kPrompt = 512;
constexpr size_t kStep = 64;
constexpr int32_t kWindow = 128;  // the modes' default

// Of all layers and kv heads.
double held_share(const Session& session, int32_t begin, int32_t end) {
  int64_t held = 0;
  int64_t all = 0;
  const KvMap map = session.kv_map();
  for (const auto& layer : map.layers) {
    for (const std::vector<int32_t>& head : layer) {
      held += std::lower_bound(head.begin(), head.end(), end) - std::lower_bound(head.begin(), head.end(), begin);
      all += end - begin;
    }
  }
  return static_cast<double>(held) / static_cast<double>(all);
}

void follow(int phase, Session& session, Session& full, const Tokens& tokens) {
  double lost = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    must(session.decode(tokens[i]));
    must(full.decode(tokens[i]));
    lost +=
        divergence({full.logits().begin(), full.logits().end()}, {session.logits().begin(), session.logits().end()});
    if ((i + 1) % kStep != 0)
      continue;
    const Stats stats = session.stats();
    check(stats.kv_peak_bytes <= stats.kv_budget_bytes, "inside the budget");
    const auto end = static_cast<int32_t>(session.n_tokens()) - kWindow - static_cast<int32_t>(kStep);
    std::printf("%d,%lld,%.4f,%.4f,%.4f,%.5f\n", phase, static_cast<long long>(session.n_tokens()),
                static_cast<double>(stats.kv_live_bytes) / static_cast<double>(stats.kv_budget_bytes),
                stats.gate_threshold, held_share(session, end - static_cast<int32_t>(kStep), end),
                lost / static_cast<double>(kStep));
    std::fflush(stdout);
    lost = 0;
  }
}

int run(const std::vector<std::string>& args) {
  if (args.size() != 7) {
    std::fprintf(stderr, "probe_gate_pressure MODEL GATE TEXT BUDGET MODE N M\n");
    return 2;
  }
  const auto model = take(
      Model::load({.path = args[0], .gate = args[1], .n_threads = std::atoi(setting("PROBE_THREADS", "0").c_str())}));
  const Tokens text = model->tokenize(read_text(args[2]), false, false);
  const auto n = static_cast<size_t>(std::atoll(args[5].c_str()));
  const auto m = static_cast<size_t>(std::atoll(args[6].c_str()));
  SessionOptions options;
  options.budget = take(parse_budget(args[3]));
  options.policy = "gate/pooled";
  options.gate_mode = args[4];
  options.expected_prompt = kPrompt;
  const auto session = take(Session::create(*model, options));
  SessionOptions whole;
  whole.n_ctx = static_cast<int>(kPrompt + std::max(n, m));
  const auto full = take(Session::create(*model, whole));
  std::printf("phase,tokens,used,threshold,kept,kld\n");
  for (Session* one : {session.get(), full.get()}) {
    must(one->prefill(slice(text, 0, kPrompt)));
    one->mark();
  }
  follow(1, *session, *full, slice(text, kPrompt, n));
  for (Session* one : {session.get(), full.get()})
    must(one->rewind());
  follow(2, *session, *full, slice(text, kPrompt + n, m));
  return 0;
}

}  // namespace
}  // namespace kedge

int main(int argc, char** argv) {
  kedge::put_heap_in_huge_pages();
  return kedge::run({argv + 1, argv + argc});
}
