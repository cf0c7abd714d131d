// What protection needs to know of bytes of text.
#pragma once

#include <cstdint>
#include <string_view>

namespace kedge::session {

inline bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
inline bool is_continuation(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }
inline char folded(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }

// Whether a character, told by its first byte, is part of a word: ASCII letters, digits and _; scripts that part words
// by spaces, as far as the first byte tells (Latin, Greek, Cyrillic, Hebrew, Arabic, the Indic ones). Not: punctuation,
// the scripts of East Asia, which put no spaces between words, and emoji.
inline bool starts_word_character(char c) {
  const auto byte = static_cast<uint8_t>(c);
  if (byte < 0x80)
    return (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z') || byte == '_';
  return byte >= 0xC3 && byte <= 0xE1;
}

// The offset of the first byte that is not UTF-8 (overlong forms and surrogates are not); npos: all of it is.
size_t first_bad_utf8(std::string_view text);

}  // namespace kedge::session
