#include "fields.h"

#include <cmath>
#include <fstream>
#include <sstream>

namespace kedge::report {
namespace {

const Json kNoList = Json::array();
const Json kNoObject = Json::object();

std::string kind_of(const Json& value) { return std::string("is ") + value.type_name(); }

}  // namespace

Result<Json> parse_json(std::string_view text, const std::string& where) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {  // the library's only way to say where
    std::string what = error.what();
    const size_t bracket = what.find("] ");
    return Error{
        .code = ErrorCode::failed,
        .message = where + ": damaged JSON: " + (bracket == std::string::npos ? what : what.substr(bracket + 2))};
  }
}

Result<Json> read_json(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  if (!in || !(text << in.rdbuf()))
    return Error{.code = ErrorCode::failed, .message = path + ": missing, empty or unreadable"};
  return parse_json(text.str(), path);
}

void Fields::wrong(std::string_view key, const std::string& what) {
  if (!error_) {
    const std::string field = path_.empty() ? std::string(key) : path_ + "." + std::string(key);
    error_ = Error{.code = ErrorCode::failed, .message = where_ + ": " + field + " " + what};
  }
}

const Json* Fields::find(const Json& object, std::string_view key) {
  if (!object.is_object()) {
    wrong(key, "is looked for in what is no object");
    return nullptr;
  }
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::optional<double> Fields::number(const Json& object, std::string_view key) {
  const Json* value = find(object, key);
  if (value == nullptr)
    return std::nullopt;
  if (!value->is_number() || !std::isfinite(value->get<double>())) {
    wrong(key, kind_of(*value) + ", must be a finite number or null");
    return std::nullopt;
  }
  return value->get<double>();
}

bool Fields::boolean(const Json& object, std::string_view key) {
  const Json* value = find(object, key);
  if (value != nullptr && !value->is_boolean())
    wrong(key, kind_of(*value) + ", must be true or false");
  return value != nullptr && value->is_boolean() && value->get<bool>();
}

std::string Fields::text(const Json& object, std::string_view key) {
  const Json* value = find(object, key);
  if (value != nullptr && !value->is_string())
    wrong(key, kind_of(*value) + ", must be a text");
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

const Json& Fields::list(const Json& object, std::string_view key) {
  const Json* value = find(object, key);
  if (value == nullptr)
    return kNoList;
  if (!value->is_array()) {
    wrong(key, kind_of(*value) + ", must be a list");
    return kNoList;
  }
  return *value;
}

const Json& Fields::object(const Json& object, std::string_view key) {
  const Json* value = find(object, key);
  if (value == nullptr)
    return kNoObject;
  if (!value->is_object()) {
    wrong(key, kind_of(*value) + ", must be an object");
    return kNoObject;
  }
  return *value;
}

std::vector<double> Fields::numbers(const Json& object, std::string_view key) {
  std::vector<double> out;
  for (const Json& value : list(object, key)) {
    if (value.is_number())
      out.push_back(value.get<double>());
    else
      wrong(key, "holds what " + kind_of(value) + ", must hold numbers");
  }
  return out;
}

std::vector<std::string> Fields::texts(const Json& object, std::string_view key) {
  std::vector<std::string> out;
  for (const Json& value : list(object, key)) {
    if (value.is_string())
      out.push_back(value.get<std::string>());
    else
      wrong(key, "holds what " + kind_of(value) + ", must hold texts");
  }
  return out;
}

std::string Fields::needed_text(const Json& object, std::string_view key) {
  if (find(object, key) == nullptr)
    wrong(key, "is missing, must be a text");
  return text(object, key);
}

double Fields::needed_number(const Json& object, std::string_view key) {
  if (find(object, key) == nullptr)
    wrong(key, "is missing, must be a number");
  return number(object, key).value_or(0);
}

}  // namespace kedge::report
