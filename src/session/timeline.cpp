#include "session/timeline.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "session/row_types.h"

namespace kedge::session {

namespace {

constexpr int64_t kLogitRows = 32;  // rows of logits computed at a time when all are wanted

attention::AttentionShape attention_shape(const model::HyperParams& hyper) {
  return {.n_heads = hyper.n_heads,
          .n_kv_heads = hyper.n_kv_heads,
          .head_dim = hyper.head_dim,
          .scale = hyper.attention_scale};
}

}  // namespace

Result<kv::StoreShape> store_shape(const model::HyperParams& hyper, const SessionOptions& options) {
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
                        .f16_window = options.f16_window};
}

Result<eviction::Policy> session_policy(const SessionOptions& options) {
  const bool limited = options.budget.kind != Budget::Kind::unlimited;
  const std::string name = !options.policy.empty() ? options.policy : (limited ? "andpro" : "none");
  return eviction::parse_policy(name, {.sinks = options.sinks, .recent = options.recent});
}

Result<Plan> plan_session(const model::HyperParams& hyper, const SessionOptions& options,
                          const eviction::Policy& policy) {
  const Result<kv::StoreShape> shape = store_shape(hyper, options);
  if (!shape)
    return shape.error();
  return make_plan(*shape, options.budget, policy,
                   {.prompt_tokens = options.expected_prompt,
                    .generated_tokens = options.expected_generated,
                    .n_ctx = options.n_ctx > 0 ? options.n_ctx : hyper.n_ctx_train,
                    .n_batch = options.n_batch,
                    .n_ubatch = options.n_ubatch,
                    .hold_continuation = options.hold_continuation,
                    .order = options.order,
                    .overflow = options.overflow});
}

Timeline::Timeline(const Engine& engine, const SessionOptions& options, eviction::Policy policy, Plan plan)
    : engine_(engine),
      options_(options),
      policy_(std::move(policy)),
      plan_(std::move(plan)),
      taps_({.n_layers = engine.model->hyper().n_layers,
             .window = std::max(options.n_observed, policy_.evicts ? policy_.scorer->needs().window : 0),
             .n_heads = engine.model->hyper().n_heads,
             .head_dim = engine.model->hyper().head_dim}),
      decode_attention_({.shape = attention_shape(engine.model->hyper()),
                         .kernels = engine.kernels,
                         .rows = this,
                         .taps = &taps_,
                         .n_threads = engine.compute->n_threads()}),
      prompt_attention_({.shape = attention_shape(engine.model->hyper()),
                         .kernels = engine.kernels,
                         .rows = this,
                         .taps = &taps_,
                         .n_threads = engine.compute->n_threads()}) {}

Timeline::~Timeline() = default;

Result<std::unique_ptr<Timeline>> Timeline::create(const Engine& engine, const SessionOptions& options) {
  if (options.n_ubatch < 1 || options.n_batch < kBlockRows) {
    return Error{ErrorCode::usage,
                 "ubatch size must be at least 1 and batch size at least " + std::to_string(kBlockRows)};
  }
  Result<eviction::Policy> policy = session_policy(options);
  if (!policy)
    return policy.error();
  const model::HyperParams& hyper = engine.model->hyper();
  Result<Plan> plan = plan_session(hyper, options, *policy);
  if (!plan)
    return plan.error();
  Result<eviction::Policy> fallback = eviction::parse_policy("streaming", {});
  if (!fallback)
    return fallback.error();
  Result<kv::StoreShape> shape = store_shape(hyper, options);
  if (!shape)
    return shape.error();
  shape->f16_window = plan->f16_rows.window;
  shape->kept_for_tails = kv::tail_bytes(*shape, plan->f16_rows.ubatch_tokens);
  Result<std::unique_ptr<kv::Store>> store = kv::Store::create(*shape, plan->budget_bytes);
  if (!store)
    return store.error();
  std::unique_ptr<Timeline> timeline(new Timeline(engine, options, *std::move(policy), *std::move(plan)));
  timeline->options_.n_ubatch = timeline->plan_.f16_rows.ubatch_tokens;
  timeline->fallback_ = *std::move(fallback);
  timeline->store_ = *std::move(store);
  timeline->sequence_ = timeline->store_->create_sequence();
  return timeline;
}

void Timeline::append(int layer, int head, const NewRows& rows) {
  store_->append(sequence_, layer, head,
                 {.k = rows.k,
                  .v = rows.v,
                  .k_stride = rows.row_stride,
                  .v_stride = rows.row_stride,
                  .positions = rows.positions});
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
  Status status = read_prompt(tokens, progress);
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
  const bool fits = blocks_needed(total) <= store_->stats().free_blocks;
  const bool planned = n_tokens_ == 0 && plan_.evicts && total == options_.expected_prompt;
  int64_t step = fits ? options_.n_batch : planned ? plan_.chunk_tokens : plan_.followup_chunk_tokens;
  EvictionTarget between = planned ? plan_.between_chunks : plan_.followup;
  if (!fits && !policy_.evicts) {
    return Error{ErrorCode::context_too_long,
                 "the prompt has " + std::to_string(total) + " tokens, more than the KV budget of " +
                     format_bytes(plan_.budget_bytes) + " holds, and the policy evicts nothing"};
  }
  if (!fits && !planned) {
    if (Status evicted = evict_all(between); !evicted)
      return evicted;
  }
  for (int64_t begin = 0; begin < total; begin += step) {
    const int64_t n = std::min(step, total - begin);
    const bool last = begin + n == total;
    const bool evict = (!fits) || (last && planned);
    const Chunk chunk{.tokens = tokens.subspan(begin, n),
                      .evict = evict,
                      .target = last ? (planned ? plan_.after_prompt : plan_.decoding) : between};
    const Report report = [&](double share) {
      return !progress || progress(begin + static_cast<int64_t>(share * static_cast<double>(n)), total);
    };
    if (Status status = run_chunk(chunk, report); !status)
      return status;
    counters_.prompt_tokens += n;
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
  eviction_started_ms_ = counters_.policy_ms;
  embed(chunk.tokens);
  for (int layer = 0; layer < hyper.n_layers; ++layer) {
    if (!report(static_cast<double>(layer) / hyper.n_layers)) {
      abandon_chunk();
      return Error{ErrorCode::cancelled, "stopped while reading the prompt"};
    }
    Status status = store_->reserve(sequence_, layer, layer + 1, static_cast<int>(n));
    if (status)
      status = run_layer(chunk, layer, positions);
    const double done = static_cast<double>(n_tokens_) + static_cast<double>(n * (layer + 1)) / hyper.n_layers;
    trace(done);
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
}

// hidden_ f32 [n, n_embd] := token embeddings
void Timeline::embed(std::span<const Token> tokens) {
  const auto width = static_cast<size_t>(engine_.model->hyper().n_embd);
  hidden_.resize(tokens.size() * width);
  for (size_t begin = 0; begin < tokens.size(); begin += static_cast<size_t>(options_.n_ubatch)) {
    const size_t n = std::min<size_t>(options_.n_ubatch, tokens.size() - begin);
    tensor::Graph graph(*engine_.compute, engine_.model->weights());
    tensor::Tensor ids = graph.input_i32(static_cast<int64_t>(n));
    tensor::Tensor x = engine_.model->embed(graph, ids);
    graph.output(x);
    check(graph.finish().ok(), "memory for the embedding graph");
    graph.set(ids, tokens.subspan(begin, n));
    graph.run();
    std::ranges::copy(graph.read(x), hidden_.begin() + static_cast<std::ptrdiff_t>(begin * width));
  }
}

Status Timeline::run_layer(const Chunk& chunk, int layer, std::span<const int32_t> positions) {
  const model::HyperParams& hyper = engine_.model->hyper();
  const auto width = static_cast<size_t>(hyper.n_embd);
  const bool only_last_row = layer == hyper.n_layers - 1 && !chunk.all_logits;
  for (size_t begin = 0; begin < positions.size(); begin += static_cast<size_t>(options_.n_ubatch)) {
    const size_t n = std::min<size_t>(options_.n_ubatch, positions.size() - begin);
    const size_t n_out = only_last_row ? 1 : n;
    tensor::Graph graph(*engine_.compute, engine_.model->weights());
    prompt_attention_.clear_nodes();
    tensor::Tensor x = graph.input_f32(static_cast<int64_t>(n), hyper.n_embd);
    tensor::Tensor where = graph.input_i32(static_cast<int64_t>(n));
    tensor::Tensor y = engine_.model->layer(graph, layer, x, where, only_last_row ? 1 : 0, prompt_attention_);
    graph.output(y);
    if (Status status = graph.finish(); !status)
      return status;
    graph.set(x, std::span<const float>(hidden_).subspan(begin * width, n * width));
    graph.set(where, positions.subspan(begin, n));
    prompt_attention_.prepare(positions.subspan(begin, n), hyper.n_layers);
    if (Status status = run_appending(graph, layer, layer + 1, static_cast<int>(n)); !status)
      return status;
    std::ranges::copy(graph.read(y), hidden_.begin() + static_cast<std::ptrdiff_t>((begin + n - n_out) * width));
  }
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
  trace(static_cast<double>(n_tokens_));
  ++counters_.generated_tokens;
  counters_.decode_seconds += watch.seconds();
  return {};
}

// ---- room ----

// Runs a graph that appends n_rows rows to these layers: by way of the f16 tail, where rows are quantised.
Status Timeline::run_appending(tensor::Graph& graph, int layer_begin, int layer_end, int n_rows) {
  if (Status opened = store_->open_tail(sequence_, layer_begin, layer_end, n_rows); !opened)
    return opened;
  graph.run();
  store_->settle(sequence_, layer_begin, layer_end, *engine_.compute);
  return {};
}

int64_t Timeline::blocks_needed(int64_t n_tokens) const {
  const model::HyperParams& hyper = engine_.model->hyper();
  int64_t blocks = 0;
  for (int layer = 0; layer < hyper.n_layers; ++layer) {
    for (int head = 0; head < hyper.n_kv_heads; ++head) {
      const int64_t rows = store_->n_rows(sequence_, layer, head);
      blocks += (rows + n_tokens + kBlockRows - 1) / kBlockRows - (rows + kBlockRows - 1) / kBlockRows;
    }
  }
  return blocks;
}

// Reserves n more rows in every head; evicts first where they do not fit.
Status Timeline::make_room_for(int64_t n_tokens) {
  const int n_layers = engine_.model->hyper().n_layers;
  Status reserved = store_->reserve(sequence_, 0, n_layers, static_cast<int>(n_tokens));
  if (reserved || !policy_.evicts)
    return reserved;
  EvictionTarget target = plan_.decoding;
  target.growth = std::max(target.growth, static_cast<int32_t>(n_tokens));
  if (Status evicted = evict_all(target); !evicted)
    return evicted;
  return store_->reserve(sequence_, 0, n_layers, static_cast<int>(n_tokens));
}

Stats Timeline::stats() const {
  const model::HyperParams& hyper = engine_.model->hyper();
  const kv::StoreStats held = store_->stats();
  Stats out = counters_;
  out.decode_attention_seconds = decode_attention_.decode_time().seconds;
  out.decode_attention_row_bytes = decode_attention_.decode_time().row_bytes;
  out.kv_live_bytes = held.live_bytes;
  out.kv_peak_bytes = held.peak_bytes;
  out.kv_budget_bytes = held.budget_bytes;
  const int64_t heads = static_cast<int64_t>(hyper.n_layers) * hyper.n_kv_heads;
  kv::StoreShape full = store_->shape();
  full.type = RowType::f16;
  out.kv_full_bytes = kv::bytes_for_rows(full, n_tokens_, heads);
  out.kv_rows = store_->n_rows_total(sequence_);
  out.evicted_rows = held.evicted_rows;
  out.keep = n_tokens_ == 0 ? 1.0 : static_cast<double>(out.kv_rows) / static_cast<double>(heads * n_tokens_);
  out.fill = held.fill;
  out.sequential = held.sequential;
  out.policy = policy_.text;
  out.plan = plan_.line;
  return out;
}

void Timeline::trace(double tokens) {
  if (!options_.trace_memory)
    return;
  const kv::StoreStats held = store_->stats();
  memory_trace_.push_back({.tokens = tokens, .kv_live_bytes = held.live_bytes, .evicted_rows = held.evicted_rows});
}

KvMap Timeline::kv_map() const { return {.n_tokens = n_tokens_, .layers = store_->snapshot(sequence_).positions}; }

}  // namespace kedge::session
