// How far two predictions of the next token are apart, and what many of them say together. All in double.
#pragma once

#include <optional>
#include <span>
#include <vector>

namespace kedge::cli {

// -log softmax(logits)[token], in nats. logits f32 [n_vocab].
double negative_log_likelihood(std::span<const float> logits, int token);

struct Comparison {
  double nll = 0;  // of `other`
  double full_nll = 0;
  double kld = 0;         // KL(softmax(full) || softmax(other)), in nats; exactly 0 for equal rows
  bool same_top = false;  // the first of the likeliest tokens
};

// Both rows f32 [n_vocab]; token: the one that came.
Comparison compare(std::span<const float> full, std::span<const float> other, int token);

double mean(std::span<const double> values);
// Standard error of the mean; nothing for fewer than two values.
std::optional<double> standard_error(std::span<const double> values);
// Value at the share q of the sorted values, with linear interpolation.
double quantile(std::vector<double> values, double q);

}  // namespace kedge::cli
