// From values to places on the page, and where an axis is marked.
#pragma once

#include <string>
#include <vector>

namespace kedge::report {

// about `count` round values (1, 2 or 5 times a power of ten apart) within lo..hi.
std::vector<double> linear_ticks(double lo, double hi, int count);

// 1, 2, 5 times powers of ten within lo..hi; only the powers of ten where they alone are `count` or more. lo > 0.
std::vector<double> log_ticks(double lo, double hi, int count);

struct Span {
  double from = 0;
  double to = 1;
};

// A value to a coordinate. A domain of no width maps to the middle; a log scale puts what is not positive at the low
// end.
class Scale {
 public:
  Scale(Span domain, Span range, bool log) : domain_(domain), range_(range), log_(log) {}
  double operator()(double value) const;
  const Span& domain() const { return domain_; }
  const Span& range() const { return range_; }
  std::vector<double> ticks(int count) const;

 private:
  Span domain_, range_;
  bool log_;
};

// The smallest span that holds all values, wider by `margin` of its width on both sides (of its ratio where `log`).
Span padded(const std::vector<double>& values, double margin, bool log);

}  // namespace kedge::report
