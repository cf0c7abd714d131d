#include "eval/sentences.h"

#include <algorithm>

namespace kedge::eval {
namespace {

constexpr size_t kMaxBytes = 600;

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c & 0x80) != 0; }

// The word that ends before `end` has two letters in a row, or is a number that the sentence does not begin with.
bool ends_with_word(std::string_view text, size_t begin, size_t end) {
  size_t i = end;
  bool digits = true;
  for (; i > begin && !is_space(text[i - 1]); --i) {
    digits = digits && text[i - 1] >= '0' && text[i - 1] <= '9';
    if (i - 1 > begin && is_letter(text[i - 1]) && is_letter(text[i - 2]))
      return true;
  }
  return digits && i > begin && i < end;
}

// Bytes of a mark at `at` that ends a sentence by itself (ideographic full stop, full-width ! and ?); 0: none.
size_t cjk_stop(std::string_view text, size_t at) {
  for (const std::string_view stop : {"\u3002", "\uff01", "\uff1f"}) {
    if (text.substr(at, stop.size()) == stop)
      return stop.size();
  }
  return 0;
}

// White space from `at` on with two line breaks in it, or the text's end.
bool at_paragraph_end(std::string_view text, size_t at) {
  int n_breaks = 0;
  for (; at < text.size() && is_space(text[at]); ++at)
    n_breaks += text[at] == '\n' ? 1 : 0;
  return n_breaks >= 2 || at == text.size();
}

// Whether a sentence that began at `body` ends just before `at`, where white space begins.
bool ends_at_space(std::string_view text, size_t body, size_t at) {
  if (at_paragraph_end(text, at))
    return true;
  size_t last = at;
  while (last > body && std::string_view("\"')]}*_").find(text[last - 1]) != std::string_view::npos)
    --last;
  if (last == body || std::string_view(".!?").find(text[last - 1]) == std::string_view::npos)
    return false;
  const size_t next = std::min(text.find_first_not_of(" \t\r\n\v\f", at), text.size());
  const bool small = next < text.size() && text[next] >= 'a' && text[next] <= 'z';
  return !small && ends_with_word(text, body, last - 1);
}

// Where a sentence that is too long is cut: at its last white space, or between characters.
size_t cut(std::string_view text, size_t body, size_t at) {
  for (size_t i = at; i > body + kMaxBytes / 2; --i) {
    if (is_space(text[i]))
      return i;
  }
  while (at > body + 1 && (text[at] & 0xC0) == 0x80)
    --at;
  return at;
}

}  // namespace

std::vector<Sentence> split_sentences(std::string_view text) {
  std::vector<Sentence> sentences;
  size_t begin = 0;
  for (;;) {
    const size_t body = text.find_first_not_of(" \t\r\n\v\f", begin);
    if (body == std::string_view::npos)
      return sentences;
    size_t at = body;
    for (; at < text.size(); ++at) {
      if (is_space(text[at]) ? ends_at_space(text, body, at) : false)
        break;
      if (const size_t n = cjk_stop(text, at); n > 0) {
        at += n;
        break;
      }
      if (at - body >= kMaxBytes) {
        at = cut(text, body, at);
        break;
      }
    }
    sentences.push_back({.begin = begin, .body = body, .end = at});
    begin = at;
  }
}

}  // namespace kedge::eval
