// The texts that a gate learns from, as tokens.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kedge/error.h"
#include "kedge/model.h"
#include "session/timeline.h"
#include "train/plan.h"

namespace kedge::train {

struct Text {
  std::vector<DocumentSize> sizes;
  std::vector<std::vector<Token>> tokens;
  std::string names;   // "a.txt, b.txt; held out: c.txt"
  std::string sha256;  // of names and tokens
};

// The tokens of one of its windows.
std::span<const Token> tokens_of(const Text& text, const Window& window);

// held_out: file names of documents that nothing is learned from. Errors: failed (unreadable), usage (a held-out name
// that is none of the documents').
Result<Text> read_documents(std::span<const std::string> paths, std::span<const std::string> held_out,
                            const model::Tokenizer& tokenizer);

}  // namespace kedge::train
