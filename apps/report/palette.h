// Colours of maps: one ramp from dark blue to pale yellow, which keeps its order for every kind of colour vision and
// in grey. Colours of lines are classes of the style sheet (page/figure.css), see Style in chart.h.
#pragma once

#include <string>

namespace kedge::report {

struct Rgb {
  double r = 0, g = 0, b = 0;  // 0..255, sRGB
};

// 0 darkest .. 1 lightest; lightness (CIE L*) grows evenly, from 17 to 95. Outside of 0..1: the nearest end.
Rgb ramp(double share);

double lightness(const Rgb& colour);  // CIE L*, 0..100
std::string hex(const Rgb& colour);   // "#1b2a52"
// "black" or "white", whichever is easier to read on it: a class of page/figure.css.
std::string ink_on(const Rgb& colour);

}  // namespace kedge::report
