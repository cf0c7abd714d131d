#include "session/reconstruct.h"

#include <algorithm>
#include <numeric>

namespace kedge::session {
namespace {

constexpr int64_t kLeadTokens = 8;  // of the piece before, which say where a later piece begins (released code)

}  // namespace

// The released code's words. Its suffix is the chat template's turn of the assistant; here prompts come as tokens, with
// or without a template, so that it is the line break that it uses for models without one.
ProbeText probe_text(const model::Tokenizer* tokenizer) {
  if (tokenizer == nullptr)
    return {};
  return {
      .first = tokenizer->tokenize("\n\nRepeat the previous context exactly.", false, false),
      .later = tokenizer->tokenize("\n\nRepeat the part of the previous context exactly, starting with", false, false),
      .suffix = tokenizer->tokenize("\n", false, false)};
}

int64_t ProbeText::extra() const {
  const size_t longest = std::max(first.size(), later.size() + kLeadTokens);
  return static_cast<int64_t>(longest + suffix.size());
}

std::vector<Probe> make_probes(const ProbeText& instruction, std::span<const Token> text, int64_t begin) {
  std::vector<Probe> probes;
  const auto end = static_cast<int64_t>(text.size());
  for (int64_t at = begin; at < end; at += kProbeTokens) {
    const int64_t n = std::min(kProbeTokens, end - at);
    Probe probe{.repeated = {.begin = static_cast<int32_t>(at),
                             .end = static_cast<int32_t>(at + n),
                             .probe = static_cast<int32_t>(end)},
                .tokens = at == 0 ? instruction.first : instruction.later,
                .hidden = {}};
    const int64_t lead = std::min(kLeadTokens, at);
    const auto append = [&probe](std::span<const Token> more) {
      probe.tokens.insert(probe.tokens.end(), more.begin(), more.end());
    };
    append(text.subspan(static_cast<size_t>(at - lead), static_cast<size_t>(lead)));
    append(instruction.suffix);
    append(text.subspan(static_cast<size_t>(at), static_cast<size_t>(n)));
    probes.push_back(std::move(probe));
  }
  return probes;
}

// ---- of the timeline ----

bool Timeline::is_repeated(const Chunk& chunk) const {
  return options_.histories.reconstruction || (policy_.needs().reconstruction && chunk.evict);
}

// The chunk's tokens have been added to tokens_.
void Timeline::start_probes(const Chunk& chunk) {
  probes_.clear();
  if (!is_repeated(chunk))
    return;
  probes_ = make_probes(probe_text(engine_.tokenizer), tokens_, n_tokens_);
  for (Probe& probe : probes_)
    embed(probe.tokens, probe.hidden);
}

// The layer has just attended over the n tokens of the chunk. Where the plan had no room for a repetition (a turn that
// was not announced, in a store that is full) the chunk's rows stay without one.
Status Timeline::run_probes(int layer, int64_t n) {
  for (Probe& probe : probes_) {
    if (!store_->reserve(sequence_, layer, layer + 1, static_cast<int>(probe.tokens.size()))) {
      probes_.clear();
      return {};
    }
    Status status = run_probe(layer, probe);
    store_->truncate(sequence_, static_cast<int32_t>(n_tokens_ + n));
    if (!status)
      return status;
  }
  return {};
}

Status Timeline::run_probe(int layer, Probe& probe) {
  std::vector<int32_t> positions(probe.tokens.size());
  std::iota(positions.begin(), positions.end(), probe.repeated.probe);
  const auto width = static_cast<size_t>(engine_.model->hyper().n_embd);
  for (size_t begin = 0; begin < positions.size(); begin += static_cast<size_t>(options_.n_ubatch)) {
    const size_t n = std::min<size_t>(options_.n_ubatch, positions.size() - begin);
    const std::span<const int32_t> where = std::span(positions).subspan(begin, n);
    const Status status = run_graph({.layer = layer,
                                     .hidden = std::span(probe.hidden).subspan(begin * width, n * width),
                                     .positions = where,
                                     .only_last_row = layer == engine_.model->hyper().n_layers - 1,
                                     .port = probe_attention_.get()});
    if (!status)
      return status;
    observations_->add_reconstruction(layer, {.q = graph_queries_.data(), .positions = where}, probe.repeated);
  }
  return {};
}

}  // namespace kedge::session
