// Kedge beside llama.cpp in one interleaved run: same weights, same tokens, pinned threads, medians over repetitions.
//   bench_vs_llama [-m MODEL] [-f TEXT] [-t THREADS] [-r REPETITIONS] [--json FILE]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "attention_wall.h"
#include "base/clock.h"
#include "kedge/session.h"
#include "llama_side/llama_side.h"
#include "llama_side/quiet.h"

namespace kedge::bench {
namespace {

constexpr int kDecodeTokens = 48;
constexpr int kDepth = 8192;

struct Arguments {
  std::string model;
  std::string text;
  std::string json;
  int threads = 2;
  int repetitions = 5;
  bool only_wall = false;
};

struct Series {
  std::vector<double> values;
  double median() const {
    std::vector<double> sorted = values;
    std::sort(sorted.begin(), sorted.end());
    return sorted.empty() ? 0 : sorted[sorted.size() / 2];
  }
  double low() const { return values.empty() ? 0 : *std::min_element(values.begin(), values.end()); }
  double high() const { return values.empty() ? 0 : *std::max_element(values.begin(), values.end()); }
};

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "bench_vs_llama: %s\n", what.c_str());
  std::exit(1);
}

template <typename T>
T must(Result<T> result) {
  if (!result)
    fail(result.error().message);
  return std::move(result).value();
}

struct Ours {
  double prefill_seconds = 0;
  double decode_seconds = 0;  // per token
  Stats stats;
};

// Reads `tokens` into a session of this budget, then decodes kDecodeTokens of what follows.
Ours run_ours(const Model& model, std::span<const Token> tokens, std::span<const Token> next,
              const std::string& budget) {
  SessionOptions options;
  options.budget = must(parse_budget(budget));
  options.n_ctx = static_cast<int>(tokens.size() + next.size());
  options.expected_prompt = static_cast<int64_t>(tokens.size());
  options.expected_generated = static_cast<int64_t>(next.size());
  const std::unique_ptr<Session> session = must(Session::create(model, options));
  Ours out;
  const Stopwatch prefill;
  if (Status status = session->prefill(tokens); !status)
    fail(status.error().message);
  out.prefill_seconds = prefill.seconds();
  if (Status status = session->decode(next[0]); !status)
    fail(status.error().message);  // builds the decode graph
  const Stopwatch decode;
  for (const Token token : next.subspan(1)) {
    if (Status status = session->decode(token); !status)
      fail(status.error().message);
  }
  out.decode_seconds = decode.seconds() / static_cast<double>(next.size() - 1);
  out.stats = session->stats();
  return out;
}

struct Table {
  nlohmann::json rows = nlohmann::json::array();
  void ratio(const std::string& name, const Series& theirs, const Series& ours, int64_t tokens) {
    Series ratios;
    for (size_t i = 0; i < ours.values.size(); ++i)
      ratios.values.push_back(theirs.values[i] / ours.values[i]);
    const double scale = static_cast<double>(tokens);
    std::printf("%-44s %9.1f t/s  kedge %9.1f t/s  ratio %5.2f  (%.2f .. %.2f)\n", name.c_str(),
                scale / theirs.median(), scale / ours.median(), ratios.median(), ratios.low(), ratios.high());
    std::fflush(stdout);
    rows.push_back({{"name", name},
                    {"llama_tok_s", scale / theirs.median()},
                    {"kedge_tok_s", scale / ours.median()},
                    {"ratio", ratios.median()},
                    {"ratio_min", ratios.low()},
                    {"ratio_max", ratios.high()}});
  }
};

void compare_at_depth(const Arguments& args, const Model& model, const std::vector<Token>& tokens, Table& table) {
  const auto llama = must(llama_side::LlamaSide::open(
      {.path = args.model, .n_threads = args.threads, .n_ctx = kDepth + kDecodeTokens + 8}));
  const std::span<const Token> prompt = std::span(tokens).first(kDepth);
  const std::span<const Token> next = std::span(tokens).subspan(kDepth, kDecodeTokens);
  Series llama_prefill, llama_decode, full_prefill, full_decode, tenth_prefill, tenth_decode;
  Stats tenth;
  for (int repetition = 0; repetition < args.repetitions; ++repetition) {
    llama_side::wait_until_quiet();  // Kedge's idle pool spins for a moment after its last graph
    llama->clear();
    llama_prefill.values.push_back(must(llama->append(prompt)));
    must(llama->append(next.first(1)));
    double seconds = 0;
    for (const Token& token : next.subspan(1))
      seconds += must(llama->append(std::span(&token, 1)));
    llama_decode.values.push_back(seconds / (kDecodeTokens - 1));
    llama->rest();
    const Ours full = run_ours(model, prompt, next, "unlimited");
    full_prefill.values.push_back(full.prefill_seconds);
    full_decode.values.push_back(full.decode_seconds);
    const Ours part = run_ours(model, prompt, next, "10%");
    tenth_prefill.values.push_back(part.prefill_seconds);
    tenth_decode.values.push_back(part.decode_seconds);
    tenth = part.stats;
  }
  table.ratio("prefill of 8192, full cache: llama.cpp", llama_prefill, full_prefill, kDepth);
  table.ratio("prefill of 8192, 10% budget: llama.cpp", llama_prefill, tenth_prefill, kDepth);
  table.ratio("decode at depth 8192, full cache: llama.cpp", llama_decode, full_decode, 1);
  table.ratio("decode at depth 8192, 10% budget: llama.cpp", llama_decode, tenth_decode, 1);
  table.ratio("decode at 8192: kedge full, kedge 10%", full_decode, tenth_decode, 1);
  std::printf("10%% budget: peak %s of %s, full %s, kept %.1f %%, policy %.0f ms of prefill %.0f ms\n",
              format_bytes(tenth.kv_peak_bytes).c_str(), format_bytes(tenth.kv_budget_bytes).c_str(),
              format_bytes(tenth.kv_full_bytes).c_str(), 100 * tenth.keep, tenth.policy_ms,
              1e3 * tenth_prefill.median());
}

void compare_depths(const Arguments& args, const Model& model, const std::vector<Token>& tokens, Table& table) {
  Series shallow, deep;
  for (int repetition = 0; repetition < args.repetitions; ++repetition) {
    shallow.values.push_back(
        run_ours(model, std::span(tokens).first(2048), std::span(tokens).subspan(2048, 4 * kDecodeTokens), "16MiB")
            .decode_seconds);
    deep.values.push_back(
        run_ours(model, std::span(tokens).first(16384), std::span(tokens).subspan(16384, 4 * kDecodeTokens), "16MiB")
            .decode_seconds);
  }
  table.ratio("decode in 16 MiB: depth 2048, depth 16384", shallow, deep, 1);
}

int run(const Arguments& args) {
  ModelOptions options;
  options.path = args.model;
  options.n_threads = args.threads;
  const std::unique_ptr<Model> model = must(Model::load(options));
  std::ifstream in(args.text, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  const std::vector<Token> tokens = model->tokenize(text.str(), false, false);
  if (tokens.size() < 17000)
    fail(args.text + " has " + std::to_string(tokens.size()) + " tokens; 17000 are needed");
  const ModelInfo& info = model->info();
  std::printf("%s, %s weights, %d threads, kernels %s, prompt weights %s\n", info.name.c_str(),
              info.weight_type.c_str(), info.n_threads, info.kernels.c_str(), info.prompt_weights.c_str());
  Table table;
  if (!args.only_wall) {
    compare_at_depth(args, *model, tokens, table);
    compare_depths(args, *model, tokens, table);
  }
  const AttentionWall wall =
      measure_attention_wall(info.n_kv_heads, info.n_heads / info.n_kv_heads, info.head_dim, args.threads);
  std::printf(
      "decode attention over %s of f16 rows in sequence: %.2f ns per row and kv head, %.1f GB/s = %.0f %% of the %.1f "
      "GB/s read in this run\n",
      format_bytes(wall.cache_bytes).c_str(), wall.ns_per_row, wall.attention_gb_s,
      100 * wall.attention_gb_s / wall.read_gb_s, wall.read_gb_s);
  if (!args.json.empty()) {
    std::ofstream out(args.json);
    out << nlohmann::json{{"rows", table.rows},
                          {"attention_gb_s", wall.attention_gb_s},
                          {"read_gb_s", wall.read_gb_s},
                          {"ns_per_row", wall.ns_per_row}}
               .dump(1)
        << "\n";
  }
  return 0;
}

}  // namespace
}  // namespace kedge::bench

int main(int argc, char** argv) {
  kedge::bench::Arguments args;
  const auto env = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  args.model = env("KEDGE_MODEL");
  args.text = env("KEDGE_TEXT");
  CLI::App app{"Kedge beside llama.cpp, interleaved"};
  app.add_option("-m,--model", args.model, "GGUF model (default: KEDGE_MODEL)");
  app.add_option("-f,--file", args.text, "text of at least 17000 tokens (default: KEDGE_TEXT)");
  app.add_option("-t,--threads", args.threads, "threads");
  app.add_option("-r,--repetitions", args.repetitions, "repetitions");
  app.add_flag("--wall", args.only_wall, "only decode attention beside the memory's speed");
  app.add_option("--json", args.json, "also write the figures to this file");
  CLI11_PARSE(app, argc, argv);
  return kedge::bench::run(args);
}
