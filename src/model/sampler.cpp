#include <llama.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <unordered_set>

#include "base/check.h"
#include "model/tokenizer.h"

namespace kedge::model {
namespace {

struct SamplerFree {
  void operator()(llama_sampler* sampler) const { llama_sampler_free(sampler); }
};

// NaN loses against everything, -inf included, so that a broken logit never becomes a token.
float or_lowest(float logit) { return logit == logit ? logit : -std::numeric_limits<float>::infinity(); }

// The index of the largest logit; the lowest of equals. 0 when all are NaN.
Token argmax(std::span<const float> logits) {
  // Eight running maxima let the compiler vectorise the first pass; the second finds the first index that has the
  // value.
  constexpr size_t kLanes = 8;
  float best[kLanes];
  std::fill(best, best + kLanes, -std::numeric_limits<float>::infinity());
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane)
      best[lane] = logits[i + lane] > best[lane] ? logits[i + lane] : best[lane];
  }
  for (; i < logits.size(); ++i)
    best[0] = logits[i] > best[0] ? logits[i] : best[0];
  const float top = *std::max_element(best, best + kLanes);
  for (size_t j = 0; j < logits.size(); ++j) {
    if (logits[j] == top)
      return static_cast<Token>(j);
  }
  return 0;
}

struct Candidate {
  float logit;
  Token id;
};

// Whether a ranks before b: the larger logit, of equals the lower id.
bool before(const Candidate& a, const Candidate& b) { return a.logit > b.logit || (a.logit == b.logit && a.id < b.id); }

// The k best of the logits, 0 < k < size, in no order. A heap of the best so far, its worst on top, and a scan for what
// beats it: after a few thousand tokens nearly every block is passed over by its maximum alone, which the compiler
// vectorises.
std::span<const Candidate> best_of(std::span<const float> logits, size_t k, std::vector<Candidate>& heap) {
  constexpr size_t kBlock = 32;
  heap.clear();
  for (size_t id = 0; id < k; ++id)
    heap.push_back({or_lowest(logits[id]), static_cast<Token>(id)});
  std::make_heap(heap.begin(), heap.end(), before);
  const auto offer = [&](size_t id) {
    const Candidate c{or_lowest(logits[id]), static_cast<Token>(id)};
    if (!before(c, heap.front()))
      return;
    std::pop_heap(heap.begin(), heap.end(), before);
    heap.back() = c;
    std::push_heap(heap.begin(), heap.end(), before);
  };
  size_t id = k;
  for (; id + kBlock <= logits.size(); id += kBlock) {
    int n_better = 0;  // ids only grow, so an equal logit ranks behind
    for (size_t i = 0; i < kBlock; ++i)
      n_better += logits[id + i] > heap.front().logit ? 1 : 0;
    if (n_better == 0)
      continue;
    for (size_t i = 0; i < kBlock; ++i)
      offer(id + i);
  }
  for (; id < logits.size(); ++id)
    offer(id);
  return heap;
}

}  // namespace

struct Sampler::Impl {
  SamplerOptions options;
  uint32_t seed = 0;
  uint64_t n_draws = 0;
  bool penalises = false;
  bool lengthens = false;
  std::unique_ptr<llama_sampler, SamplerFree> chain;
  std::vector<llama_token_data> candidates;
  std::vector<Candidate> heap;
  std::vector<float> adjusted;  // f32 [n_vocab], with rarer ends
  std::vector<Token> recent;    // the last repeat_last_n accepted, oldest first; only kept when penalties need it

  void build_chain();
  std::span<const float> with_rarer_ends(std::span<const float> logits);
  void choose_candidates(std::span<const float> logits);
};

void Sampler::Impl::build_chain() {
  chain.reset(llama_sampler_chain_init(llama_sampler_chain_default_params()));
  const SamplerOptions& o = options;
  llama_sampler* c = chain.get();
  if (penalises)
    llama_sampler_chain_add(c, llama_sampler_init_penalties(std::numeric_limits<int32_t>::max(), o.repeat_last_n,
                                                            o.repeat_penalty, 0.0F, 0.0F));
  if (o.temperature <= 0) {
    llama_sampler_chain_add(c, llama_sampler_init_greedy());
    return;
  }
  if (o.top_k > 0)
    llama_sampler_chain_add(c, llama_sampler_init_top_k(o.top_k));
  llama_sampler_chain_add(c, llama_sampler_init_top_p(o.top_p, 1));
  llama_sampler_chain_add(c, llama_sampler_init_min_p(o.min_p, 1));
  llama_sampler_chain_add(c, llama_sampler_init_temp(o.temperature));
  llama_sampler_chain_add(c, llama_sampler_init_dist(seed));
}

std::span<const float> Sampler::Impl::with_rarer_ends(std::span<const float> logits) {
  if (!lengthens)
    return logits;
  adjusted.assign(logits.begin(), logits.end());
  const float less = std::log(options.length_penalty);
  for (const Token token : options.end_tokens) {
    if (token >= 0 && static_cast<size_t>(token) < adjusted.size())
      adjusted[static_cast<size_t>(token)] -= less;
  }
  return adjusted;
}

// The chain sorts and searches what it is given: over a whole vocabulary that is most of a millisecond. Only the tokens
// that can reach its top-k go in: the k best, and with penalties as many more as can be pushed down (each recent token
// at most).
void Sampler::Impl::choose_candidates(std::span<const float> logits) {
  candidates.clear();
  const auto push = [&](size_t id) {
    candidates.push_back({.id = static_cast<Token>(id), .logit = or_lowest(logits[id]), .p = 0.0F});
  };
  const size_t k =
      static_cast<size_t>(std::max(options.temperature <= 0 ? 1 : options.top_k, 0)) + (penalises ? recent.size() : 0);
  const bool all = (options.top_k <= 0 && options.temperature > 0) || k >= logits.size();
  if (all) {
    for (size_t id = 0; id < logits.size(); ++id)
      push(id);
    return;
  }
  for (const Candidate& c : best_of(logits, k, heap))
    push(static_cast<size_t>(c.id));
  if (!penalises || options.repeat_penalty >= 1)
    return;
  // A "penalty" below one lifts recent tokens: they may come from below the k best.
  std::unordered_set<Token> present;
  for (const llama_token_data& c : candidates)
    present.insert(c.id);
  for (const Token token : recent) {
    if (token >= 0 && static_cast<size_t>(token) < logits.size() && present.insert(token).second)
      push(static_cast<size_t>(token));
  }
}

Sampler::Sampler(const SamplerOptions& options) : impl_(std::make_unique<Impl>()) {
  impl_->options = options;
  impl_->seed = options.seed == 0xFFFFFFFF ? std::random_device{}() : options.seed;
  impl_->penalises = options.repeat_penalty != 1.0F && options.repeat_penalty > 0 && options.repeat_last_n > 0;
  impl_->lengthens = options.length_penalty != 1.0F && options.length_penalty > 0 && !options.end_tokens.empty();
  impl_->build_chain();
}

// libllama does not show the state of its generator: it is drawn from as often as it was. One draw an answer, whatever
// the candidates are.
Sampler Sampler::resume(const SamplerState& state) {
  Sampler sampler(state.options);
  for (uint64_t& n = sampler.impl_->n_draws; n < state.n_draws; ++n) {
    llama_token_data one = {.id = 0, .logit = 0.0F, .p = 0.0F};
    llama_token_data_array array{.data = &one, .size = 1, .selected = -1, .sorted = false};
    llama_sampler_apply(sampler.impl_->chain.get(), &array);
  }
  for (const Token token : state.recent)
    sampler.accept(token);
  return sampler;
}

SamplerState Sampler::state() const {
  SamplerState state{.options = impl_->options, .n_draws = impl_->n_draws, .recent = impl_->recent};
  state.options.seed = impl_->seed;
  return state;
}

Sampler::~Sampler() = default;
Sampler::Sampler(Sampler&&) noexcept = default;

Token Sampler::sample(std::span<const float> logits) {
  check(!logits.empty(), "sample: no logits");
  logits = impl_->with_rarer_ends(logits);
  if (impl_->options.temperature <= 0 && !impl_->penalises)
    return argmax(logits);
  impl_->choose_candidates(logits);
  llama_token_data_array array{
      .data = impl_->candidates.data(), .size = impl_->candidates.size(), .selected = -1, .sorted = false};
  llama_sampler_apply(impl_->chain.get(), &array);
  impl_->n_draws += impl_->options.temperature > 0 ? 1 : 0;
  check(array.selected >= 0 && array.selected < static_cast<int64_t>(array.size), "sample: the chain chose nothing");
  return array.data[array.selected].id;
}

void Sampler::accept(Token token) {
  if (impl_->options.temperature <= 0 && !impl_->penalises)
    return;
  llama_sampler_accept(impl_->chain.get(), token);
  if (!impl_->penalises)
    return;
  if (static_cast<int>(impl_->recent.size()) == impl_->options.repeat_last_n)
    impl_->recent.erase(impl_->recent.begin());
  impl_->recent.push_back(token);
}

void Sampler::reset() {
  impl_->recent.clear();
  impl_->n_draws = 0;
  impl_->build_chain();  // also starts the random numbers anew from the same seed
}

uint32_t Sampler::seed() const { return impl_->seed; }

}  // namespace kedge::model
