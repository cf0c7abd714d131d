// Passages built from the user's own texts whose ends cannot be predicted without a row far back: needles (a made-up
// code stated once, and asked for at the end) and copies (a stretch of the text, again at the end). Several candidates
// lie in one text; the trainer takes the one whose rows its gates would give up first.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eval/random.h"
#include "kedge/model.h"

namespace kedge::lm {

struct Candidate {
  int64_t begin = 0, end = 0;  // tokens of the body that are needed
  std::vector<Token> tail;     // what follows the body
  int64_t n_asked = 0;         // its first tokens, which are given; the rest is the answer
};

struct Body {
  std::vector<Token> tokens;
  std::vector<Candidate> candidates;  // empty: the text is too short for any
};

// How text becomes tokens, and a token text.
struct Words {
  std::function<std::vector<Token>(std::string_view)> tokenize;
  std::function<std::string(Token)> piece;
};

// From the first tokens of `text`: body and longest tail together have text.size() tokens at most.
Body plant_needles(std::span<const Token> text, const Words& words, eval::Random& random);
Body find_copies(std::span<const Token> text, const Words& words, eval::Random& random);

// Index of the candidate whose rows have the lowest mean of `row_keep` (one value for each token of the body).
size_t hardest(const Body& body, std::span<const double> row_keep);

}  // namespace kedge::lm
