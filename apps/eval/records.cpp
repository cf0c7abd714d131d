#include "eval/records.h"

#include <cstdio>
#include <type_traits>

namespace kedge::eval {
namespace {

template <typename T>
Json json_of(const T& field) {
  if constexpr (std::is_same_v<T, Value>) {
    return field ? Json(*field) : Json();
  } else {
    return Json(field);
  }
}

template <typename T>
void read_field(const Json& json, T& field) {
  if constexpr (std::is_same_v<T, Value>) {
    field = json.is_null() ? Value() : Value(json.get<double>());
  } else {
    field = json.get<T>();
  }
}

// Shortest text that reads back as the same number, as JSON writes it.
std::string number_text(double value) { return Json(value).dump(); }

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos)
    return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"')
      out += '"';
    out += c;
  }
  return out + '"';
}

template <typename T>
std::string csv_text(const T& field) {
  if constexpr (std::is_same_v<T, Value>) {
    return field ? number_text(*field) : "";
  } else if constexpr (std::is_same_v<T, double>) {
    return number_text(field);
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return std::to_string(field);
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    return field.empty() ? "" : csv_field(to_line(Json(field)));
  } else {
    return csv_field(field);
  }
}

Json rows_json(const CellRecord& record) {
  Json rows = Json::array();
  for (const Row& row : record.rows) {
    Json object = Json::object();
    Row::columns(row, [&object](const char* name, const auto& field) { object[name] = json_of(field); });
    rows.push_back(std::move(object));
  }
  return rows;
}

}  // namespace

std::string to_line(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }
std::string to_pretty(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }

Json to_json(const CellRecord& record) {
  Json memory = Json::array();
  for (const MemorySample& point : record.memory)
    memory.push_back(Json::array({point.tokens, point.kv_live_bytes, point.evicted_rows}));
  return {{"cell", record.cell},
          {"rows", rows_json(record)},
          {"rows_per_head", record.rows_per_head},
          {"memory", std::move(memory)},
          {"rss_peak_bytes", record.rss_peak_bytes},
          {"seconds", record.seconds}};
}

Result<CellRecord> cell_record(const Json& json) {
  try {
    CellRecord record{.cell = json.at("cell").get<std::string>(),
                      .rows_per_head = json.at("rows_per_head").get<std::vector<std::vector<int64_t>>>(),
                      .rss_peak_bytes = json.at("rss_peak_bytes").get<int64_t>(),
                      .seconds = json.at("seconds").get<double>()};
    for (const Json& object : json.at("rows")) {
      Row row;
      Row::columns(row, [&object](const char* name, auto& field) { read_field(object.at(name), field); });
      record.rows.push_back(std::move(row));
    }
    for (const Json& point : json.at("memory"))
      record.memory.push_back({point.at(0).get<double>(), point.at(1).get<int64_t>(), point.at(2).get<int64_t>()});
    return record;
  } catch (const Json::exception& error) {
    return Error{.code = ErrorCode::failed, .message = error.what()};
  }
}

std::string predictions_csv(std::span<const CellRecord> records) {
  std::string out;
  const char* separator = "";
  const Row names;
  Row::columns(names, [&](const char* name, const auto&) {
    out += separator;
    out += name;
    separator = ",";
  });
  out += '\n';
  for (const CellRecord& record : records) {
    for (const Row& row : record.rows) {
      separator = "";
      Row::columns(row, [&](const char*, const auto& field) {
        out += separator + csv_text(field);
        separator = ",";
      });
      out += '\n';
    }
  }
  return out;
}

}  // namespace kedge::eval
