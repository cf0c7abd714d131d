// kedge eval: tasks x policies x budgets x lengths x seeds into one folder that can be resumed.
#include <sys/utsname.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "base/output_file.h"
#include "cli/console.h"
#include "cli/engine.h"
#include "cli/prompt.h"
#include "cli/sha256.h"
#include "cli/verbs.h"
#include "eval/baseline.h"
#include "eval/match_run.h"
#include "eval/metrics.h"
#include "eval/noise_floor.h"
#include "eval/progress.h"
#include "eval/run_grid.h"
#include "eval/runner.h"
#include "eval/settings.h"
#include "eval/table.h"
#include "kedge/policy.h"

namespace kedge::eval {
namespace {

using cli::Settings;

Error usage(std::string message) { return {.code = ErrorCode::usage, .message = std::move(message)}; }

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name"))
      return line.substr(line.find(':') + 2);
  }
  utsname name = {};
  return ::uname(&name) == 0 ? name.machine : "unknown";
}

Json environment_json(const ModelInfo& model) {
  char date[32] = "";
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", ::gmtime_r(&now, &utc));
  return {{"cpu", cpu_name()},
          {"threads", model.n_threads},
          {"kernels", model.kernels},
          {"prompt_weights", model.prompt_weights},
          {"mmap", model.mmap},
          {"kedge", KEDGE_VERSION},
          {"date", date}};
}

// Logits of llama.cpp in place of our full cache: f32 KV without flash attention, the plainest it has.
Result<std::unique_ptr<llama_side::LlamaSide>> open_reference(const Config& config, const Settings& settings,
                                                              const ModelInfo& model) {
  const int64_t longest = *std::ranges::max_element(config.lengths) + config.continuation;
  return llama_side::LlamaSide::open({.path = model.path,
                                      .lora = settings.lora,
                                      .lora_scale = settings.lora_scale,
                                      .n_threads = model.n_threads,
                                      .n_ctx = static_cast<int>(longest) + 8,
                                      .flash_attention = false,
                                      .kv_type = "f32",
                                      .repack_weights = false});
}

// What the forks of the run's policies will read.
struct Observed {
  int n_rows = 0;
  Histories histories;
};
Result<Observed> observed_by(const Config& config, const Model& model) {
  Observed all;
  for (const PolicyChoice& policy : config.policies) {
    Result<int> rows = observed_rows(policy.text, &model);
    if (!rows)
      return rows.error();
    Result<Histories> histories = observed_histories(policy.text, &model);
    if (!histories)
      return histories.error();
    all.n_rows = std::max(all.n_rows, *rows);
    all.histories.attention_sum |= histories->attention_sum;
    all.histories.echo |= histories->echo;
    all.histories.query_moments |= histories->query_moments;
    all.histories.reconstruction |= histories->reconstruction;
    all.histories.gate |= histories->gate;
  }
  return all;
}

Status check_lengths(const Config& config, const Settings& settings, const ModelInfo& model) {
  const int64_t limit = settings.ctx_size > 0 ? settings.ctx_size : model.n_ctx_train;
  for (const int64_t length : config.lengths) {
    if (length > limit) {
      return usage("--lengths: " + std::to_string(length) + " tokens, and the model was trained to " +
                   std::to_string(limit) + " (--ctx-size allows more)");
    }
  }
  return {};
}

std::vector<Sample> noise_samples(const std::vector<TaskGrid>& tasks, int64_t n) {
  std::vector<Sample> samples;
  for (const TaskGrid& task : tasks) {
    for (int64_t i = 0; i < task.task->n_samples() && static_cast<int64_t>(samples.size()) < n; ++i) {
      Result<Sample> sample = task.task->sample(i);
      if (sample && !sample->continuation.empty())
        samples.push_back(*std::move(sample));
      else
        break;
    }
  }
  return samples;
}

// The grid in words, and how long it may take, from a short measurement.
Result<std::string> dry_run_text(const Engine& engine, const Config& config, const std::vector<TaskGrid>& tasks) {
  const std::vector<Cell> cells = make_cells(config);
  std::string out;
  double prompt_tokens = 0;
  double answer_tokens = 0;
  int64_t n_cells = 0;
  for (const TaskGrid& task : tasks) {
    const int64_t n = task.task->n_samples();
    for (int64_t i = 0; i < n; ++i) {
      Result<Sample> sample = task.task->sample(i);
      if (!sample)
        return sample.error();
      prompt_tokens += static_cast<double>(sample->context.size());
      double each = static_cast<double>(sample->continuation.size()) / 8;  // scored in one batch
      for (const Question& question : sample->questions)
        each += question.max_tokens;
      answer_tokens += each * static_cast<double>(cells.size());
    }
    n_cells += n * static_cast<int64_t>(cells.size());
    out += "task " + task.name + ": " + std::to_string(n) + " samples";
    out += task.task->n_skipped() > 0 ? ", " + std::to_string(task.task->n_skipped()) + " bad lines skipped\n" : "\n";
  }
  for (const Cell& cell : cells)
    out += "cell " + cell.policy + " " + cell.budget_text() + ": " + cell.policy_text + "\n";
  SessionOptions options = engine.base;
  options.policy = "none";
  options.n_ctx = 512;
  Result<std::unique_ptr<Session>> session = Session::create(engine.model, options);
  if (!session)
    return session.error();
  const std::vector<Token> tokens(256, 1);
  for (int i = 0; i < 9; ++i) {  // the first token builds the graph
    if (Status status = i == 0 ? (*session)->prefill(tokens) : (*session)->decode(1); !status)
      return status.error();
  }
  const Stats stats = (*session)->stats();
  const double seconds = prompt_tokens * stats.prefill_seconds / 256 + answer_tokens * stats.decode_seconds / 8;
  out += std::to_string(n_cells) + " cells, " + cli::grouped(static_cast<int64_t>(prompt_tokens)) +
         " prompt tokens read once each, about " + duration_text(seconds) + " here\n";
  return out;
}

struct Opened {
  std::unique_ptr<Model> model;
  std::unique_ptr<llama_side::LlamaSide> reference;
  Config config;
  std::vector<TaskGrid> tasks;
};

Status open_all(const Settings& settings, Opened& opened) {
  Result<Config> config = config_of(settings);
  if (!config)
    return config.error();
  Result<std::unique_ptr<Model>> model = cli::load_model(settings, settings.model);
  if (!model)
    return model.error();
  opened.model = *std::move(model);
  opened.config = *std::move(config);
  for (PolicyChoice& policy : opened.config.policies) {  // a gate has a say in what a name means
    Result<std::string> text = resolve_policy(policy.name, opened.model.get());
    if (!text)
      return text.error();
    policy.text = *std::move(text);
  }
  if (Status status = check_lengths(opened.config, settings, opened.model->info()); !status)
    return status;
  Result<std::vector<TaskGrid>> tasks = make_tasks(opened.config, *opened.model);
  if (!tasks)
    return tasks.error();
  opened.tasks = *std::move(tasks);
  Result<std::string> hash = cli::sha256_of_file(settings.model);
  if (!hash)
    return hash.error();
  opened.config.model_sha256 = *std::move(hash);
  if (!opened.config.file.empty() && std::filesystem::is_regular_file(opened.config.file)) {
    Result<std::string> file_hash = cli::sha256_of_file(opened.config.file);
    if (!file_hash)
      return file_hash.error();
    opened.config.file_sha256 = *std::move(file_hash);
  }
  return {};
}

std::string default_folder(const Config& config, const Json& json) {
  Json without_places = json;
  without_places.erase("file");
  without_places["model"].erase("path");
  std::string name = config.tasks.front().info->name;
  return "kedge-eval/" + name + "-" + cli::sha256_hex(to_line(without_places)).substr(0, 8);
}

Status measure_noise(RunFolder& folder, const Engine& engine, const Settings& settings, const Opened& opened) {
  std::vector<Sample> samples = noise_samples(opened.tasks, opened.config.noise_windows);
  if (samples.empty() || !folder.noise_floor().is_null())
    return {};
  cli::note("measuring the noise floor over " + std::to_string(samples.size()) + " windows");
  Result<Json> floor = measure_noise_floor(engine, opened.config,
                                           {.path = settings.model,
                                            .lora = settings.lora,
                                            .lora_scale = settings.lora_scale,
                                            .n_threads = std::max(0, settings.threads),
                                            .kernels = settings.kernels},
                                           std::move(samples));
  if (!floor)
    return floor.error();
  return folder.add_noise_floor(*floor);
}

Status gate(const Settings& settings, const Json& metrics) {
  if (settings.baseline.empty())
    return {};
  Result<Json> baseline = read_json_file(settings.baseline + "/metrics.json");
  if (!baseline)
    return baseline.error();
  Result<GateResult> result =
      compare_to_baseline(metrics, *baseline, {.max_drop = settings.max_drop, .max_kld_rise = settings.max_kld_rise});
  if (!result)
    return result.error();
  std::fputs(result->lines.c_str(), stderr);
  if (result->n_failed == 0)
    return {};
  return Error{.code = ErrorCode::quality_below,
               .message = std::to_string(result->n_failed) + " of " + std::to_string(result->n_compared) +
                          " figures are below the baseline " + settings.baseline + " by more than allowed"};
}

Status work(const Settings& settings, Opened& opened, const Engine& engine, RunFolder& folder, const Json& config) {
  if (Status status = measure_noise(folder, engine, settings, opened); !status)
    return status;
  SampleCache cache(static_cast<int64_t>(settings.prefix_cache_mib) << 20);
  RunProgress progress(settings.progress);
  RunState state{.engine = engine,
                 .config = opened.config,
                 .tasks = opened.tasks,
                 .folder = folder,
                 .cache = cache,
                 .save_logits = settings.save_logits,
                 .report = [&progress](const CellRecord& record, int64_t done, int64_t total) {
                   progress.cell(record, done, total);
                 }};
  const size_t n_before = folder.records().size();
  std::vector<Cell> cells = make_cells(opened.config);
  Status status = match_asked(settings) ? run_match(state, match_target(settings), cells) : run_cells(state, cells);
  const bool new_work = folder.records().size() > n_before;
  if (new_work || !std::filesystem::exists(folder.path() + "/metrics.json")) {
    Result<std::vector<std::string>> keys = cell_keys(opened.tasks, cells);
    if (!keys)
      return keys.error();
    if (Status written = folder.write_results(*keys, config, engine.share_prefix); !written)
      return written;
  }
  return status;
}

Result<std::string> results_text(const Settings& settings, const RunFolder& folder) {
  Result<Json> metrics = read_json_file(folder.path() + "/metrics.json");
  if (!metrics)
    return metrics.error();
  if (Status status = gate(settings, *metrics); !status)
    return status.error();
  if (settings.json)
    return to_pretty(*metrics);
  const std::vector<Group> groups = make_groups(folder.records(), metrics->at("switches").at("seed").get<uint64_t>());
  return table_text(groups, folder.noise_floor()) + match_text(folder.match());
}

Result<std::string> evaluate(const Settings& settings) {
  Opened opened;
  if (Status status = open_all(settings, opened); !status)
    return status.error();
  Result<SessionOptions> base = cli::session_options(base_settings(settings));
  if (!base)
    return base.error();
  if (!opened.config.reference.empty()) {
    Result<std::unique_ptr<llama_side::LlamaSide>> reference =
        open_reference(opened.config, settings, opened.model->info());
    if (!reference)
      return reference.error();
    opened.reference = *std::move(reference);
  }
  Result<Observed> observed = observed_by(opened.config, *opened.model);
  if (!observed)
    return observed.error();
  if (*resolve_gate_mode(base->gate_mode) != "budget")
    observed->histories.gate = true;
  const Engine engine{.model = *opened.model,
                      .base = *base,
                      .reference = opened.reference.get(),
                      .n_observed = observed->n_rows,
                      .histories = observed->histories,
                      .share_prefix = !settings.no_share};
  if (settings.dry_run)
    return dry_run_text(engine, opened.config, opened.tasks);
  Json config = to_json(opened.config, opened.model->info());
  if (match_asked(settings))
    config["match"] = {{"quality", match_target(settings).quality}, {"kld", match_target(settings).kld}};
  const std::string path = settings.out.empty() ? default_folder(opened.config, config) : settings.out;
  Result<std::unique_ptr<RunFolder>> folder = RunFolder::open(path, config);
  if (!folder)
    return folder.error();
  cli::note("run folder " + path + (*folder)->state_text());
  if (!settings.save_logits.empty()) {
    std::error_code error;
    std::filesystem::create_directories(settings.save_logits, error);
    if (error)
      return usage("--save-logits: cannot make the folder " + settings.save_logits + ": " + error.message());
  }
  if (Status status = (*folder)->write("environment.json", to_pretty(environment_json(opened.model->info()))); !status)
    return status.error();
  if (settings.export_samples) {
    Result<std::string> samples = samples_text(engine, opened.config, opened.tasks);
    if (!samples)
      return samples.error();
    if (Status status = (*folder)->write("samples.jsonl", *samples); !status)
      return status.error();
  }
  if (Status status = work(settings, opened, engine, **folder, config); !status)
    return status.error();
  for (const TaskGrid& task : opened.tasks) {
    if (task.task->n_skipped() > 0)
      cli::warn(task.name + ": " + std::to_string(task.task->n_skipped()) + " bad lines skipped");
  }
  return results_text(settings, **folder);
}

}  // namespace
}  // namespace kedge::eval

namespace kedge::cli {

std::vector<VerbList> eval_lists() {
  VerbList tasks{.title = "Tasks", .entries = {}};
  for (const eval::TaskInfo& info : eval::tasks()) {
    const Result<eval::TaskChoice> choice = eval::parse_task(info.name);
    std::string summary = info.summary;
    for (const eval::TaskOption& option : info.options)
      summary += "; " + option.name + ": " + option.help;
    tasks.entries.push_back({choice ? choice->text : info.name, summary, info.source});
  }
  VerbList metrics{.title = "Metrics", .entries = {}};
  for (const eval::MetricInfo& info : eval::metrics())
    metrics.entries.push_back({std::string(info.name), std::string(info.summary), ""});
  return {tasks, metrics};
}

int eval_verb(const Settings& settings) {
  const Result<std::string> result = eval::evaluate(settings);
  if (!result.ok())
    return report(result.error());
  const Status status = print_text(result.value());
  return status.ok() ? 0 : report(status.error());
}

}  // namespace kedge::cli
