// Text as the metrics compare it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kedge::eval {

// Code points of UTF-8. A byte that is not part of a valid sequence stands for itself as kInvalidByte + byte, so that
// invalid text is equal only to the same bytes.
inline constexpr char32_t kInvalidByte = 0x110000;
std::u32string code_points(std::string_view text);

// Simple lower case of ASCII, Latin, Greek and Cyrillic letters; everything else as it is.
char32_t lower(char32_t c);
bool is_space(char32_t c);  // as Unicode's White_Space

// ASCII white space at both ends left out.
std::string_view trimmed(std::string_view text);

// SQuAD's normalisation (Rajpurkar et al. 2016, arXiv:1606.05250): lower case; ASCII punctuation deleted; the words a,
// an, the left out; what is left, split at white space.
std::vector<std::u32string> squad_words(std::string_view text);

// ROUGE's words: lower case; runs of ASCII letters and digits, and of anything beyond ASCII that is no white space.
std::vector<std::u32string> rouge_words(std::string_view text);

// Numbers for words, equal where the words are, counted from 0 in order of first use over both lists.
struct WordIds {
  std::vector<uint32_t> a;
  std::vector<uint32_t> b;
};
WordIds word_ids(std::span<const std::u32string> a, std::span<const std::u32string> b);

}  // namespace kedge::eval
