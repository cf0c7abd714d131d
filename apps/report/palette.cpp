#include "palette.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace kedge::report {
namespace {

// Hues from blue over a greyish green to yellow; only red and green vision differ in what they see between them. Each
// is scaled so that its lightness lies on the line from kDark to kLight.
constexpr std::array<Rgb, 6> kHues = {Rgb{24, 44, 96},    Rgb{38, 78, 134},   Rgb{74, 120, 142},
                                      Rgb{124, 160, 134}, Rgb{190, 204, 118}, Rgb{255, 243, 170}};
constexpr double kDark = 17, kLight = 95;

double to_linear(double channel) {
  const double c = channel / 255;
  return c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
}

double luminance(const Rgb& c) { return 0.2126 * to_linear(c.r) + 0.7152 * to_linear(c.g) + 0.0722 * to_linear(c.b); }

Rgb scaled(const Rgb& c, double factor) {
  return {std::min(255.0, c.r * factor), std::min(255.0, c.g * factor), std::min(255.0, c.b * factor)};
}

Rgb with_lightness(const Rgb& colour, double wanted) {
  double low = 0, high = 4;
  for (int step = 0; step < 40; ++step) {
    const double middle = (low + high) / 2;
    (lightness(scaled(colour, middle)) < wanted ? low : high) = middle;
  }
  return scaled(colour, low);
}

}  // namespace

double lightness(const Rgb& colour) {
  const double y = luminance(colour);
  return y > 216.0 / 24389 ? 116 * std::cbrt(y) - 16 : y * 24389 / 27;
}

Rgb ramp(double share) {
  const double s = std::clamp(std::isfinite(share) ? share : 0.0, 0.0, 1.0);
  const double place = s * (kHues.size() - 1);
  const size_t left = std::min(static_cast<size_t>(place), kHues.size() - 2);
  const double t = place - static_cast<double>(left);
  const Rgb &a = kHues[left], &b = kHues[left + 1];
  const Rgb between = {a.r + t * (b.r - a.r), a.g + t * (b.g - a.g), a.b + t * (b.b - a.b)};
  return with_lightness(between, kDark + s * (kLight - kDark));
}

std::string hex(const Rgb& colour) {
  char text[8];
  const auto channel = [](double c) { return static_cast<unsigned>(std::lround(std::clamp(c, 0.0, 255.0))); };
  std::snprintf(text, sizeof text, "#%02x%02x%02x", channel(colour.r), channel(colour.g), channel(colour.b));
  return text;
}

std::string ink_on(const Rgb& colour) {
  const double y = luminance(colour);  // contrast as WCAG 2 defines it
  return 1.05 / (y + 0.05) >= (y + 0.05) / 0.05 ? "white" : "black";
}

}  // namespace kedge::report
