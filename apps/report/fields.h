// Reads fields out of JSON and remembers the first thing that is wrong, so that a reader is a list of fields.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kedge/error.h"

namespace kedge::report {

using Json = nlohmann::json;

// The JSON text of a file. Error failed: missing, unreadable, damaged (with line and column).
Result<Json> read_json(const std::string& path);
// `where`: "x.json" or "x.jsonl:12", in front of the error.
Result<Json> parse_json(std::string_view text, const std::string& where);

class Fields {
 public:
  explicit Fields(std::string where) : where_(std::move(where)) {}

  // An absent field and null are nothing; another type is an error.
  std::optional<double> number(const Json& object, std::string_view key);
  bool boolean(const Json& object, std::string_view key);
  std::string text(const Json& object, std::string_view key);
  std::vector<double> numbers(const Json& object, std::string_view key);
  std::vector<std::string> texts(const Json& object, std::string_view key);
  const Json& list(const Json& object, std::string_view key);    // an empty list where absent
  const Json& object(const Json& object, std::string_view key);  // an empty object where absent

  std::string needed_text(const Json& object, std::string_view key);
  double needed_number(const Json& object, std::string_view key);

  // Where the following fields are: "groups[3]". Shown in front of their name.
  void enter(std::string path) { path_ = std::move(path); }
  void wrong(std::string_view key, const std::string& what);
  Status status() const { return error_ ? Status(*error_) : Status(); }
  bool ok() const { return !error_; }

 private:
  const Json* find(const Json& object, std::string_view key);

  std::string where_, path_;
  std::optional<Error> error_;
};

}  // namespace kedge::report
