// How far two predictions of the next token are apart, and what many of them say together. All in double.
#pragma once

#include <optional>
#include <span>
#include <vector>

namespace kedge::cli {

// -log softmax(logits)[token], in nats. logits f32 [n_vocab].
double negative_log_likelihood(std::span<const float> logits, int token);

// KL(softmax(full) || softmax(other)), in nats; exactly 0 for equal rows. Both f32 [n_vocab].
double kl_divergence(std::span<const float> full, std::span<const float> other);

// Index of the largest value; the first of equals.
int top_token(std::span<const float> logits);

double mean(std::span<const double> values);
// Standard error of the mean; nothing for fewer than two values.
std::optional<double> standard_error(std::span<const double> values);
// Value at the share q of the sorted values, with linear interpolation.
double quantile(std::vector<double> values, double q);

}  // namespace kedge::cli
