#include "eval/metrics/words.h"

#include <unordered_map>

namespace kedge::eval {
namespace {

bool is_ascii_alnum(char32_t c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool is_ascii_punctuation(char32_t c) { return c > ' ' && c < 0x7F && !is_ascii_alnum(c); }

// Bytes of the sequence that begins with `lead`; 0: no sequence begins so.
size_t sequence_bytes(unsigned char lead) {
  if (lead < 0x80)
    return 1;
  if (lead >= 0xC2 && lead < 0xE0)
    return 2;
  if (lead >= 0xE0 && lead < 0xF0)
    return 3;
  return lead >= 0xF0 && lead < 0xF5 ? 4 : 0;
}

struct Decoded {
  char32_t c;
  size_t bytes;
};

Decoded decode(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const Decoded invalid = {kInvalidByte + byte(0), 1};
  const size_t n = sequence_bytes(byte(0));
  if (n == 1)
    return {byte(0), 1};
  if (n == 0 || n > text.size())
    return invalid;
  char32_t c = byte(0) & (0x7FU >> n);
  for (size_t i = 1; i < n; ++i) {
    if ((byte(i) & 0xC0) != 0x80)
      return invalid;
    c = (c << 6) | (byte(i) & 0x3F);
  }
  static constexpr char32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = c >= 0xD800 && c < 0xE000;
  return c < smallest[n] || c > 0x10FFFF || surrogate ? invalid : Decoded{c, n};
}

}  // namespace

std::u32string code_points(std::string_view text) {
  std::u32string points;
  points.reserve(text.size());
  while (!text.empty()) {
    const Decoded next = decode(text);
    points.push_back(next.c);
    text.remove_prefix(next.bytes);
  }
  return points;
}

char32_t lower(char32_t c) {
  const auto in = [c](char32_t first, char32_t last) { return c >= first && c <= last; };
  if (in('A', 'Z') || (in(0xC0, 0xDE) && c != 0xD7) || (in(0x391, 0x3A9) && c != 0x3A2) || in(0x410, 0x42F))
    return c + 32;
  if (in(0x400, 0x40F))
    return c + 80;
  // Pairs, capital first: Latin Extended-A in three runs (U+0130 has no simple partner), Cyrillic beyond Russian.
  if (in(0x100, 0x12F) || in(0x132, 0x137) || in(0x14A, 0x177) || in(0x460, 0x481) || in(0x48A, 0x4BF))
    return c | 1;
  if (in(0x139, 0x148) || in(0x179, 0x17E))
    return c % 2 == 1 ? c + 1 : c;
  return c;
}

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::string_view trimmed(std::string_view text) {
  const auto space = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  while (!text.empty() && space(text.front()))
    text.remove_prefix(1);
  while (!text.empty() && space(text.back()))
    text.remove_suffix(1);
  return text;
}

std::vector<std::u32string> squad_words(std::string_view text) {
  std::vector<std::u32string> words;
  std::u32string word;
  const auto end_word = [&] {
    if (!word.empty() && word != U"a" && word != U"an" && word != U"the")
      words.push_back(word);
    word.clear();
  };
  for (const char32_t c : code_points(text)) {
    if (is_space(c))
      end_word();
    else if (!is_ascii_punctuation(c))
      word.push_back(lower(c));
  }
  end_word();
  return words;
}

std::vector<std::u32string> rouge_words(std::string_view text) {
  std::vector<std::u32string> words;
  bool inside = false;
  for (const char32_t c : code_points(text)) {
    const bool part = is_ascii_alnum(c) || (c >= 0x80 && !is_space(c));
    if (part && !inside)
      words.emplace_back();
    if (part)
      words.back().push_back(lower(c));
    inside = part;
  }
  return words;
}

WordIds word_ids(std::span<const std::u32string> a, std::span<const std::u32string> b) {
  std::unordered_map<std::u32string_view, uint32_t> ids;
  const auto id = [&ids](const std::u32string& word) {
    return ids.try_emplace(word, static_cast<uint32_t>(ids.size())).first->second;
  };
  WordIds numbered;
  for (const std::u32string& word : a)
    numbered.a.push_back(id(word));
  for (const std::u32string& word : b)
    numbered.b.push_back(id(word));
  return numbered;
}

}  // namespace kedge::eval
