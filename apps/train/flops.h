// Floating-point operations of trainings, counted from the model's sizes: a product and its addition are two.
#pragma once

#include <cstdint>
#include <string>

#include "session/timeline.h"

namespace kedge::train {

struct PassWork {
  int64_t n = 0;          // tokens of the text
  int64_t n_counted = 0;  // positions whose predictions are compared
  int width = 0;          // of the gate
  bool from_full = true;  // the full cache's predictions are computed too
  bool full = true;       // a reading with the full cache is needed
  bool recompute = false;
};

double full_reading_flops(const model::HyperParams& of, int64_t n);  // without the output matrix
// A text read with gates in the way, and back.
double pass_flops(const model::HyperParams& of, const PassWork& work);

// Labels of one window: the model reads it and, for labels of a repetition, reads it once more behind itself.
double label_flops(const model::HyperParams& of, int64_t n, bool repeats);
// A network of `width` hidden units for each layer, n_rows rows, so many passes over them.
double fit_flops(const model::HyperParams& of, int width, int64_t n_rows, int epochs);

// What the model's own training took, by the rule of 6 operations for each parameter and token, and tokens by the rule
// of 20 for each parameter (arXiv 2203.15556); models of today have often seen more.
double own_training_flops(int64_t n_params);

// "1.2e+15 FLOP in 100 s (...), 0.05 % of ..." : the line that ends a training.
std::string effort_line(double flops, double seconds, int64_t n_params);

}  // namespace kedge::train
