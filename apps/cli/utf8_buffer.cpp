#include "utf8_buffer.h"

#include <algorithm>

namespace kedge::cli {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Scan {
  size_t length;  // bytes to take
  enum { whole, unfinished, invalid } kind;
};

// The allowed second byte of a character depends on the first (no overlong forms, no surrogates, at most U+10FFFF).
bool second_fits(unsigned first, unsigned second) {
  switch (first) {
    case 0xE0:
      return second >= 0xA0 && second <= 0xBF;
    case 0xED:
      return second >= 0x80 && second <= 0x9F;
    case 0xF0:
      return second >= 0x90 && second <= 0xBF;
    case 0xF4:
      return second >= 0x80 && second <= 0x8F;
    default:
      return second >= 0x80 && second <= 0xBF;
  }
}

Scan scan(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<unsigned>(static_cast<unsigned char>(text[i])); };
  const unsigned first = byte(0);
  if (first < 0x80)
    return {.length = 1, .kind = Scan::whole};
  const size_t wanted = first >= 0xC2 && first <= 0xDF   ? 2
                        : (first & 0xF0) == 0xE0         ? 3
                        : first >= 0xF0 && first <= 0xF4 ? 4
                                                         : 0;
  if (wanted == 0)
    return {.length = 1, .kind = Scan::invalid};
  for (size_t i = 1; i < std::min(wanted, text.size()); ++i) {
    const bool fits = i == 1 ? second_fits(first, byte(1)) : (byte(i) & 0xC0) == 0x80;
    if (!fits)
      return {.length = i, .kind = Scan::invalid};
  }
  if (text.size() < wanted)
    return {.length = text.size(), .kind = Scan::unfinished};
  return {.length = wanted, .kind = Scan::whole};
}

}  // namespace

std::string Utf8Buffer::push(std::string_view bytes) {
  held_ += bytes;
  std::string out;
  std::string_view rest = held_;
  while (!rest.empty()) {
    const Scan next = scan(rest);
    if (next.kind == Scan::unfinished)
      break;
    out += next.kind == Scan::whole ? rest.substr(0, next.length) : kReplacement;
    rest.remove_prefix(next.length);
  }
  held_ = std::string(rest);
  return out;
}

std::string Utf8Buffer::flush() {
  if (held_.empty())
    return {};
  held_.clear();
  return std::string(kReplacement);
}

}  // namespace kedge::cli
