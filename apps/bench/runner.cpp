#include "bench/runner.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <thread>
#include <utility>

#include "base/executor.h"
#include "base/read_wall.h"
#include "bench/table.h"
#include "cli/engine.h"
#include "cli/signals.h"

namespace kedge::bench {
namespace {

constexpr size_t kReadBytes = size_t{512} << 20;  // beyond any cache
constexpr int kReadPasses = 3;

// GB/s of plain reading with that many threads; 0 where there is no memory for it.
double measure_read_gb_s(int n_threads) {
  const ReadBuffer buffer(kReadBytes);
  if (!buffer.ok())
    return 0;
  ThreadExecutor threads(n_threads);
  double seconds = best_read_seconds(buffer, threads);
  for (int i = 1; i < kReadPasses; ++i)
    seconds = std::min(seconds, best_read_seconds(buffer, threads));
  return static_cast<double>(kReadBytes) / seconds * 1e-9;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

ModelFacts facts_of(const ModelInfo& info) {
  const std::string type = info.architecture + " " + cli::format_real(static_cast<double>(info.n_params) * 1e-6, 0) +
                           "M " + info.weight_type + (info.adapter.empty() ? "" : " + LoRA");
  return {.path = info.path,
          .type = type,
          .size_bytes = info.weight_bytes,
          .n_params = info.n_params,
          .kernels = info.kernels,
          .prompt_weights = info.prompt_weights,
          .mmap = info.mmap,
          .n_threads = info.n_threads};
}

void take(const Turn& turn, Row& row) {
  row.seconds.push_back(turn.seconds);
  row.kv_budget_bytes = turn.stats.kv_budget_bytes;
  row.kv_peak_bytes = std::max(row.kv_peak_bytes, turn.stats.kv_peak_bytes);
  row.rss_peak_bytes = std::max(row.rss_peak_bytes, turn.rss_peak_bytes);
  row.rss_of_row = turn.rss_of_turn;
  row.policy_ms += (turn.policy_ms - row.policy_ms) / static_cast<double>(row.seconds.size());
  row.attention_seconds += turn.attention_seconds;
  row.attention_row_bytes += turn.attention_row_bytes;
  row.resolved_policy = turn.stats.policy;
}

// "full 59.7 t/s, 10% andpro 99.1 t/s; llama.cpp 8.8 t/s": the last repetition.
std::string last_rates(const std::vector<Row>& rows) {
  std::string text;
  for (const Row& row : rows) {
    text.append(text.empty() ? "" : ", ").append(row.variant.budget_text());
    if (row.variant.policy != "none")
      text.append(" ").append(row.variant.policy);
    text.append(" ").append(cli::format_real(row.rates().back(), 1)).append(" t/s");
  }
  if (!rows.front().llama_seconds.empty())
    text += "; llama.cpp " + cli::format_real(rows.front().llama_rates().back(), 1) + " t/s";
  return text;
}

}  // namespace

Runner::Runner(const Plan& plan, const cli::Settings& settings)
    : plan_(plan), settings_(settings), progress_(settings.progress, "repetition") {}

Status Runner::prepare() {
  if (Status status = enter(plan_.groups.front().setup); !status)
    return status;
  return check_rows();
}

// Loads the model, and libllama beside it, for a setup; measures how fast its threads read memory.
Status Runner::enter(const Setup& setup) {
  if (model_ == nullptr || setup.n_threads != setup_.n_threads) {
    model_.reset();
    cli::Settings settings = settings_;
    settings.threads = setup.n_threads;
    Result<std::unique_ptr<Model>> model = cli::load_model(settings, settings.model);
    if (!model)
      return model.error();
    model_ = *std::move(model);
    tokens_ = bench_tokens(*model_, plan_.most_tokens());
    read_gb_s_ = measure_read_gb_s(model_->info().n_threads);
    progress_.line(std::to_string(model_->info().n_threads) + " threads read memory at " +
                   cli::format_real(read_gb_s_, 1) + " GB/s");
    llama_.reset();
  }
  const bool same = setup.n_batch == setup_.n_batch && setup.n_ubatch == setup_.n_ubatch;
  setup_ = setup;
  if (!plan_.beside_llama || (llama_ != nullptr && same))
    return {};
  llama_.reset();
  Result<std::unique_ptr<llama_side::LlamaSide>> llama =
      llama_side::LlamaSide::open({.path = settings_.model,
                                   .lora = settings_.lora,
                                   .lora_scale = settings_.lora_scale,
                                   .n_threads = model_->info().n_threads,
                                   .n_ctx = static_cast<int>(plan_.most_tokens()),
                                   .n_batch = setup.n_batch,
                                   .n_ubatch = setup.n_ubatch,
                                   .stop = cli::stop_requested});
  if (!llama)
    return llama.error();
  llama_ = *std::move(llama);
  return {};
}

Status Runner::check_rows() const {
  for (const Group& group : plan_.groups) {
    for (const Variant& variant : plan_.variants) {
      const Result<BudgetMeaning> meaning = explain_budget(*model_, options_for(group.setup, group.test, variant));
      if (!meaning) {
        return Error{
            .code = meaning.error().code,
            .message = group.test.name() + ", budget " + variant.budget_text() + ": " + meaning.error().message};
      }
    }
  }
  return {};
}

Status Runner::run(const EachRow& each) {
  for (const Group& group : plan_.groups) {
    if (!(group.setup == setup_)) {
      if (Status status = enter(group.setup); !status)
        return status;
    }
    std::vector<Row> rows;
    for (const Variant& variant : plan_.variants)
      rows.push_back(new_row(group, variant));
    if (Status status = run_group(group, rows); !status)
      return status;
    for (const Row& row : rows) {
      if (Status status = each(row); !status)
        return status;
    }
  }
  return {};
}

Row Runner::new_row(const Group& group, const Variant& variant) const {
  return {.model = facts_of(model_->info()),
          .setup = group.setup,
          .test = group.test,
          .variant = variant,
          .test_time = utc_now(),
          .read_gb_s = read_gb_s_};
}

Status Runner::pause(const std::string& what) const {
  for (int tenth = 0; tenth < 10 * plan_.delay_seconds && !cli::stop_requested(); ++tenth)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  if (cli::stop_requested())
    return Error{.code = ErrorCode::cancelled, .message = "interrupted at " + what};
  return {};
}

// A short run of each side with the test's batch shapes: pages are touched, threads are awake.
Status Runner::warm_up(const Group& group) {
  const Test small{.n_prompt = std::min(group.test.n_prompt, group.setup.n_ubatch),
                   .n_gen = std::min(group.test.n_gen, 4)};
  if (llama_ != nullptr) {
    if (Result<double> seconds = llama_turn(*llama_, small, tokens_); !seconds)
      return seconds.error();
  }
  const Variant full{.policy = "none"};
  const Result<Turn> turn = kedge_turn(*model_, options_for(group.setup, small, full), small, tokens_);
  return turn ? Status() : Status(turn.error());
}

Status Runner::run_group(const Group& group, std::vector<Row>& rows) {
  const std::string name = group.test.name();
  if (Status status = pause(name); !status)
    return status;
  if (plan_.warmup) {
    if (Status status = warm_up(group); !status)
      return status;
  }
  const auto total = static_cast<int64_t>(plan_.groups.size()) * plan_.repetitions;
  for (int i = 0; i < plan_.repetitions; ++i) {
    if (Status status = repeat(group, rows); !status)
      return status;
    ++repetitions_done_;
    if (progress_.json()) {
      progress_.update(repetitions_done_, total);
    } else {
      progress_.line(std::to_string(repetitions_done_) + "/" + std::to_string(total) + " " + name + ": " +
                     last_rates(rows));
    }
  }
  return {};
}

// One repetition: llama.cpp once, then every variant.
Status Runner::repeat(const Group& group, std::vector<Row>& rows) {
  double llama_seconds = 0;
  if (llama_ != nullptr) {
    const Result<double> seconds = llama_turn(*llama_, group.test, tokens_);
    if (!seconds)
      return seconds.error();
    llama_seconds = *seconds;
  }
  for (Row& row : rows) {
    const Result<Turn> turn =
        kedge_turn(*model_, options_for(group.setup, group.test, row.variant), group.test, tokens_);
    if (!turn)
      return turn.error();
    take(*turn, row);
    if (llama_ != nullptr)
      row.llama_seconds.push_back(llama_seconds);
  }
  return {};
}

}  // namespace kedge::bench
