#include "eval/metrics/holds.h"

#include <algorithm>
#include <vector>

#include "eval/metrics/words.h"

namespace kedge::eval {
namespace {

// Knuth, Morris and Pratt's search: linear for any text ("aaaa...b" in "aaaa..." too). `wanted` is not empty.
bool find(const std::u32string& text, const std::u32string& wanted) {
  std::vector<size_t> border(wanted.size(), 0);  // longest proper beginning of wanted[0..i] that is also its end
  for (size_t i = 1, k = 0; i < wanted.size(); ++i) {
    while (k > 0 && wanted[i] != wanted[k])
      k = border[k - 1];
    if (wanted[i] == wanted[k])
      ++k;
    border[i] = k;
  }
  size_t matched = 0;
  for (const char32_t c : text) {
    while (matched > 0 && c != wanted[matched])
      matched = border[matched - 1];
    if (c == wanted[matched] && ++matched == wanted.size())
      return true;
  }
  return false;
}

}  // namespace

std::u32string folded(std::string_view text) {
  std::u32string points = code_points(text);
  std::ranges::transform(points, points.begin(), lower);
  return points;
}

bool holds(const std::u32string& folded_text, std::string_view answer) {
  const std::u32string wanted = folded(trimmed(answer));
  return wanted.empty() ? std::ranges::all_of(folded_text, is_space) : find(folded_text, wanted);
}

}  // namespace kedge::eval
