#include "session/row_types.h"

#include <optional>

namespace kedge::session {
namespace {

std::optional<RowType> row_type(const std::string& name) {
  if (name == "f16")
    return RowType::f16;
  if (name == "bf16")
    return RowType::bf16;
  if (name == "q8_0" || name == "q8")
    return RowType::q8;
  if (name == "q4_0" || name == "q4")
    return RowType::q4;
  return std::nullopt;
}

Error unknown(const char* whose, const std::string& name) {
  return {ErrorCode::usage,
          std::string("cache type '") + name + "' of the " + whose + " is not known; allowed: f16, bf16, q8_0, q4_0"};
}

}  // namespace

Result<RowTypes> parse_row_types(const std::string& k, const std::string& v) {
  const std::optional<RowType> keys = row_type(k);
  if (!keys)
    return unknown("keys", k);
  const std::optional<RowType> values = row_type(v);
  if (!values)
    return unknown("values", v);
  return RowTypes(*keys, *values);
}

}  // namespace kedge::session
