#include "kedge/session.h"

#include <utility>

#include "api/model_impl.h"
#include "model/tokenizer.h"
#include "session/timeline.h"

namespace kedge {

struct Session::Impl {
  std::unique_ptr<session::Timeline> timeline;
  std::unique_ptr<model::Sampler> sampler;
  std::vector<Token> tokens;  // accepted so far: what a fork's sampler looks back on
};

// A test holds these against what create() takes.
std::vector<std::string> cache_types() { return {"f16", "bf16"}; }

Session::Session() : impl_(std::make_unique<Impl>()) {}
Session::~Session() = default;

Result<std::unique_ptr<Session>> Session::create(const Model& model, const SessionOptions& options) {
  Result<std::unique_ptr<session::Timeline>> timeline = session::Timeline::create(model.impl().engine(), options);
  if (!timeline)
    return timeline.error();
  std::unique_ptr<Session> session(new Session());
  session->impl_->timeline = *std::move(timeline);
  session->set_sampler({});
  return session;
}

Status Session::prefill(std::span<const Token> tokens, const Progress& progress) {
  Status status = impl_->timeline->prefill(tokens, progress);
  if (status)
    accept(tokens);
  return status;
}

void Session::accept(std::span<const Token> tokens) {
  for (const Token token : tokens)
    impl_->sampler->accept(token);
  impl_->tokens.insert(impl_->tokens.end(), tokens.begin(), tokens.end());
}

Result<std::unique_ptr<Session>> Session::fork(const SessionOptions& options) const {
  Result<std::unique_ptr<session::Timeline>> timeline = impl_->timeline->fork(options);
  if (!timeline)
    return timeline.error();
  std::unique_ptr<Session> session(new Session());
  session->impl_->timeline = *std::move(timeline);
  session->set_sampler({});
  session->accept(impl_->tokens);
  return session;
}

Status Session::decode(Token token) {
  Status status = impl_->timeline->decode(token);
  if (status)
    accept({&token, 1});
  return status;
}

Status Session::score(std::span<const Token> tokens, const EachLogits& each) {
  return impl_->timeline->score(tokens, each);
}

std::span<const float> Session::logits() const { return impl_->timeline->logits(); }
int64_t Session::n_tokens() const { return impl_->timeline->n_tokens(); }

void Session::set_sampler(const SamplerOptions& options) {
  impl_->sampler = std::make_unique<model::Sampler>(model::SamplerOptions{.temperature = options.temperature,
                                                                          .top_k = options.top_k,
                                                                          .top_p = options.top_p,
                                                                          .min_p = options.min_p,
                                                                          .repeat_penalty = options.repeat_penalty,
                                                                          .repeat_last_n = options.repeat_last_n,
                                                                          .seed = options.seed});
}

Token Session::sample() { return impl_->sampler->sample(impl_->timeline->logits()); }

Stats Session::stats() const { return impl_->timeline->stats(); }
KvMap Session::kv_map() const { return impl_->timeline->kv_map(); }
std::vector<LayerStats> Session::layer_stats() const { return impl_->timeline->layer_stats(); }
Result<Explanation> Session::explain(const ExplainOptions& options) const { return impl_->timeline->explain(options); }
std::span<const MemoryPoint> Session::memory_trace() const { return impl_->timeline->memory_trace(); }

Result<BudgetMeaning> explain_budget(const Model& model, const SessionOptions& options) {
  Result<eviction::Policy> policy = session::session_policy(options);
  if (!policy)
    return policy.error();
  Result<session::Plan> plan = session::plan_session(model.impl().engine(), options, *policy);
  if (!plan)
    return plan.error();
  return BudgetMeaning{.budget_bytes = plan->budget_bytes,
                       .full_bytes = plan->full_bytes,
                       .token_bytes = plan->token_bytes,
                       .rows_per_head = plan->rows_per_head,
                       .one_chunk = (plan->layer_major || !plan->evicts) &&
                                    plan->f16_rows.window == options.f16_window &&
                                    plan->f16_rows.ubatch_tokens == options.n_ubatch,
                       .plan = plan->line};
}

}  // namespace kedge
