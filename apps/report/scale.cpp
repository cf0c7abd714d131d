#include "scale.h"

#include <algorithm>
#include <cmath>

namespace kedge::report {

std::vector<double> linear_ticks(double lo, double hi, int count) {
  if (!(hi > lo) || count < 1)
    return {lo};
  const double rough = (hi - lo) / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= 0.8 * rough) {
      step = factor * power;
      break;
    }
  }
  std::vector<double> out;
  const double first = std::ceil(lo / step - 1e-9);
  for (int i = 0; i <= 4 * count; ++i) {  // bounded: where steps drown in rounding, a sum would stand still
    const double tick = (first + i) * step;
    if (tick <= hi + step * 1e-9)
      out.push_back(tick + 0.0);  // no -0
  }
  return out;
}

std::vector<double> log_ticks(double lo, double hi, int count) {
  std::vector<double> all, tens;
  const int first = static_cast<int>(std::floor(std::log10(lo)));
  const int last = static_cast<int>(std::ceil(std::log10(hi)));
  for (int exponent = first; exponent <= last; ++exponent) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double value = factor * std::pow(10.0, exponent);
      if (value < lo * (1 - 1e-9) || value > hi * (1 + 1e-9))
        continue;
      all.push_back(value);
      if (factor == 1.0)
        tens.push_back(value);
    }
  }
  return static_cast<int>(tens.size()) >= count ? tens : all;
}

double Scale::operator()(double value) const {
  const auto place = [&](double v) { return log_ ? std::log(std::max(v, domain_.from)) : v; };
  const double width = place(domain_.to) - place(domain_.from);
  const double share = width > 0 ? (place(value) - place(domain_.from)) / width : 0.5;
  return range_.from + share * (range_.to - range_.from);
}

std::vector<double> Scale::ticks(int count) const {
  if (!log_)
    return linear_ticks(domain_.from, domain_.to, count);
  std::vector<double> out = log_ticks(domain_.from, domain_.to, count);
  return out.size() >= 2 ? out : linear_ticks(domain_.from, domain_.to, count);
}

Span padded(const std::vector<double>& values, double margin, bool log) {
  if (values.empty())
    return {};
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  if (log) {
    const double ratio = std::pow(std::max(*high / *low, 2.0), margin);
    return {.from = *low / ratio, .to = *high * ratio};
  }
  const double width = *high > *low ? *high - *low : std::max(std::fabs(*high), 1.0);
  return {.from = *low - margin * width, .to = *high + margin * width};
}

}  // namespace kedge::report
