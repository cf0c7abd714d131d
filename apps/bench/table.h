// The Markdown table: llama-bench's columns, then those of the KV store.
#pragma once

#include <memory>
#include <string>

#include "bench/format.h"

namespace kedge::bench {

std::unique_ptr<Printer> make_table_printer(const Plan& plan);

std::string size_text(int64_t bytes);       // "92.10 MiB", "1.20 GiB"
std::string params_text(int64_t n_params);  // "134.52 M", "1.24 B"

}  // namespace kedge::bench
