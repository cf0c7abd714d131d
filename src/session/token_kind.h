// Classes of tokens for scorers that prefer some (FastGen).
#pragma once

#include <cstdint>
#include <string_view>

#include "model/tokenizer.h"

namespace kedge::session {

// eviction::TokenKind bits of a token.
uint8_t token_kind(const model::Tokenizer& tokenizer, model::Token token);

// UTF-8 text of punctuation and white space only, with at least one mark: ASCII's, the general punctuation block,
// CJK and full-width marks, and a few of Latin-1. Incomplete characters are no punctuation.
bool is_punctuation(std::string_view text);

}  // namespace kedge::session
