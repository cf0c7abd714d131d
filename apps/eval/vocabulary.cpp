#include "eval/vocabulary.h"

#include <algorithm>
#include <span>
#include <unordered_set>

#include "eval/metrics/words.h"

namespace kedge::eval {
namespace {

constexpr size_t kMaxBytes = size_t{8} << 20;

// Letters of any script, by leaving out what is known to be none.
bool is_letter(char32_t c) {
  const auto in = [c](char32_t first, char32_t last) { return c >= first && c <= last; };
  if (c < 0xC0)
    return in('a', 'z') || in('A', 'Z');
  return c < kInvalidByte && c != 0xD7 && c != 0xF7 && !in(0x2000, 0x2BFF) && !in(0x3000, 0x303F) &&
         !in(0xFF00, 0xFF20) && !in(0xE000, 0xF8FF) && c < 0x1F000;
}

void append(std::string& text, char32_t c) {
  const auto byte = [&text](char32_t value) { text += static_cast<char>(value); };
  if (c < 0x80) {
    byte(c);
  } else if (c < 0x800) {
    byte(0xC0 | c >> 6);
    byte(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    byte(0xE0 | c >> 12);
    byte(0x80 | (c >> 6 & 0x3F));
    byte(0x80 | (c & 0x3F));
  } else {
    byte(0xF0 | c >> 18);
    byte(0x80 | (c >> 12 & 0x3F));
    byte(0x80 | (c >> 6 & 0x3F));
    byte(0x80 | (c & 0x3F));
  }
}

}  // namespace

std::vector<std::string> vocabulary(std::string_view text) {
  std::vector<std::string> words;
  std::unordered_set<std::string> seen;
  std::string word;
  size_t n_letters = 0;
  const auto end_word = [&] {
    if (n_letters >= 4 && n_letters <= 12 && seen.insert(word).second)
      words.push_back(word);
    word.clear();
    n_letters = 0;
  };
  for (const char32_t c : code_points(text.substr(0, kMaxBytes))) {
    if (is_letter(c)) {
      append(word, lower(c));
      ++n_letters;
    } else {
      end_word();
    }
  }
  end_word();
  return words;
}

std::vector<std::string> draw_words(const std::vector<std::string>& words, size_t n, size_t n_answers, Random& random) {
  std::vector<std::string> order = words;
  random.shuffle(order);
  std::vector<std::string> drawn;
  for (std::string& word : order) {
    if (drawn.size() == n)
      break;
    const auto overlaps = [&word](const std::string& answer) {
      return word.find(answer) != std::string::npos || answer.find(word) != std::string::npos;
    };
    const std::span<const std::string> answers(drawn.data(), std::min(n_answers, drawn.size()));
    if (std::ranges::none_of(answers, overlaps))
      drawn.push_back(std::move(word));
  }
  return drawn;
}

}  // namespace kedge::eval
