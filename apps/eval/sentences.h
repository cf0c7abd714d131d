// Where a text may be cut or added to.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace kedge::eval {

struct Sentence {
  size_t begin = 0;  // bytes
  size_t body = 0;   // after the white space it begins with
  size_t end = 0;
};

// The text's sentences, without gaps: each begins with the white space before it; white space at the text's end belongs
// to none. A sentence ends after . ! ? (and closing quotes or brackets) where white space and no small letter follows
// and the last word has two letters in a row or is a number ("e.g." and "3.2." end none), after a CJK full stop, and at
// a blank line. One of more than 600 bytes is cut at white space, or within a word, but not within a character.
std::vector<Sentence> split_sentences(std::string_view text);

}  // namespace kedge::eval
