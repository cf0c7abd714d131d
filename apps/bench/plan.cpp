#include "bench/plan.h"

#include <algorithm>

#include "bench/lists.h"

namespace kedge::bench {
namespace {

constexpr int64_t kMostTokens = 100'000'000;

Error usage(std::string message) { return {.code = ErrorCode::usage, .message = std::move(message)}; }

// Takes a parsed list, or keeps the first error.
template <typename T>
std::vector<T> take(Result<std::vector<T>> list, Status& status) {
  if (list)
    return *std::move(list);
  if (status)
    status = list.error();
  return {};
}

std::vector<Setup> make_setups(const cli::Settings& settings, Status& status) {
  const std::vector<std::string> types = {"f16", "bf16", "q8_0", "q4_0", "q8", "q4"};
  const auto threads = take(parse_ints(settings.bench_threads, {.flag = "--threads", .least = 0, .most = 512}), status);
  const auto batches =
      take(parse_ints(settings.bench_batches, {.flag = "--batch-size", .least = 16, .most = kMostTokens}), status);
  const auto ubatches =
      take(parse_ints(settings.bench_ubatches, {.flag = "--ubatch-size", .least = 1, .most = kMostTokens}), status);
  const auto k_types = take(parse_words(settings.bench_cache_k, "--cache-type-k", types), status);
  const auto v_types = take(parse_words(settings.bench_cache_v, "--cache-type-v", types), status);
  std::vector<Setup> out;
  for (const int n_threads : threads) {
    for (const int n_batch : batches) {
      for (const int n_ubatch : ubatches) {
        for (const std::string& k : k_types) {
          for (const std::string& v : v_types) {
            out.push_back({.n_threads = n_threads,
                           .n_batch = n_batch,
                           .n_ubatch = n_ubatch,
                           .cache_type_k = k,
                           .cache_type_v = v,
                           .f16_window = settings.kv_f16_window});
          }
        }
      }
    }
  }
  return out;
}

std::vector<Test> make_tests(const cli::Settings& settings, Status& status) {
  const auto range = [](std::string_view flag) { return ListRange{.flag = flag, .least = 0, .most = kMostTokens}; };
  const auto prompts = take(parse_ints(settings.bench_prompts, range("--n-prompt")), status);
  const auto gens = take(parse_ints(settings.bench_gens, range("--n-gen")), status);
  const auto pairs = take(parse_pairs(settings.bench_pairs, range("--prompt-gen")), status);
  const auto depths = take(parse_ints(settings.bench_depths, range("--n-depth")), status);
  std::vector<Test> out;
  const auto add = [&out](const Test& test) {
    if (test.n_timed() > 0)  // 0 switches a kind of test off
      out.push_back(test);
  };
  for (const int depth : depths) {
    for (const int n : prompts)
      add({.n_prompt = n, .depth = depth});
    for (const int n : gens)
      add({.n_gen = n, .depth = depth});
    for (const auto& [n_prompt, n_gen] : pairs)
      add({.n_prompt = n_prompt, .n_gen = n_gen, .depth = depth});
  }
  return out;
}

PrefillOrder order_of(const std::string& word) {
  return word == "layer-major" ? PrefillOrder::layer_major
         : word == "chunked"   ? PrefillOrder::chunked
                               : PrefillOrder::automatic;
}

// Without a budget nothing is evicted, whatever the policy: the full cache is one variant, not one per policy.
std::vector<Variant> make_variants(const cli::Settings& settings, Status& status) {
  const auto budgets = take(parse_budgets(settings.bench_budgets), status);
  const auto policies = take(parse_policies(settings.bench_policies), status);
  std::vector<Variant> out;
  for (const Budget& budget : budgets) {
    if (budget.kind == Budget::Kind::unlimited) {
      out.push_back({.budget = budget, .policy = "none"});
      continue;
    }
    for (const std::string& policy : policies) {
      out.push_back({.budget = budget,
                     .policy = policy,
                     .sinks = settings.kv_sinks,
                     .recent = settings.kv_recent,
                     .order = order_of(settings.prefill_order)});
    }
  }
  return out;
}

}  // namespace

std::string Test::name() const {
  std::string text;
  if (n_prompt > 0)
    text.append("pp").append(std::to_string(n_prompt));
  if (n_gen > 0)
    text.append(text.empty() ? "tg" : "+tg").append(std::to_string(n_gen));
  if (depth > 0)
    text.append(" @ d").append(std::to_string(depth));
  return text;
}

std::string Variant::budget_text() const { return budget.kind == Budget::Kind::unlimited ? "full" : budget.text; }

int64_t Plan::most_tokens() const {
  int64_t most = 0;
  for (const Group& group : groups)
    most = std::max(most, group.test.n_tokens());
  return most;
}

Result<Plan> make_plan(const cli::Settings& settings) {
  Status status;
  const std::vector<Setup> setups = make_setups(settings, status);
  const std::vector<Test> tests = make_tests(settings, status);
  Plan plan{.variants = make_variants(settings, status),
            .repetitions = settings.bench_repetitions,
            .delay_seconds = settings.bench_delay,
            .warmup = !settings.bench_no_warmup,
            .beside_llama = !settings.bench_vs.empty()};
  if (!status)
    return status.error();
  if (tests.empty())
    return usage("nothing to run: --n-prompt, --n-gen and --prompt-gen are all 0");
  for (const Setup& setup : setups) {
    for (const Test& test : tests)
      plan.groups.push_back({.setup = setup, .test = test});
  }
  return plan;
}

}  // namespace kedge::bench
