#include <algorithm>
#include <filesystem>

#include "fields.h"
#include "run.h"

namespace kedge::report {
namespace {

constexpr const char* kSchema = "kedge-eval-1";

// A count out of a file, whatever number stands there.
int64_t count_of(double value) { return static_cast<int64_t>(std::clamp(value, 0.0, 1e15)); }

Error failed(std::string message) { return {.code = ErrorCode::failed, .message = std::move(message)}; }

void check_schema(Fields& fields, const Json& json) {
  const std::string schema = fields.needed_text(json, "schema");
  if (schema != kSchema)
    fields.wrong("schema", "is '" + schema + "', this program reads '" + kSchema + "'");
}

Result<Config> parse_config(const Json& json, const std::string& path) {
  Fields fields(path);
  check_schema(fields, json);
  Config config{.tasks = fields.texts(json, "tasks"),
                .file = fields.text(json, "file"),
                .file_sha256 = fields.text(json, "file_sha256"),
                .reference = fields.text(json, "reference"),
                .policies = {},
                .budgets = fields.texts(json, "budgets"),
                .lengths = fields.numbers(json, "lengths"),
                .depths = fields.numbers(json, "depths"),
                .samples = fields.number(json, "samples"),
                .seed = fields.number(json, "seed"),
                .continuation = fields.number(json, "continuation"),
                .question_aware = fields.boolean(json, "question_aware"),
                .decode_evicts = fields.boolean(json, "decode_evicts"),
                .chat = fields.boolean(json, "chat")};
  const Json& policies = fields.list(json, "policies");
  for (size_t i = 0; i < policies.size(); ++i) {
    fields.enter("policies[" + std::to_string(i) + "]");
    const std::string name = fields.needed_text(policies[i], "name");
    config.policies.push_back({.name = name, .text = fields.text(policies[i], "text")});
  }
  fields.enter("");
  if (config.policies.empty())
    fields.wrong("policies", "is empty");
  const Json& model = fields.object(json, "model");
  fields.enter("model");
  config.model = fields.text(model, "name");
  config.model_path = fields.text(model, "path");
  config.model_sha256 = fields.text(model, "sha256");
  config.architecture = fields.text(model, "architecture");
  config.weight_type = fields.text(model, "weight_type");
  config.n_layers = fields.number(model, "n_layers");
  config.n_kv_heads = fields.number(model, "n_kv_heads");
  config.head_dim = fields.number(model, "head_dim");
  return fields.ok() ? Result<Config>(config) : fields.status().error();
}

void check_policy(Fields& fields, const Run& run, const std::string& policy) {
  if (!run.knows_policy(policy))
    fields.wrong("policy", "is '" + policy + "', which config.json does not list");
}

Group parse_group(Fields& fields, const Json& json) {
  return {.task = fields.needed_text(json, "task"),
          .policy = fields.needed_text(json, "policy"),
          .budget = fields.needed_text(json, "budget"),
          .length = fields.number(json, "length"),
          .depth = fields.number(json, "depth"),
          .n = count_of(fields.needed_number(json, "n")),
          .n_errors = count_of(fields.number(json, "n_errors").value_or(0)),
          .score = fields.number(json, "score"),
          .score_se = fields.number(json, "score_se"),
          .score_lo = fields.number(json, "score_lo"),
          .score_hi = fields.number(json, "score_hi"),
          .keep = fields.number(json, "keep"),
          .kv_live_bytes = fields.number(json, "kv_live_bytes"),
          .kv_peak_bytes = fields.number(json, "kv_peak_bytes"),
          .kv_full_bytes = fields.number(json, "kv_full_bytes"),
          .evicted_rows = fields.number(json, "evicted_rows"),
          .ppl = fields.number(json, "ppl"),
          .full_ppl = fields.number(json, "full_ppl"),
          .kld_mean = fields.number(json, "kld_mean"),
          .kld_se = fields.number(json, "kld_se"),
          .kld_p99 = fields.number(json, "kld_p99"),
          .kld_max = fields.number(json, "kld_max"),
          .same_top = fields.number(json, "same_top"),
          .difference = fields.number(json, "difference"),
          .difference_se = fields.number(json, "difference_se")};
}

Status read_metrics(const std::string& path, Run& run) {
  const Result<Json> json = read_json(path);
  if (!json)
    return json.error();
  Fields fields(path);
  check_schema(fields, *json);
  const Json& groups = fields.list(*json, "groups");
  for (size_t i = 0; i < groups.size() && fields.ok(); ++i) {
    fields.enter("groups[" + std::to_string(i) + "]");
    run.groups.push_back(parse_group(fields, groups[i]));
    check_policy(fields, run, run.groups.back().policy);
  }
  fields.enter("");
  const Json& floor = fields.object(*json, "noise_floor");
  const Json& switches = fields.object(*json, "switches");
  fields.enter("noise_floor");
  if (!floor.empty()) {
    run.noise_floor = NoiseFloor{.kld_mean = fields.needed_number(floor, "kld_mean"),
                                 .same_top = fields.number(floor, "same_top"),
                                 .n_windows = fields.number(floor, "n_windows"),
                                 .what = fields.text(floor, "what")};
  }
  fields.enter("switches");
  if (switches.contains("shared_prefix"))
    run.shared_prefix = fields.boolean(switches, "shared_prefix");
  return fields.status();
}

Status read_timings(const std::string& path, Run& run) {
  const Result<Json> json = read_json(path);
  if (!json)
    return json.error();
  Fields fields(path);
  run.timings.emplace();
  run.seconds_total = fields.number(*json, "seconds_total");
  const Json& groups = fields.list(*json, "groups");
  for (size_t i = 0; i < groups.size() && fields.ok(); ++i) {
    const Json& group = groups[i];
    fields.enter("groups[" + std::to_string(i) + "]");
    run.timings->push_back({.policy = fields.needed_text(group, "policy"),
                            .budget = fields.needed_text(group, "budget"),
                            .n = fields.number(group, "n"),
                            .prefill_s = fields.number(group, "prefill_s"),
                            .decode_s = fields.number(group, "decode_s"),
                            .policy_ms = fields.number(group, "policy_ms"),
                            .rss_peak_bytes = fields.number(group, "rss_peak_bytes")});
    check_policy(fields, run, run.timings->back().policy);
  }
  return fields.status();
}

// "cpu, 2 threads": whatever of it is there; the file is for people.
Status read_environment(const std::string& path, Run& run) {
  const Result<Json> json = read_json(path);
  if (!json)
    return json.error();
  Fields fields(path);
  for (const char* key : {"cpu", "threads", "kedge", "version"}) {
    if (!json->is_object() || !json->contains(key))
      continue;
    const Json& value = (*json)[key];
    if (!value.is_string() && !value.is_number())
      continue;
    run.machine += run.machine.empty() ? "" : ", ";
    run.machine += value.is_string() ? value.get<std::string>() : std::string(key) + " " + value.dump();
  }
  return fields.status();
}

}  // namespace

bool Run::knows_policy(const std::string& policy) const {
  return policy == "none" || std::any_of(config.policies.begin(), config.policies.end(),
                                         [&](const PolicyEntry& entry) { return entry.name == policy; });
}

Result<Run> read_run(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_directory(folder, error))
    return failed("'" + folder + "' is no folder; a run folder is what `kedge eval` wrote");
  const auto path = [&](const char* name) { return (fs::path(folder) / name).string(); };
  Run run{.name = {}, .folder = folder};
  for (const char* name : {"config.json", "predictions.csv", "metrics.json"}) {
    if (!fs::exists(path(name), error))
      return failed("'" + folder + "' has no " + name + ": no run folder, or a run that did not end");
  }
  const Result<Json> config_json = read_json(path("config.json"));
  if (!config_json)
    return config_json.error();
  Result<Config> config = parse_config(*config_json, path("config.json"));
  if (!config)
    return config.error();
  run.config = *std::move(config);
  const struct {
    const char* name;
    Status (*read)(const std::string& path, Run& run);
  } files[] = {{"predictions.csv", read_predictions},
               {"metrics.json", read_metrics},
               {"timings.json", read_timings},
               {"journal.jsonl", read_journal},
               {"environment.json", read_environment}};
  for (const auto& file : files) {
    if (!fs::exists(path(file.name), error))
      continue;
    if (Status status = file.read(path(file.name), run); !status)
      return status.error();
  }
  return run;
}

void name_runs(std::vector<Run>& runs) {
  namespace fs = std::filesystem;
  const auto end_of = [](const std::string& folder, int parts) {
    std::error_code error;
    fs::path path = fs::weakly_canonical(folder, error);
    if (error || path.empty())
      path = folder;
    if (!path.has_filename())
      path = path.parent_path();
    fs::path out = path.filename();
    for (int i = 1; i < parts && path.has_parent_path(); ++i) {
      path = path.parent_path();
      out = path.filename() / out;
    }
    return out.string();
  };
  for (Run& run : runs) {
    for (int parts = 1; parts <= 8; ++parts) {
      run.name = end_of(run.folder, parts);
      const auto same = [&](const Run& other) { return &other != &run && end_of(other.folder, parts) == run.name; };
      if (std::none_of(runs.begin(), runs.end(), same))
        break;
    }
  }
}

}  // namespace kedge::report
