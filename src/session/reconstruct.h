// Context reconstruction (KVzip, arXiv 2505.23416): after a chunk the model is asked to repeat it, and what the
// repetition looks at is what matters. A repetition ("probe") is the instruction and a piece of the chunk's own tokens;
// it goes through each layer after the chunk, while the layer has all its rows, and its rows are taken away again
// before the layer is evicted. So it costs one layer's rows more and one to two times the time of reading the chunk;
// hidden rows and logits of the chunk never see it.
#pragma once

#include <span>
#include <vector>

#include "kedge/model.h"
#include "model/tokenizer.h"
#include "session/observations.h"

namespace kedge::session {

struct ProbeText {
  std::vector<Token> first;   // "repeat", before the first piece of a text
  std::vector<Token> later;   // "repeat from", followed by the tokens before the piece
  std::vector<Token> suffix;  // where the answer begins
  int64_t extra() const;      // most tokens of a probe beside its piece; at least 1
};
ProbeText probe_text(const model::Tokenizer* tokenizer);

struct Probe {
  Repeated repeated;
  std::vector<Token> tokens;
  std::vector<float> hidden;  // f32 [tokens, n_embd]
};
// One for each piece of kProbeTokens of the tokens from position `begin` on; hidden is empty. text: [n_tokens] by
// position.
std::vector<Probe> make_probes(const ProbeText& instruction, std::span<const Token> text, int64_t begin);

}  // namespace kedge::session
