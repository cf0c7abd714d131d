#include "bench/format.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/samples.h"
#include "bench/table.h"

namespace kedge::bench {
namespace {

using Json = nlohmann::ordered_json;

int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

std::string dump(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::vector<int64_t> nanoseconds(const std::vector<double>& seconds) {
  std::vector<int64_t> out;
  for (const double s : seconds)
    out.push_back(nanoseconds(s));
  return out;
}

void add_llama(const Row& row, Json& fields) {
  const bool measured = !row.llama_seconds.empty();
  const auto number = [measured](double value) { return measured ? Json(value) : Json(); };
  fields["llama_avg_ts"] = number(mean(row.llama_rates()));
  fields["llama_stddev_ts"] = number(stddev(row.llama_rates()));
  fields["ratio"] = number(median(row.ratios()));
  fields["ratio_min"] = number(smallest(row.ratios()));
  fields["ratio_max"] = number(largest(row.ratios()));
}

class JsonPrinter final : public Printer {
 public:
  std::string header(const ModelFacts& /*model*/) override { return "[\n"; }
  std::string row(const Row& row) override {
    std::string text = dump(row_fields(row), 2);
    for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 3)
      text.insert(at + 1, "  ");
    return (std::exchange(first_, false) ? "  " : ",\n  ") + text;
  }
  std::string footer() override { return "\n]\n"; }

 private:
  bool first_ = true;
};

class JsonLinesPrinter final : public Printer {
 public:
  std::string header(const ModelFacts& /*model*/) override { return ""; }
  std::string row(const Row& row) override { return dump(row_fields(row)) + "\n"; }
  std::string footer() override { return ""; }
};

// Every value in quotes, quotes doubled, lists of samples left out.
class CsvPrinter final : public Printer {
 public:
  std::string header(const ModelFacts& /*model*/) override { return line(row_fields({}), true); }
  std::string row(const Row& row) override { return line(row_fields(row), false); }
  std::string footer() override { return ""; }

 private:
  static std::string line(const Json& fields, bool names) {
    std::string text;
    for (const auto& [key, value] : fields.items()) {
      if (value.is_array())
        continue;
      text += text.empty() ? "" : ",";
      text += names ? key : quoted(value);
    }
    return text + "\n";
  }
  static std::string quoted(const Json& value) {
    std::string text = value.is_null() ? "" : value.is_string() ? value.get<std::string>() : dump(value);
    for (size_t at = 0; (at = text.find('"', at)) != std::string::npos; at += 2)
      text.insert(at, 1, '"');
    return '"' + text + '"';
  }
};

}  // namespace

Json row_fields(const Row& row) {
  const std::vector<double> rates = row.rates();
  const bool attended = row.attention_seconds > 0;
  Json fields = {
      {"backends", "CPU"},
      {"kernels", row.model.kernels},
      {"prompt_weights", row.model.prompt_weights},
      {"mmap", row.model.mmap},
      {"model_filename", row.model.path},
      {"model_type", row.model.type},
      {"model_size", row.model.size_bytes},
      {"model_n_params", row.model.n_params},
      {"n_batch", row.setup.n_batch},
      {"n_ubatch", row.setup.n_ubatch},
      {"n_threads", row.model.n_threads},
      {"type_k", row.setup.cache_type_k},
      {"type_v", row.setup.cache_type_v},
      {"n_prompt", row.test.n_prompt},
      {"n_gen", row.test.n_gen},
      {"n_depth", row.test.depth},
      {"kv_budget", row.variant.budget_text()},
      {"kv_policy", row.variant.policy},
      {"kv_policy_resolved", row.resolved_policy},
      {"test_time", row.test_time},
      {"avg_ns", nanoseconds(mean(row.seconds))},
      {"stddev_ns", nanoseconds(stddev(row.seconds))},
      {"avg_ts", mean(rates)},
      {"stddev_ts", stddev(rates)},
      {"kv_budget_bytes", row.kv_budget_bytes},
      {"kv_peak_bytes", row.kv_peak_bytes},
      {"rss_peak_bytes", row.rss_peak_bytes},
      {"rss_scope", row.rss_of_row ? "row" : "process"},
      {"policy_ms", row.policy_ms},
      {"attention_gb_s", attended ? Json(row.attention_gb_s()) : Json()},
      {"attention_share", attended && row.read_gb_s > 0 ? Json(row.attention_gb_s() / row.read_gb_s) : Json()},
      {"read_gb_s", row.read_gb_s},
  };
  add_llama(row, fields);
  fields["samples_ns"] = nanoseconds(row.seconds);
  fields["samples_ts"] = rates;
  fields["llama_samples_ns"] = nanoseconds(row.llama_seconds);
  fields["ratios"] = row.ratios();
  return fields;
}

std::unique_ptr<Printer> make_printer(std::string_view format, const Plan& plan) {
  if (format == "json")
    return std::make_unique<JsonPrinter>();
  if (format == "jsonl")
    return std::make_unique<JsonLinesPrinter>();
  if (format == "csv")
    return std::make_unique<CsvPrinter>();
  return make_table_printer(plan);
}

}  // namespace kedge::bench
