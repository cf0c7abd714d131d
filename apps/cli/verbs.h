// The verbs of the program: one row each. A verb is one file here, or a folder beside this one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "settings.h"

namespace kedge::cli {

struct VerbListEntry {
  std::string name;     // "needle:keys=1,values=1"
  std::string summary;  // one line
  std::string source;   // may be empty
};
struct VerbList {
  std::string title;  // "Tasks"
  std::vector<VerbListEntry> entries;
};

struct VerbSpec {
  std::string_view name;
  unsigned bit;                 // of VerbBit, in options.h
  std::string_view positional;  // "[FILE]"; empty: takes none
  std::string_view summary;
  int (*run)(const Settings& settings);  // returns the exit code
  // What a verb has to list beyond its options: entries of its own registries.
  std::vector<VerbList> (*lists)() = nullptr;
};

std::span<const VerbSpec> verbs();

int run_verb(const Settings& settings);         // run.cpp
int perplexity_verb(const Settings& settings);  // perplexity.cpp
int inspect_verb(const Settings& settings);     // inspect.cpp
int policies_verb(const Settings& settings);    // policies.cpp
std::vector<VerbList> policies_lists();         // domains
int eval_verb(const Settings& settings);        // apps/eval/eval.cpp
std::vector<VerbList> eval_lists();             // tasks and metrics
int bench_verb(const Settings& settings);       // apps/bench/bench.cpp
int train_gate_verb(const Settings& settings);  // apps/train/train.cpp
int report_verb(const Settings& settings);      // apps/report/report.cpp

}  // namespace kedge::cli
