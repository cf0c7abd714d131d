// What schedules and AnDPro's production options cost and lose, on a real model and text, against the full cache.
//
//   probe_schedules decode MODEL TEXT POLICY...      evictions while decoding: KLD of teacher-forced tokens after a
//                                                    prompt of 1,024, budget 25 % of it
//   probe_schedules burst MODEL TEXT1 TEXT2 POLICY.. 6,000 tokens of one text into a chat of 500 of another: KLD of the
//                                                    next 64 tokens, at 512 and 1024 rows a head
//   probe_schedules cost MODEL TEXT N POLICY...      a prompt of N tokens and 256 decoded: share of the time in the
//                                                    policy, and times of tokens
// Environment: PROBE_WINDOWS (how many texts), PROBE_THREADS, PROBE_GATE (file), PROBE_BUDGETS (space-separated),
// PROBE_NEXT (tokens of decode), PROBE_PASTE (tokens of burst). Lines on standard output: one per window and policy,
// then the means with standard errors, paired with the first policy.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <sstream>

#include "base/huge_pages.h"
#include "probe.h"

namespace kedge {
namespace {

double mean_divergence(const Rows& p, const Rows& q) {
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i)
    sum += divergence(p[i], q[i]);
  return sum / static_cast<double>(p.size());
}

Rows scored(Session& session, const Tokens& tokens) {
  Rows rows(tokens.size());
  must(session.score(tokens, [&](int64_t i, std::span<const float> row) {
    rows[static_cast<size_t>(i)].assign(row.begin(), row.end());
  }));
  return rows;
}

std::unique_ptr<Session> open(const Model& model, const std::string& budget, const std::string& policy,
                              int64_t prompt) {
  SessionOptions options;
  if (!budget.empty())
    options.budget = take(parse_budget(budget));
  else
    options.n_ctx = 8192;
  options.policy = budget.empty() ? "none" : policy;
  options.expected_prompt = prompt;
  return take(Session::create(model, options));
}

struct Means {
  std::vector<std::vector<double>> values;  // [policy][window]
  void print(const std::vector<std::string>& policies) const {
    for (size_t p = 0; p < policies.size(); ++p) {
      const auto n = static_cast<double>(values[p].size());
      double mean = 0;
      double difference = 0;
      for (size_t w = 0; w < values[p].size(); ++w) {
        mean += values[p][w] / n;
        difference += (values[p][w] - values[0][w]) / n;
      }
      double square = 0;
      for (size_t w = 0; w < values[p].size(); ++w)
        square += std::pow(values[p][w] - values[0][w] - difference, 2);
      std::printf("mean %.4f  against the first %+.4f +- %.4f  %s\n", mean, difference,
                  n > 1 ? std::sqrt(square / (n - 1) / n) : 0.0, policies[p].c_str());
    }
  }
};

void decode(const Model& model, const Tokens& text, const std::vector<std::string>& policies, int n_windows) {
  constexpr size_t kPrompt = 1024;
  const auto n_next = static_cast<size_t>(std::atoi(setting("PROBE_NEXT", "384").c_str()));
  std::istringstream budgets(setting("PROBE_BUDGETS", "256tok 102tok"));
  for (std::string budget; budgets >> budget;) {
    Means means{.values = std::vector<std::vector<double>>(policies.size())};
    for (int w = 0; w < n_windows; ++w) {
      const size_t begin = (text.size() - kPrompt - n_next) * static_cast<size_t>(w) / static_cast<size_t>(n_windows);
      const Tokens prompt = slice(text, begin, kPrompt);
      const Tokens next = slice(text, begin + kPrompt, n_next);
      const auto full = open(model, "", "", kPrompt);
      must(full->prefill(prompt));
      const Rows expected = scored(*full, next);
      for (size_t p = 0; p < policies.size(); ++p) {
        const auto session = open(model, budget, policies[p], kPrompt);
        must(session->prefill(prompt));
        double sum = 0;
        for (size_t i = 0; i < n_next; ++i) {
          must(session->decode(next[i]));
          sum += divergence(expected[i], {session->logits().begin(), session->logits().end()});
        }
        const Stats stats = session->stats();
        means.values[p].push_back(sum / static_cast<double>(n_next));
        std::printf("%s window %d kld %.4f keep %.3f policy_ms %.1f decode_ms %.1f p50 %.2f max %.2f drift %.1e  %s\n",
                    budget.c_str(), w, sum / static_cast<double>(n_next), stats.keep, stats.policy_ms,
                    stats.decode_seconds * 1e3, stats.decode_p50_ms, stats.decode_max_ms, stats.anchor_drift_max,
                    policies[p].c_str());
        std::fflush(stdout);
      }
    }
    means.print(policies);
  }
}

void burst(const Model& model, const Tokens& chat, const Tokens& paste, const std::vector<std::string>& policies,
           int n_windows) {
  constexpr size_t kChat = 500;
  constexpr size_t kNext = 64;
  const auto n_paste = static_cast<size_t>(std::atoi(setting("PROBE_PASTE", "6000").c_str()));
  std::istringstream budgets(setting("PROBE_BUDGETS", "512tok 1024tok"));
  std::vector<std::string> names;
  for (std::string name; budgets >> name;)
    names.push_back(name);
  std::vector<Means> means(names.size(), {.values = std::vector<std::vector<double>>(policies.size())});
  for (int w = 0; w < n_windows; ++w) {
    const auto at = [&](const Tokens& text, size_t need) {
      return (text.size() - need) * static_cast<size_t>(w) / static_cast<size_t>(n_windows);
    };
    const Tokens first = slice(chat, at(chat, kChat + kNext), kChat + kNext);
    const Tokens before = slice(first, 0, kChat);
    const Tokens pasted = slice(paste, at(paste, n_paste + kNext), n_paste);
    // Half of the pairs go on with the pasted text, half with the chat.
    const Tokens next =
        w % 2 == 0 ? slice(paste, at(paste, n_paste + kNext) + n_paste, kNext) : slice(first, kChat, kNext);
    const auto full = open(model, "", "", kChat);
    must(full->prefill(before));
    must(full->prefill(pasted));
    const Rows expected = scored(*full, next);
    for (size_t b = 0; b < names.size(); ++b) {
      for (size_t p = 0; p < policies.size(); ++p) {
        const auto session = open(model, names[b], policies[p], kChat);
        must(session->prefill(before));
        must(session->prefill(pasted));
        const double kld = mean_divergence(expected, scored(*session, next));
        const Stats stats = session->stats();
        check(stats.kv_peak_bytes <= stats.kv_budget_bytes, "inside the budget");
        means[b].values[p].push_back(kld);
        std::printf("%s pair %d kld %.4f peak %lld of %lld rows %lld prefill_s %.1f  %s\n", names[b].c_str(), w, kld,
                    static_cast<long long>(stats.kv_peak_bytes), static_cast<long long>(stats.kv_budget_bytes),
                    static_cast<long long>(stats.kv_rows), stats.prefill_seconds, policies[p].c_str());
        std::fflush(stdout);
      }
    }
  }
  for (size_t b = 0; b < names.size(); ++b) {
    std::printf("budget %s\n", names[b].c_str());
    means[b].print(policies);
  }
}

void cost(const Model& model, const Tokens& text, size_t n_prompt, const std::vector<std::string>& policies) {
  constexpr size_t kNext = 256;
  std::istringstream budgets(setting("PROBE_BUDGETS", "10%"));
  for (std::string budget; budgets >> budget;) {
    for (const std::string& policy : policies) {
      SessionOptions options;
      options.budget = take(parse_budget(budget));
      options.policy = policy;
      options.expected_prompt = static_cast<int64_t>(n_prompt);
      options.expected_generated = kNext;
      const auto session = take(Session::create(model, options));
      must(session->prefill(slice(text, 0, n_prompt)));
      const Stats read = session->stats();
      for (const Token token : slice(text, n_prompt, kNext))
        must(session->decode(token));
      const Stats stats = session->stats();
      std::printf(
          "%s prompt %zu: prefill %.1f s, policy %.0f ms = %.2f %%; decode %.2f s, policy %.1f ms = %.2f %%; token p50 "
          "%.2f p99 %.2f max %.2f ms (max/p50 %.2f); rows a head %.0f; %s\n",
          budget.c_str(), n_prompt, read.prefill_seconds, read.policy_ms, read.policy_ms / read.prefill_seconds / 10,
          stats.decode_seconds, stats.policy_ms - read.policy_ms,
          (stats.policy_ms - read.policy_ms) / stats.decode_seconds / 10, stats.decode_p50_ms, stats.decode_p99_ms,
          stats.decode_max_ms, stats.decode_max_ms / stats.decode_p50_ms,
          static_cast<double>(stats.kv_rows) / (model.info().n_layers * model.info().n_kv_heads), stats.policy.c_str());
      std::fflush(stdout);
    }
  }
}

int run(const std::vector<std::string>& args) {
  const size_t fixed = args.empty() ? 0 : args[0] == "decode" ? 3 : args[0] == "burst" || args[0] == "cost" ? 4 : 0;
  if (fixed == 0 || args.size() <= fixed) {
    std::fprintf(stderr,
                 "decode MODEL TEXT POLICY... | burst MODEL TEXT TEXT POLICY... | cost MODEL TEXT N POLICY...\n");
    return 2;
  }
  const auto model = take(Model::load({.path = args[1],
                                       .gate = setting("PROBE_GATE", ""),
                                       .n_threads = std::atoi(setting("PROBE_THREADS", "0").c_str())}));
  const Tokens text = model->tokenize(read_text(args[2]), false, false);
  const std::vector<std::string> policies(args.begin() + static_cast<long>(fixed), args.end());
  const int n_windows = std::atoi(setting("PROBE_WINDOWS", "8").c_str());
  if (args[0] == "decode")
    decode(*model, text, policies, n_windows);
  if (args[0] == "burst")
    burst(*model, text, model->tokenize(read_text(args[3]), false, false), policies, n_windows);
  if (args[0] == "cost")
    cost(*model, text, static_cast<size_t>(std::atoll(args[3].c_str())), policies);
  return 0;
}

}  // namespace
}  // namespace kedge

int main(int argc, char** argv) {
  kedge::put_heap_in_huge_pages();
  return kedge::run({argv + 1, argv + argc});
}
