// Comma-separated values as RFC 4180 describes them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kedge/error.h"

namespace kedge::report {

struct CsvRow {
  int64_t line = 0;  // where the row begins, from 1; a quoted field may hold line breaks
  std::vector<std::string> fields;
};

// All rows, the header included. Lines end with LF or CRLF, the last may have no end; an empty line is no row. Error
// failed, naming `file` and line: a quote that is never closed, text after a closing quote, a quote inside a bare
// field, a zero byte, a row whose number of fields is not the header's.
Result<std::vector<CsvRow>> parse_csv(std::string_view text, const std::string& file);

}  // namespace kedge::report
