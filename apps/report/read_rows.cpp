// The two files with a line per question or cell: predictions.csv and journal.jsonl.
#include <charconv>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <tuple>

#include "csv.h"
#include "fields.h"
#include "run.h"

namespace kedge::report {
namespace {

constexpr size_t kMaxMemoryPoints = 4096;

Error failed(std::string message) { return {.code = ErrorCode::failed, .message = std::move(message)}; }

Result<std::string> read_whole(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  if (!in)
    return failed(path + ": cannot be read");
  return text.str();
}

// The columns of the header by name, and fields of a row with their place in errors.
class Columns {
 public:
  Columns(const std::string& path, const CsvRow& header) : path_(path) {
    for (size_t i = 0; i < header.fields.size(); ++i)
      at_[header.fields[i]] = i;
  }

  Status check() const {
    for (const char* name : {"task", "sample", "policy", "budget", "score"}) {
      if (!at_.contains(name))
        return failed(path_ + ":1: there is no column '" + name + "'");
    }
    return {};
  }

  std::string text(const CsvRow& row, const char* name) const {
    const auto found = at_.find(name);
    return found == at_.end() ? std::string() : row.fields[found->second];
  }

  Number number(const CsvRow& row, const char* name) {
    const std::string field = text(row, name);
    if (field.empty())
      return std::nullopt;
    double value = 0;
    const auto [stop, error] = std::from_chars(field.data(), field.data() + field.size(), value);
    if (error == std::errc() && stop == field.data() + field.size() && std::isfinite(value))
      return value;
    if (status.ok()) {
      status = failed(path_ + ":" + std::to_string(row.line) + ": column " + name + ": '" + field.substr(0, 40) +
                      "' is no number");
    }
    return std::nullopt;
  }

  Status status;

 private:
  const std::string& path_;
  std::map<std::string, size_t> at_;
};

using TraceKey = std::tuple<std::string, std::string, std::string, double>;

class Journal {
 public:
  Journal(const std::string& path, Run& run) : path_(path), run_(run) {
    run_.traces.emplace();
    for (const Prediction& row : run.predictions)
      lengths_[row.task + "|" + row.sample] = row.length;
  }

  Status add(std::string_view line, int64_t number) {
    const std::string where = path_ + ":" + std::to_string(number);
    const Result<Json> json = parse_json(line, where);
    if (!json)
      return json.error();
    if (json->contains("noise_floor") || json->contains("match"))
      return {};  // of the whole run: metrics.json has it
    Fields fields(where);
    const std::string cell = fields.needed_text(*json, "cell");
    std::vector<std::string> parts = split(cell);
    if (fields.ok() && parts.size() != 4)
      fields.wrong("cell", "is '" + cell + "', must be task|sample|policy|budget");
    if (!fields.ok())
      return fields.status();
    if (!run_.knows_policy(parts[2])) {
      fields.wrong("cell", "is of the policy '" + parts[2] + "', which config.json does not list");
      return fields.status();
    }
    const Json& rows = fields.list(*json, "rows");
    const Json none = Json::object();
    const Json& first = rows.empty() ? none : rows.front();
    Number length = fields.number(first, "length");
    if (!length)
      length = lengths_[parts[0] + "|" + parts[1]];
    Trace& trace = trace_of({parts[0], parts[2], parts[3], length.value_or(-1)}, length);
    if (!trace.kv_full_bytes) {
      trace.n_context = fields.number(first, "n_context");
      trace.kv_full_bytes = fields.number(first, "kv_full_bytes");
    }
    add_rows(fields, *json, trace);
    if (trace.memory.empty())
      add_memory(fields, *json, trace);
    return fields.status();
  }

 private:
  // The policy may hold no bar; the task may not either.
  static std::vector<std::string> split(const std::string& cell) {
    std::vector<std::string> parts(1);
    for (const char c : cell) {
      if (c == '|')
        parts.emplace_back();
      else
        parts.back() += c;
    }
    return parts;
  }

  Trace& trace_of(const TraceKey& key, Number length) {
    const auto [found, is_new] = index_.emplace(key, run_.traces->size());
    if (is_new) {
      run_.traces->push_back(
          {.task = std::get<0>(key), .policy = std::get<1>(key), .budget = std::get<2>(key), .length = length});
    }
    return (*run_.traces)[found->second];
  }

  static void add_rows(Fields& fields, const Json& json, Trace& trace) {
    const Json& layers = fields.list(json, "rows_per_head");
    if (layers.empty())
      return;
    std::vector<std::vector<double>> rows;
    for (const Json& layer : layers) {
      const Json wrapped = {{"rows_per_head", layer}};
      rows.push_back(fields.numbers(wrapped, "rows_per_head"));
    }
    if (trace.n_rows == 0)
      trace.mean_rows.assign(rows.size(), {});
    bool same = rows.size() == trace.mean_rows.size();
    for (size_t l = 0; same && l < rows.size(); ++l) {
      if (trace.n_rows == 0)
        trace.mean_rows[l].assign(rows[l].size(), 0.0);
      same = rows[l].size() == trace.mean_rows[l].size();
    }
    if (!same) {
      fields.wrong("rows_per_head", "has other layers or heads than the lines before");
      return;
    }
    ++trace.n_rows;
    for (size_t l = 0; l < rows.size(); ++l) {
      for (size_t h = 0; h < rows[l].size(); ++h)
        trace.mean_rows[l][h] += (rows[l][h] - trace.mean_rows[l][h]) / static_cast<double>(trace.n_rows);
    }
  }

  static void add_memory(Fields& fields, const Json& json, Trace& trace) {
    const Json& points = fields.list(json, "memory");
    const size_t stride = points.size() / kMaxMemoryPoints + 1;
    for (size_t i = 0; i < points.size(); i += stride) {
      const Json wrapped = {{"memory", points[i]}};
      const std::vector<double> point = fields.numbers(wrapped, "memory");
      if (point.size() != 3) {
        fields.wrong("memory", "holds a point that is not [tokens, bytes, evicted rows]");
        return;
      }
      trace.memory.push_back({.tokens = point[0], .live_bytes = point[1], .evicted_rows = point[2]});
    }
  }

  const std::string& path_;
  Run& run_;
  std::map<std::string, Number> lengths_;
  std::map<TraceKey, size_t> index_;
};

}  // namespace

Status read_predictions(const std::string& path, Run& run) {
  const Result<std::string> text = read_whole(path);
  if (!text)
    return text.error();
  const Result<std::vector<CsvRow>> rows = parse_csv(*text, path);
  if (!rows)
    return rows.error();
  if (rows->empty())
    return failed(path + ":1: the file is empty, a header is missing");
  Columns columns(path, rows->front());
  if (Status status = columns.check(); !status)
    return status;
  for (size_t i = 1; i < rows->size(); ++i) {
    const CsvRow& row = (*rows)[i];
    run.predictions.push_back({.task = columns.text(row, "task"),
                               .sample = columns.text(row, "sample"),
                               .policy = columns.text(row, "policy"),
                               .budget = columns.text(row, "budget"),
                               .metric = columns.text(row, "metric"),
                               .prediction = columns.text(row, "prediction"),
                               .answers = columns.text(row, "answers"),
                               .error = columns.text(row, "error"),
                               .length = columns.number(row, "length"),
                               .depth = columns.number(row, "depth"),
                               .question = columns.number(row, "question"),
                               .score = columns.number(row, "score"),
                               .nll = columns.number(row, "nll"),
                               .kld_mean = columns.number(row, "kld_mean")});
    if (!columns.status.ok())
      return columns.status;
    if (!run.knows_policy(run.predictions.back().policy)) {
      return failed(path + ":" + std::to_string(row.line) + ": column policy: '" + run.predictions.back().policy +
                    "' is not in config.json");
    }
  }
  return {};
}

Status read_journal(const std::string& path, Run& run) {
  const Result<std::string> text = read_whole(path);
  if (!text)
    return text.error();
  Journal journal(path, run);
  int64_t number = 1;
  for (size_t at = 0; at < text->size(); ++number) {
    const size_t end = text->find('\n', at);
    if (end == std::string::npos)
      break;  // torn: the line was being written
    const std::string_view line = std::string_view(*text).substr(at, end - at);
    at = end + 1;
    if (line.empty())
      continue;
    if (Status status = journal.add(line, number); !status)
      return status;
  }
  return {};
}

}  // namespace kedge::report
