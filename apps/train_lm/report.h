// What a training leaves for people: a table and a page.
#pragma once

#include <string>

#include "train_lm/state.h"

namespace kedge::lm {

struct ReportFacts {
  std::string title;   // of the model
  std::string data;    // what was learned from
  std::string course;  // options in a line
  std::string effort;  // flops.h
  int n_layers = 0;
};

// lm-report.csv: one line a step, then what judgements said where there was one.
std::string lm_report_csv(const TrainState& state, int n_layers);

// lm-report.html: one file, nothing is loaded.
std::string lm_report_html(const TrainState& state, const ReportFacts& facts);

}  // namespace kedge::lm
