#include "kedge/session.h"

#include <fstream>
#include <utility>

#include "api/model_impl.h"
#include "base/mapped_file.h"
#include "model/tokenizer.h"
#include "session/file.h"
#include "session/timeline.h"

namespace kedge {

struct Session::Impl {
  const model::Tokenizer* tokenizer = nullptr;  // the model's, which outlives its sessions
  std::unique_ptr<session::Timeline> timeline;
  std::unique_ptr<model::Sampler> sampler;
  model::SamplerState marked_sampler;
  std::string app_data;

  // What ends an answer is looked up (the whole vocabulary) where a length penalty asks for it.
  std::vector<Token> ends_for(float length_penalty) const {
    return length_penalty == 1.0F ? std::vector<Token>() : tokenizer->end_tokens();
  }
  void resume_sampler(model::SamplerState state) {
    state.options.end_tokens = ends_for(state.options.length_penalty);
    sampler = std::make_unique<model::Sampler>(model::Sampler::resume(state));
  }
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
  session->impl_->tokenizer = model.impl().tokenizer.get();
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
}

Result<std::unique_ptr<Session>> Session::fork(const SessionOptions& options) const {
  Result<std::unique_ptr<session::Timeline>> timeline = impl_->timeline->fork(options);
  if (!timeline)
    return timeline.error();
  std::unique_ptr<Session> session(new Session());
  session->impl_->timeline = *std::move(timeline);
  session->impl_->tokenizer = impl_->tokenizer;
  session->set_sampler({});
  session->accept(impl_->timeline->tokens());
  return session;
}

Result<std::unique_ptr<Session>> Session::fork() const {
  Result<std::unique_ptr<session::Timeline>> timeline = impl_->timeline->fork();
  if (!timeline)
    return timeline.error();
  std::unique_ptr<Session> session(new Session());
  session->impl_->timeline = *std::move(timeline);
  session->impl_->tokenizer = impl_->tokenizer;
  session->impl_->resume_sampler(impl_->sampler->state());
  session->impl_->app_data = impl_->app_data;
  return session;
}

void Session::mark(Mark kind) {
  impl_->timeline->mark(kind);
  impl_->marked_sampler = impl_->sampler->state();
}

bool Session::has_mark() const { return impl_->timeline->has_mark(); }
void Session::drop_mark() { impl_->timeline->drop_mark(); }

Status Session::rewind() {
  Status status = impl_->timeline->rewind();
  if (status)
    impl_->resume_sampler(impl_->marked_sampler);
  return status;
}

Status Session::rewind(int64_t n_tokens) {
  Status status = impl_->timeline->rewind(n_tokens);
  if (!status)
    return status;
  // Random numbers that were drawn stay drawn; what the repeat penalty looks back on is what is left.
  model::SamplerState state = impl_->sampler->state();
  state.recent.clear();
  impl_->resume_sampler(std::move(state));
  accept(impl_->timeline->tokens());
  return status;
}

Status Session::save(const std::string& path, std::string_view app_data) const {
  return impl_->timeline->save({.sampler = impl_->sampler->state(), .app_data = app_data}, path);
}

Result<std::unique_ptr<Session>> Session::restore(const Model& model, const std::string& path) {
  const Result<MappedFile> file = MappedFile::open(path);
  if (!file)
    return file.error();
  Result<session::FileView> view = session::read_session_file(file->bytes(), path);
  if (!view)
    return view.error();
  Result<std::unique_ptr<session::Timeline>> timeline = session::Timeline::restore(model.impl().engine(), *view);
  if (!timeline)
    return timeline.error();
  std::unique_ptr<Session> session(new Session());
  session->impl_->timeline = *std::move(timeline);
  session->impl_->tokenizer = model.impl().tokenizer.get();
  session->set_sampler({});
  if (view->header.sampler)
    session->impl_->resume_sampler(*view->header.sampler);
  session->impl_->app_data = std::move(view->app_data);
  return session;
}

const std::string& Session::app_data() const { return impl_->app_data; }

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
std::span<const Token> Session::tokens() const { return impl_->timeline->tokens(); }
const SessionOptions& Session::options() const { return impl_->timeline->options(); }

void Session::set_sampler(const SamplerOptions& options) {
  impl_->sampler =
      std::make_unique<model::Sampler>(model::SamplerOptions{.temperature = options.temperature,
                                                             .top_k = options.top_k,
                                                             .top_p = options.top_p,
                                                             .min_p = options.min_p,
                                                             .repeat_penalty = options.repeat_penalty,
                                                             .repeat_last_n = options.repeat_last_n,
                                                             .length_penalty = options.length_penalty,
                                                             .seed = options.seed,
                                                             .end_tokens = impl_->ends_for(options.length_penalty)});
}

SamplerOptions Session::sampler() const {
  const model::SamplerOptions o = impl_->sampler->state().options;
  return {.temperature = o.temperature,
          .top_k = o.top_k,
          .top_p = o.top_p,
          .min_p = o.min_p,
          .repeat_penalty = o.repeat_penalty,
          .repeat_last_n = o.repeat_last_n,
          .length_penalty = o.length_penalty,
          .seed = o.seed};
}

Token Session::sample() { return impl_->sampler->sample(impl_->timeline->logits()); }

Stats Session::stats() const { return impl_->timeline->stats(); }
KvMap Session::kv_map() const { return impl_->timeline->kv_map(); }
std::vector<LayerStats> Session::layer_stats() const { return impl_->timeline->layer_stats(); }
Result<Explanation> Session::explain(const ExplainOptions& options) const { return impl_->timeline->explain(options); }
std::span<const MemoryPoint> Session::memory_trace() const { return impl_->timeline->memory_trace(); }

Result<BudgetMeaning> explain_budget(const Model& model, const SessionOptions& options) {
  Result<eviction::Policy> policy = session::session_policy(model.impl().engine(), options);
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
                       .policy = policy->text,
                       .plan = plan->line};
}

Result<SessionFileInfo> inspect_session_file(const std::string& path) {
  const Result<MappedFile> file = MappedFile::open(path);
  if (!file)
    return file.error();
  Result<session::FileView> view = session::read_session_file(file->bytes(), path);
  if (!view)
    return view.error();
  const session::FileHeader& header = view->header;
  SessionFileInfo info{.model_name = header.model.name,
                       .architecture = header.model.architecture,
                       .model_sha256 = header.model.sha256,
                       .options = header.options,
                       .policy = header.policy,
                       .kernels = header.kernels,
                       .stats = header.stats,
                       .n_tokens = header.n_tokens,
                       .file_bytes = view->file_bytes,
                       .app_data_bytes = static_cast<int64_t>(view->app_data.size())};
  info.stats.evicted_rows = header.evicted_rows;
  info.stats.policy = header.policy;
  for (const session::FileSection& section : header.sections)
    info.sections.push_back({.name = section.name, .bytes = section.bytes, .crc32 = section.crc32});
  return info;
}

bool is_session_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string start(session::kFileMagic.size(), '\0');
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  return file.good() && start == session::kFileMagic;
}

}  // namespace kedge
