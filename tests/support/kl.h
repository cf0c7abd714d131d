// How far two next-token distributions are apart.
#pragma once

#include <cstdint>
#include <span>

namespace kedge::test {

// KL(reference || other) of the softmaxes of two rows of logits f32 [n_vocab], in double.
double kl_divergence(std::span<const float> reference, std::span<const float> other);
int32_t argmax(std::span<const float> logits);  // ties: the lower id

// Collects rows; one per position compared.
class Divergence {
 public:
  void add(std::span<const float> reference, std::span<const float> other);
  int64_t n() const { return n_; }
  double mean_kld() const {
    return sum_ / static_cast<double>(n_);
  }  // nats; NaN without rows, which fails any comparison
  double max_kld() const { return max_; }
  double same_top() const { return static_cast<double>(same_) / static_cast<double>(n_); }  // 0..1
  double max_abs() const { return max_abs_; }  // largest difference of one logit

 private:
  int64_t n_ = 0;
  int64_t same_ = 0;
  double sum_ = 0;
  double max_ = 0;
  double max_abs_ = 0;
};

}  // namespace kedge::test
