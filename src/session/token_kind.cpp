#include "session/token_kind.h"

#include <array>
#include <cctype>

#include "eviction/policy.h"

namespace kedge::session {
namespace {

struct Span {
  uint32_t first;
  uint32_t last;
};
constexpr std::array<Span, 11> kMarks = {{{0xA1, 0xA1},
                                          {0xAB, 0xAB},
                                          {0xB7, 0xB7},
                                          {0xBB, 0xBB},
                                          {0xBF, 0xBF},
                                          {0x2010, 0x2027},
                                          {0x2030, 0x205E},
                                          {0x3001, 0x3003},
                                          {0x3008, 0x3011},
                                          {0xFF01, 0xFF0F},
                                          {0xFF1A, 0xFF20}}};

// The character at the front of `text`, which loses it; 0 where it is broken off or no UTF-8.
uint32_t next_character(std::string_view& text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const size_t n = lead < 0x80 ? 1 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 0;
  if (n == 0 || text.size() < n)
    return 0;
  uint32_t character = n == 1 ? lead : lead & (0xFFU >> (n + 1));
  for (size_t i = 1; i < n; ++i)
    character = character << 6 | (static_cast<unsigned char>(text[i]) & 0x3FU);
  text.remove_prefix(n);
  return character;
}

}  // namespace

bool is_punctuation(std::string_view text) {
  bool has_mark = false;
  while (!text.empty()) {
    const uint32_t character = next_character(text);
    if (character == 0)
      return false;
    bool is_mark = character < 0x80 && std::ispunct(static_cast<int>(character)) != 0;
    for (const Span& span : kMarks)
      is_mark = is_mark || (character >= span.first && character <= span.last);
    const bool is_space = (character < 0x80 && std::isspace(static_cast<int>(character)) != 0) || character == 0xA0 ||
                          character == 0x3000;
    if (!is_mark && !is_space)
      return false;
    has_mark = has_mark || is_mark;
  }
  return has_mark;
}

uint8_t token_kind(const model::Tokenizer& tokenizer, model::Token token) {
  if (tokenizer.is_marker(token))
    return eviction::kSpecialToken;
  return is_punctuation(tokenizer.piece(token)) ? eviction::kPunctuationToken : 0;
}

}  // namespace kedge::session
