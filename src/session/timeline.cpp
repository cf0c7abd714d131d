#include "session/timeline.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "session/observations.h"
#include "session/reading.h"
#include "session/reconstruct.h"
#include "session/row_types.h"

namespace kedge::session {

namespace {

constexpr int kRecomputeAnchor = 64;  // tokens between two full-precision recomputations of the running anchor
constexpr int64_t kLogitRows = 32;    // rows of logits computed at a time when all are wanted

attention::AttentionShape attention_shape(const model::HyperParams& hyper) {
  return {.n_heads = hyper.n_heads,
          .n_kv_heads = hyper.n_kv_heads,
          .head_dim = hyper.head_dim,
          .scale = hyper.attention_scale};
}

double mean_of(const std::vector<float>& values, double empty) {
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return values.empty() ? empty : sum / static_cast<double>(values.size());
}

}  // namespace

Result<kv::StoreShape> store_shape(const model::HyperParams& hyper, const SessionOptions& options,
                                   const eviction::Needs& recorded) {
  const Result<RowTypes> types = parse_row_types(options.cache_type_k, options.cache_type_v);
  if (!types)
    return types.error();
  if (options.f16_window < 0 || options.f16_window % kBlockRows != 0) {
    return Error{ErrorCode::usage, "the f16 window is " + std::to_string(options.f16_window) +
                                       " rows; it must be a multiple of " + std::to_string(kBlockRows) + ", or 0"};
  }
  return kv::StoreShape{.n_layers = hyper.n_layers,
                        .n_kv_heads = hyper.n_kv_heads,
                        .head_dim = hyper.head_dim,
                        .type = *types,
                        .f16_window = options.f16_window,
                        .n_notes = note_columns(recorded).n_notes};
}

Request session_request(const Engine& engine, const SessionOptions& options, const eviction::Needs& recorded) {
  return {.prompt_tokens = options.expected_prompt,
          .generated_tokens = options.expected_generated,
          .n_ctx = options.n_ctx > 0 ? options.n_ctx : engine.model->hyper().n_ctx_train,
          .n_batch = options.n_batch,
          .n_ubatch = options.n_ubatch,
          .hold_continuation = options.hold_continuation,
          .branch_tokens = options.branch_tokens,
          .order = options.order,
          .overflow = options.overflow,
          .probe_extra = recorded.reconstruction ? probe_text(engine.tokenizer).extra() : 0};
}

Result<Plan> plan_session(const Engine& engine, const SessionOptions& options, const eviction::Policy& policy) {
  const eviction::Needs recorded = recorded_needs(options, policy);
  const Result<kv::StoreShape> shape = store_shape(engine.model->hyper(), options, recorded);
  if (!shape)
    return shape.error();
  return make_plan(*shape, options.budget, policy, session_request(engine, options, recorded));
}

Timeline::Timeline(const Engine& engine, const SessionOptions& options, eviction::Policy policy, Plan plan)
    : engine_(engine),
      asked_(options),
      options_(options),
      policy_(std::move(policy)),
      plan_(std::move(plan)),
      taps_({.n_layers = engine.model->hyper().n_layers,
             .window = std::max(recorded_needs(options, policy_).window,
                                Observations::ring_size(recorded_needs(options, policy_))),
             .n_heads = engine.model->hyper().n_heads,
             .head_dim = engine.model->hyper().head_dim,
             .running_every = policy_.needs().running_anchor ? kRecomputeAnchor : 0}),
      decode_attention_({.shape = attention_shape(engine.model->hyper()),
                         .kernels = engine.kernels,
                         .rows = this,
                         .taps = &taps_,
                         .gate = recorded_needs(options, policy_).gate ? engine.gate : attention::RowNodes(),
                         .n_threads = engine.compute->n_threads()}),
      prompt_attention_(
          {.shape = attention_shape(engine.model->hyper()),
           .kernels = engine.kernels,
           .rows = this,
           .taps = &taps_,
           .queries = Observations::ring_size(recorded_needs(options, policy_)) > 0 ? &graph_queries_ : nullptr,
           .gate = recorded_needs(options, policy_).gate ? engine.gate : attention::RowNodes(),
           .n_threads = engine.compute->n_threads()}),
      ledger_(engine.model->hyper().n_layers, engine.model->hyper().n_kv_heads, options.explain),
      layer_notes_(static_cast<size_t>(shares_layers() ? engine.model->hyper().n_layers : 0)) {
  schedule_.clock = PolicyClock(options.policy_time_limit_ms, engine.model->hyper().n_layers);
}

Timeline::~Timeline() = default;

Result<std::unique_ptr<Timeline>> Timeline::create(const Engine& engine, const SessionOptions& options) {
  if (options.n_ubatch < 1 || options.n_batch < kBlockRows) {
    return Error{ErrorCode::usage,
                 "ubatch size must be at least 1 and batch size at least " + std::to_string(kBlockRows)};
  }
  Result<eviction::Policy> policy = session_policy(engine, options);
  if (!policy)
    return policy.error();
  const eviction::Needs recorded = recorded_needs(options, *policy);
  Result<eviction::GateMode> gate_mode = session_gate_mode(engine, options, *policy);
  if (!gate_mode)
    return gate_mode.error();
  const model::HyperParams& hyper = engine.model->hyper();
  Result<Plan> plan = plan_session(engine, options, *policy);
  if (!plan)
    return plan.error();
  Result<eviction::Policy> fallback = eviction::parse_policy("streaming", {});
  if (!fallback)
    return fallback.error();
  Result<kv::StoreShape> shape = store_shape(hyper, options, recorded);
  if (!shape)
    return shape.error();
  shape->f16_window = plan->f16_rows.window;
  shape->kept_for_tails = plan->tail_bytes;
  Result<std::unique_ptr<kv::Store>> store = kv::Store::create(*shape, plan->budget_bytes);
  if (!store)
    return store.error();
  std::unique_ptr<Timeline> timeline(new Timeline(engine, options, *std::move(policy), *std::move(plan)));
  timeline->options_.n_ubatch = timeline->plan_.f16_rows.ubatch_tokens;
  timeline->fallback_ = *std::move(fallback);
  timeline->gate_mode_ = *std::move(gate_mode);
  timeline->store_ = *std::move(store);
  timeline->sequence_ = timeline->store_->create_sequence();
  if (Status status = timeline->open_text(); !status)
    return status.error();
  timeline->start_recording(recorded);
  return timeline;
}

void Timeline::start_recording(const eviction::Needs& recorded) {
  observations_ = std::make_unique<Observations>(engine_, recorded, *store_, sequence_);
  gate_column_ = note_columns(recorded).gate;
  if (!recorded.reconstruction)
    return;
  probe_attention_ = std::make_unique<attention::RaggedAttention>(
      attention::RaggedAttention::Options{.shape = attention_shape(engine_.model->hyper()),
                                          .kernels = engine_.kernels,
                                          .rows = this,
                                          .queries = &graph_queries_,
                                          .n_threads = engine_.compute->n_threads()});
}

void Timeline::append(int layer, int head, const NewRows& rows) {
  store_->append(sequence_, layer, head,
                 {.k = rows.k,
                  .v = rows.v,
                  .k_stride = rows.row_stride,
                  .v_stride = rows.row_stride,
                  .positions = rows.positions,
                  .note = rows.gate == nullptr ? -1 : gate_column_,
                  .note_values = rows.gate,
                  .note_stride = rows.gate_stride});
}

KvHeadView Timeline::view(int layer, int head) const { return store_->view(sequence_, layer, head); }

// ---- prompt ----

// Tokens that may follow: in the vocabulary, and within the context.
Status Timeline::acceptable(std::span<const Token> tokens) const {
  const model::HyperParams& hyper = engine_.model->hyper();
  for (const Token token : tokens) {
    if (token < 0 || token >= hyper.n_vocab) {
      return Error{ErrorCode::usage,
                   "token " + std::to_string(token) + " is not in the vocabulary of " + std::to_string(hyper.n_vocab)};
    }
  }
  const int64_t limit = options_.n_ctx > 0 ? options_.n_ctx : (policy_.evicts ? INT32_MAX : hyper.n_ctx_train);
  const int64_t wanted = n_tokens_ + static_cast<int64_t>(tokens.size());
  if (wanted > limit) {
    return Error{ErrorCode::context_too_long, "the prompt makes " + std::to_string(wanted) +
                                                  " tokens and the context holds " + std::to_string(limit)};
  }
  return {};
}

Status Timeline::prefill(std::span<const Token> tokens, const Session::Progress& progress) {
  const Stopwatch watch;
  if (tokens.empty())
    return Error{ErrorCode::usage, "there are no tokens to read"};
  std::vector<Token> shortened;
  if (options_.overflow == Overflow::truncate) {
    shortened = truncated(tokens);
    tokens = shortened;
  }
  if (Status status = acceptable(tokens); !status)
    return status;
  text_->append(tokens);
  Status status = read_prompt(tokens, progress);
  text_->truncate(n_tokens_);
  counters_.prefill_seconds += watch.seconds();
  return status;
}

// The first rows and the newest ones that fit beside what is expected to follow.
std::vector<Token> Timeline::truncated(std::span<const Token> tokens) const {
  const model::HyperParams& hyper = engine_.model->hyper();
  int64_t fits = store_->stats().free_blocks / (static_cast<int64_t>(hyper.n_layers) * hyper.n_kv_heads) * kBlockRows;
  if (options_.n_ctx > 0)
    fits = std::min<int64_t>(fits, options_.n_ctx - n_tokens_);
  fits = std::max<int64_t>(1, fits - std::max<int64_t>(0, std::min<int64_t>(options_.expected_generated, fits / 2)));
  if (static_cast<int64_t>(tokens.size()) <= fits)
    return {tokens.begin(), tokens.end()};
  const int64_t first = std::min<int64_t>(4, fits / 2);
  std::vector<Token> kept(tokens.begin(), tokens.begin() + first);
  kept.insert(kept.end(), tokens.end() - (fits - first), tokens.end());
  return kept;
}

Status Timeline::read_prompt(std::span<const Token> tokens, const Session::Progress& progress) {
  const auto total = static_cast<int64_t>(tokens.size());
  const bool fits = has_room(total);
  const bool planned = n_tokens_ == 0 && plan_.evicts && total == options_.expected_prompt;
  if (!fits && !policy_.evicts) {
    return Error{ErrorCode::context_too_long,
                 "the prompt has " + std::to_string(total) + " tokens, more than the KV budget of " +
                     format_bytes(plan_.budget_bytes) + " holds, and the policy evicts nothing"};
  }
  const bool in_one_chunk = options_.histories.reconstruction;  // of the prompt that forks will ask about
  const Reading reading = make_reading(plan_, store_->shape(),
                                       {.n_tokens = total,
                                        .n_batch = in_one_chunk ? static_cast<int>(total) : options_.n_batch,
                                        .fits = fits,
                                        .planned = planned,
                                        .burst_steps = policy_.schedule->info().burst_steps});
  if (!fits || planned) {
    const bool chunked = !planned || reading.steps.size() > 1;
    if (Status status = prompt_protection_fits(total, planned, chunked); !status)
      return status;
  }
  if (reading.cut_first) {
    if (Status evicted = evict_all(reading.before); !evicted)
      return evicted;
  }
  int64_t begin = 0;
  for (const ReadStep& step : reading.steps) {
    const int64_t n = step.n_tokens;
    const Chunk chunk{.tokens = tokens.subspan(begin, n), .evict = step.evict, .target = step.target};
    const Report report = [&](double share) {
      return !progress || progress(begin + static_cast<int64_t>(share * static_cast<double>(n)), total);
    };
    if (Status status = run_chunk(chunk, report); !status)
      return status;
    counters_.prompt_tokens += n;
    begin += n;
  }
  return {};
}

// Layers take turns: append and attend over the whole chunk, be evicted, next. Only one layer is beyond its share at a
// time.
Status Timeline::run_chunk(const Chunk& chunk, const Report& report) {
  const model::HyperParams& hyper = engine_.model->hyper();
  const auto n = static_cast<int64_t>(chunk.tokens.size());
  std::vector<int32_t> positions(chunk.tokens.size());
  std::iota(positions.begin(), positions.end(), static_cast<int32_t>(n_tokens_));
  logits_.clear();
  tokens_.insert(tokens_.end(), chunk.tokens.begin(), chunk.tokens.end());
  begin_round();
  add_pending_queries();
  embed(chunk.tokens, hidden_);
  start_probes(chunk);
  const bool discards = gate_mode_.discards() && !chunk.all_logits;
  if (discards)
    follow_pressure(n);
  for (int layer = 0; layer < hyper.n_layers; ++layer) {
    if (!report(static_cast<double>(layer) / hyper.n_layers)) {
      abandon_chunk();
      return Error{ErrorCode::cancelled, "stopped while reading the prompt"};
    }
    Status status = store_->reserve(sequence_, layer, layer + 1, static_cast<int>(n));
    if (status)
      status = run_layer(chunk, layer, positions);
    if (status)
      status = run_probes(layer, n);
    const double done = static_cast<double>(n_tokens_) + static_cast<double>(n * (layer + 1)) / hyper.n_layers;
    trace(done);
    if (status && discards)
      status = discard_layer(layer, n_tokens_ + n);
    if (status && chunk.evict)
      status = evict_layer(layer, chunk.target, n_tokens_ + n);
    if (!status) {
      abandon_chunk();
      return status;
    }
    if (chunk.evict)
      trace(done);
  }
  n_tokens_ += n;
  if (!chunk.all_logits)
    head_logits(n - 1, 1, logits_);
  report(1.0);
  return {};
}

// Back to the last whole chunk: rows of this one are dropped from the layers that have them.
void Timeline::abandon_chunk() {
  store_->truncate(sequence_, static_cast<int32_t>(n_tokens_));
  store_->release_reserved(sequence_);
  for (LayerNote& note : layer_notes_)
    note.n_tokens = std::min(note.n_tokens, n_tokens_);
  tokens_.resize(static_cast<size_t>(n_tokens_));
  observations_->forget(n_tokens_);
  ledger_.forget(n_tokens_);
  forget_scores();
}

// hidden f32 [n, n_embd] := token embeddings
void Timeline::embed(std::span<const Token> tokens, std::vector<float>& hidden) {
  const auto width = static_cast<size_t>(engine_.model->hyper().n_embd);
  hidden.resize(tokens.size() * width);
  for (size_t begin = 0; begin < tokens.size(); begin += static_cast<size_t>(options_.n_ubatch)) {
    const size_t n = std::min<size_t>(options_.n_ubatch, tokens.size() - begin);
    tensor::Graph graph(*engine_.compute, engine_.model->weights());
    tensor::Tensor ids = graph.input_i32(static_cast<int64_t>(n));
    tensor::Tensor x = engine_.model->embed(graph, ids);
    graph.output(x);
    check(graph.finish().ok(), "memory for the embedding graph");
    graph.set(ids, tokens.subspan(begin, n));
    graph.run();
    std::ranges::copy(graph.read(x), hidden.begin() + static_cast<std::ptrdiff_t>(begin * width));
  }
}

Status Timeline::run_layer(const Chunk& chunk, int layer, std::span<const int32_t> positions) {
  const model::HyperParams& hyper = engine_.model->hyper();
  const auto width = static_cast<size_t>(hyper.n_embd);
  const bool only_last_row = layer == hyper.n_layers - 1 && !chunk.all_logits;
  for (size_t begin = 0; begin < positions.size(); begin += static_cast<size_t>(options_.n_ubatch)) {
    const size_t n = std::min<size_t>(options_.n_ubatch, positions.size() - begin);
    const std::span<const int32_t> where = positions.subspan(begin, n);
    const Status status = run_graph({.layer = layer,
                                     .hidden = std::span(hidden_).subspan(begin * width, n * width),
                                     .positions = where,
                                     .only_last_row = only_last_row,
                                     .port = &prompt_attention_});
    if (!status)
      return status;
    const LayerQueries queries{.q = graph_queries_.data(), .positions = where};
    add_queries(layer, &queries);
  }
  return {};
}

Status Timeline::run_graph(const LayerGraph& of) {
  const model::HyperParams& hyper = engine_.model->hyper();
  const auto n = static_cast<int64_t>(of.positions.size());
  tensor::Graph graph(*engine_.compute, engine_.model->weights());
  of.port->clear_nodes();
  tensor::Tensor x = graph.input_f32(n, hyper.n_embd);
  tensor::Tensor where = graph.input_i32(n);
  tensor::Tensor y = engine_.model->layer(graph, of.layer, x, where, of.only_last_row ? 1 : 0, *of.port);
  graph.output(y);
  if (Status status = graph.finish(); !status)
    return status;
  graph.set(x, std::span<const float>(of.hidden));
  graph.set(where, of.positions);
  of.port->prepare(of.positions, hyper.n_layers);
  if (Status status = run_appending(graph, of.layer, of.layer + 1, static_cast<int>(n)); !status)
    return status;
  const std::span<const float> out = graph.read(y);
  std::ranges::copy(out, of.hidden.end() - static_cast<std::ptrdiff_t>(out.size()));
  return {};
}

// out f32 [n_rows, n_vocab] := logits of rows [row, row + n_rows) of hidden_
void Timeline::head_logits(int64_t row, int64_t n_rows, std::vector<float>& out) {
  const auto width = static_cast<size_t>(engine_.model->hyper().n_embd);
  tensor::Graph graph(*engine_.compute, engine_.model->weights());
  tensor::Tensor x = graph.input_f32(n_rows, engine_.model->hyper().n_embd);
  tensor::Tensor y = engine_.model->head(graph, x);
  graph.output(y);
  check(graph.finish().ok(), "memory for the output graph");
  graph.set(x, std::span<const float>(hidden_).subspan(static_cast<size_t>(row) * width,
                                                       static_cast<size_t>(n_rows) * width));
  graph.run();
  const std::span<const float> logits = graph.read(y);
  out.assign(logits.begin(), logits.end());
}

Status Timeline::score(std::span<const Token> tokens, const Session::EachLogits& each) {
  if (tokens.empty())
    return {};
  if (Status status = acceptable(tokens); !status)
    return status;
  if (Status room = make_room_for(static_cast<int64_t>(tokens.size())); !room)
    return room;
  const Chunk chunk{.tokens = tokens, .all_logits = true};
  if (Status status = run_chunk(chunk, [](double) { return true; }); !status)
    return status;
  text_->append(tokens);
  const auto n = static_cast<int64_t>(tokens.size());
  const auto n_vocab = static_cast<size_t>(engine_.model->hyper().n_vocab);
  std::vector<float> rows;
  for (int64_t begin = 0; begin < n; begin += kLogitRows) {
    const int64_t count = std::min(kLogitRows, n - begin);
    head_logits(begin, count, rows);
    for (int64_t i = 0; i < count; ++i)
      each(begin + i, std::span<const float>(rows).subspan(static_cast<size_t>(i) * n_vocab, n_vocab));
  }
  logits_.assign(rows.end() - static_cast<std::ptrdiff_t>(n_vocab), rows.end());
  return {};
}

// ---- decoding ----

void Timeline::build_decode_graph() {
  const model::HyperParams& hyper = engine_.model->hyper();
  tensor::Graph graph(*engine_.compute, engine_.model->weights());
  tensor::Tensor ids = graph.input_i32(1);
  tensor::Tensor positions = graph.input_i32(1);
  tensor::Tensor x = engine_.model->embed(graph, ids);
  for (int layer = 0; layer < hyper.n_layers; ++layer)
    x = engine_.model->layer(graph, layer, x, positions, 0, decode_attention_);
  tensor::Tensor logits = engine_.model->head(graph, x);
  graph.output(logits);
  check(graph.finish().ok(), "memory for the decode graph");
  decode_graph_ = std::make_unique<DecodeGraph>(std::move(graph), ids, positions, logits);
}

Status Timeline::decode(Token token) {
  const Stopwatch watch;
  if (Status status = acceptable({&token, 1}); !status)
    return status;
  if (Status due = discard_due(); !due)
    return due;
  if (Status due = evict_due(); !due)
    return due;
  if (Status room = make_room_for(1); !room)
    return room;
  if (decode_graph_ == nullptr)
    build_decode_graph();
  const auto position = static_cast<int32_t>(n_tokens_);
  tensor::Graph& graph = decode_graph_->graph;
  graph.set(decode_graph_->ids, std::span<const int32_t>(&token, 1));
  graph.set(decode_graph_->positions, std::span<const int32_t>(&position, 1));
  decode_attention_.prepare(std::span<const int32_t>(&position, 1), engine_.model->hyper().n_layers);
  if (Status status = run_appending(graph, 0, engine_.model->hyper().n_layers, 1); !status)
    return status;
  const std::span<const float> logits = graph.read(decode_graph_->logits);
  logits_.assign(logits.begin(), logits.end());
  ++n_tokens_;
  tokens_.push_back(token);
  text_->append({&token, 1});
  add_due_queries();
  trace(static_cast<double>(n_tokens_));
  ++counters_.generated_tokens;
  counters_.decode_seconds += watch.seconds();
  schedule_.token_times.add(watch.milliseconds());
  return {};
}

// Recording what queries look at is time of the policy.
void Timeline::add_queries(int layer, const LayerQueries* queries) {
  if (!observations_->wants_queries())
    return;
  const Stopwatch watch;
  if (queries != nullptr)
    observations_->add(layer, *queries);
  else
    observations_->add_pending(layer, taps_, n_tokens_);
  const double ms = watch.milliseconds();
  counters_.policy_ms += ms;
  ledger_.add_ms(layer, ms);
}

// While decoding: what was decoded since the last time, before the ring has no more room for it. Echoes cost the most,
// so where they are recorded layers take turns and no token pays for all of them; else all layers add at once, blocks
// that a prompt's queries would have.
void Timeline::add_due_queries() {
  if (!observations_->takes_turns()) {
    if (n_tokens_ % kSumQueries == 0)
      add_pending_queries();
    return;
  }
  const int n_layers = engine_.model->hyper().n_layers;
  for (int layer = 0; layer < n_layers; ++layer) {
    if (n_tokens_ % kSumQueries == layer * kSumQueries / n_layers)
      add_queries(layer, nullptr);
  }
}

// What was decoded since the last time, in all layers.
void Timeline::add_pending_queries() {
  for (int layer = 0; layer < engine_.model->hyper().n_layers; ++layer)
    add_queries(layer, nullptr);
}

// ---- room ----

// Runs a graph that appends n_rows rows to these layers: by way of the f16 tail, where rows are quantised.
Status Timeline::run_appending(tensor::Graph& graph, int layer_begin, int layer_end, int n_rows) {
  Status opened = store_->open_tail(sequence_, layer_begin, layer_end, n_rows);
  if (!opened && mark_ && mark_->kind == Mark::yielding) {
    drop_mark();
    opened = store_->open_tail(sequence_, layer_begin, layer_end, n_rows);
  }
  if (!opened)
    return opened;
  graph.run();
  store_->settle(sequence_, layer_begin, layer_end, *engine_.compute);
  return {};
}

int64_t Timeline::blocks_needed(int64_t n_tokens) const {
  int64_t blocks = 0;
  for (int layer = 0; layer < engine_.model->hyper().n_layers; ++layer)
    blocks += store_->layer_blocks(sequence_, layer, static_cast<int>(n_tokens)).missing;
  return blocks;
}

// Reserves n more rows in every head; evicts first where they do not fit.
Status Timeline::make_room_for(int64_t n_tokens) {
  const int n_layers = engine_.model->hyper().n_layers;
  if (!mark_ || !policy_.evicts || has_room(n_tokens)) {
    Status reserved = store_->reserve(sequence_, 0, n_layers, static_cast<int>(n_tokens));
    if (reserved || !policy_.evicts)
      return reserved;
  }
  if (Status evicted = evict_all(forced_target(n_tokens)); !evicted)
    return evicted;
  return store_->reserve(sequence_, 0, n_layers, static_cast<int>(n_tokens));
}

Stats Timeline::stats() const {
  const model::HyperParams& hyper = engine_.model->hyper();
  const kv::StoreStats held = store_->stats();
  Stats out = counters_;
  out.decode_attention_seconds = decode_attention_.decode_time().seconds;
  out.decode_attention_row_bytes = decode_attention_.decode_time().row_bytes;
  out.decode_p50_ms = schedule_.token_times.quantile_ms(0.5);
  out.decode_p99_ms = schedule_.token_times.quantile_ms(0.99);
  out.decode_max_ms = schedule_.token_times.max_ms();
  out.budget_share = mean_of(schedule_.share, 1);
  out.difficulty = mean_of(schedule_.difficulty, 0);
  const attention::AnchorDrift drift = taps_.drift();
  out.anchor_recomputations = drift.recomputations;
  out.anchor_drift_max = drift.largest;
  out.anchor_drift = drift.recomputations > 0 ? drift.sum / static_cast<double>(drift.recomputations) : 0;
  out.kv_live_bytes = held.live_bytes;
  out.kv_peak_bytes = std::max(held.peak_bytes, peak_before_bytes_);
  out.kv_budget_bytes = held.budget_bytes;
  const int64_t heads = static_cast<int64_t>(hyper.n_layers) * hyper.n_kv_heads;
  kv::StoreShape full = store_->shape();
  full.type = RowType::f16;
  out.kv_full_bytes = kv::bytes_for_rows(full, n_tokens_, heads);
  out.kv_rows = store_->n_rows_total(sequence_);
  out.evicted_rows = held.evicted_rows + evicted_before_;
  out.keep = n_tokens_ == 0 ? 1.0 : static_cast<double>(out.kv_rows) / static_cast<double>(heads * n_tokens_);
  out.gate_threshold = std::max(schedule_.gate_threshold, 0.0);
  out.fill = held.fill;
  out.sequential = held.sequential;
  out.policy = policy_.text;
  out.plan = plan_.line;
  add_protection(out);
  return out;
}

void Timeline::trace(double tokens) {
  if (!options_.trace_memory)
    return;
  const kv::StoreStats held = store_->stats();
  memory_trace_.push_back({.tokens = tokens,
                           .kv_live_bytes = held.live_bytes,
                           .evicted_rows = held.evicted_rows + evicted_before_,
                           .gate_threshold = std::max(schedule_.gate_threshold, 0.0)});
}

KvMap Timeline::kv_map() const {
  KvMap map{.n_tokens = n_tokens_, .layers = store_->snapshot(sequence_).positions};
  if (text_->is_active()) {
    for (const uint8_t by : pinned_at(n_tokens_).by)
      map.protected_by.push_back(static_cast<ProtectedBy>(by));
  }
  return map;
}

}  // namespace kedge::session
