// Rows as text: a Markdown table, CSV, JSON, JSON lines. Field names are llama-bench's where it has them.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "bench/plan.h"
#include "bench/row.h"

namespace kedge::bench {

// Text that rows become; the parts are printed as they are made.
class Printer {
 public:
  virtual ~Printer() = default;
  virtual std::string header(const ModelFacts& model) = 0;
  virtual std::string row(const Row& row) = 0;
  virtual std::string footer() = 0;
};

// format: md | csv | json | jsonl. The plan decides which columns a table has and how wide they are.
std::unique_ptr<Printer> make_printer(std::string_view format, const Plan& plan);

// Every field of a row, in order; what was not measured is null.
nlohmann::ordered_json row_fields(const Row& row);

}  // namespace kedge::bench
