#include "session/protection/utf8.h"

namespace kedge::session {

size_t first_bad_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const auto lead = static_cast<uint8_t>(text[at]);
    const size_t n = lead < 0x80                   ? 1
                     : lead >= 0xC2 && lead < 0xE0 ? 2
                     : (lead & 0xF0) == 0xE0       ? 3
                     : lead < 0xF5                 ? 4
                                                   : 0;
    if (n == 0 || (lead >= 0x80 && lead < 0xC2) || text.size() - at < n)
      return at;
    for (size_t i = 1; i < n; ++i) {
      if (!is_continuation(text[at + i]))
        return at;
    }
    const auto second = static_cast<uint8_t>(n > 1 ? text[at + 1] : 0);
    if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) || (lead == 0xF0 && second < 0x90) ||
        (lead == 0xF4 && second > 0x8F))
      return at;
    at += n;
  }
  return std::string_view::npos;
}

}  // namespace kedge::session
