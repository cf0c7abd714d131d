// The verbs of the program: one row each. A verb is one file here, or a folder beside this one.
#pragma once

#include <span>
#include <string_view>

#include "settings.h"

namespace kedge::cli {

struct VerbSpec {
  std::string_view name;
  unsigned bit;                 // of VerbBit, in options.h
  std::string_view positional;  // "[FILE]"; empty: takes none
  std::string_view summary;
  int (*run)(const Settings& settings);  // returns the exit code
};

std::span<const VerbSpec> verbs();

int run_verb(const Settings& settings);         // run.cpp
int perplexity_verb(const Settings& settings);  // perplexity.cpp
int inspect_verb(const Settings& settings);     // inspect.cpp
int policies_verb(const Settings& settings);    // policies.cpp
int eval_verb(const Settings& settings);        // apps/eval/eval.cpp
int bench_verb(const Settings& settings);       // apps/bench/bench.cpp
int report_verb(const Settings& settings);      // apps/report/report.cpp

}  // namespace kedge::cli
