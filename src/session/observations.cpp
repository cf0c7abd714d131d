#include "session/observations.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "eviction/window_scorer.h"
#include "session/query_weights.h"
#include "session/rotation.h"
#include "session/token_kind.h"

namespace kedge::session {
namespace {

// best[row - first] = max of itself and the weights on repeated rows; a f32 [n][rows.view.n_rows].
void take_largest(const SomeRows& rows, std::span<const float> a, std::span<float> best) {
  const size_t n_rows = rows.row.size();
  // Rows whose places are asked about; mostly they lie side by side, and a loop over them needs no look at each.
  const auto begin = static_cast<size_t>(std::ranges::lower_bound(rows.row, rows.first) - rows.row.begin());
  const auto end = static_cast<size_t>(
      std::ranges::lower_bound(rows.row, rows.first + static_cast<int64_t>(best.size())) - rows.row.begin());
  const bool is_dense = end > begin && rows.row[end - 1] - rows.row[begin] == static_cast<int64_t>(end - begin) - 1;
  for (size_t at = 0; at < a.size(); at += n_rows) {
    const float sum = rows.sum(a.subspan(at, n_rows));
    const float inverse = sum > 0 ? 1.0F / sum : 0.0F;
    if (is_dense) {
      float* to = best.data() + (rows.row[begin] - rows.first);
      const float* weight = a.data() + at + begin;
      for (size_t i = 0; i < end - begin; ++i)
        to[i] = std::max(to[i], weight[i] * inverse);
      continue;
    }
    for (size_t i = begin; i < end; ++i) {
      float& to = best[static_cast<size_t>(rows.row[i] - rows.first)];
      to = std::max(to, a[at + i] * inverse);
    }
  }
}

}  // namespace

Observations::Observations(const Engine& engine, const eviction::Needs& recorded, kv::Store& store,
                           kv::SequenceId sequence)
    : engine_(engine),
      recorded_(recorded),
      columns_(note_columns(recorded)),
      store_(store),
      sequence_(sequence),
      n_added_(static_cast<size_t>(engine.model->hyper().n_layers), 0) {
  const model::HyperParams& hyper = engine_.model->hyper();
  if (recorded_.query_moments || recorded_.echo)
    rotation_ = rotation_of(hyper.rope);
  if (recorded_.echo) {
    turn_ = EchoTurn(rotation_);
    lead_end_.assign(static_cast<size_t>(hyper.n_layers), -1);
    lead_.assign(static_cast<size_t>(hyper.n_layers) * kEchoReach * query_width(), 0.0F);
  }
  if (!recorded_.query_moments)
    return;
  const auto group = static_cast<size_t>(hyper.group());
  const auto d = static_cast<size_t>(hyper.head_dim);
  moments_.resize(static_cast<size_t>(hyper.n_layers * hyper.n_kv_heads));
  for (eviction::QueryMoments& moments : moments_) {
    moments.sum.assign(group * d, 0.0);
    moments.outer.assign(group * d * d, 0.0);
    moments.length.assign(group * rotation_.frequency.size(), 0.0);
  }
}

int Observations::ring_size(const eviction::Needs& recorded) {
  return recorded.attention_sum || recorded.query_moments || recorded.echo ? kSumQueries : 0;
}

size_t Observations::index(int layer, int head) const {
  return static_cast<size_t>(layer * engine_.model->hyper().n_kv_heads + head);
}

size_t Observations::query_width() const {
  const model::HyperParams& hyper = engine_.model->hyper();
  return static_cast<size_t>(hyper.n_heads) * static_cast<size_t>(hyper.head_dim);
}

std::span<float> Observations::lead(int layer) {
  const size_t n = kEchoReach * query_width();
  return std::span(lead_).subspan(static_cast<size_t>(layer) * n, n);
}

// Queries [begin, end) of the group of one kv head.
TileQueries Observations::tile(const LayerQueries& queries, int head, size_t begin, size_t end) const {
  const model::HyperParams& hyper = engine_.model->hyper();
  const long width = static_cast<long>(hyper.n_heads) * hyper.head_dim;
  const float* first = queries.q + static_cast<long>(head) * hyper.group() * hyper.head_dim;
  return {.q = first + static_cast<long>(begin) * width,
          .row_stride = width,
          .head_stride = hyper.head_dim,
          .positions = queries.positions.data() + begin,
          .n_queries = static_cast<int>(end - begin),
          .group = hyper.group(),
          .scale = hyper.attention_scale};
}

// ---- every query ----

void Observations::add(int layer, const LayerQueries& queries) {
  if (!wants_queries() || queries.positions.empty())
    return;
  check(queries.positions.front() == n_added_[static_cast<size_t>(layer)], "queries are added in order, each once");
  if (recorded_.attention_sum)
    add_weights(layer, queries, columns_.attention_sum, [](int32_t) { return 1; });
  if (recorded_.echo) {
    add_past(layer, queries);
    add_echo(layer, queries);
  }
  if (recorded_.query_moments)
    add_moments(layer, queries);
  n_added_[static_cast<size_t>(layer)] = int64_t{queries.positions.back()} + 1;
}

void Observations::add_pending(int layer, const attention::Taps& taps, int64_t n_tokens) {
  const int64_t n_pending = n_tokens - n_added_[static_cast<size_t>(layer)];
  if (!wants_queries() || n_pending <= 0)
    return;
  const model::HyperParams& hyper = engine_.model->hyper();
  const attention::ObservedWindow window = taps.gather(
      {.layer = layer, .first_head = 0, .group = hyper.n_heads, .n_tokens = static_cast<int32_t>(n_tokens)});
  check(static_cast<int64_t>(window.positions.size()) >= n_pending, "the ring holds what was not added yet");
  const size_t skip = window.positions.size() - static_cast<size_t>(n_pending);
  const size_t width = query_width();
  add(layer, {.q = window.q.data() + skip * width, .positions = std::span(window.positions).subspan(skip)});
}

void Observations::add_weights(int layer, const LayerQueries& queries, int column, Times times) {
  const model::HyperParams& hyper = engine_.model->hyper();
  const auto n_heads = static_cast<size_t>(hyper.n_kv_heads);
  const std::vector<Range> blocks = blocks_of(queries.positions);
  const std::vector<Range> tiles = tiles_of(blocks);
  std::vector<std::vector<float>> part(blocks.size() * n_heads);
  for_each_index(*engine_.compute, static_cast<int>(tiles.size() * n_heads), [&](int i) {
    const size_t head = static_cast<size_t>(i) % n_heads;
    const Range& of = tiles[static_cast<size_t>(i) / n_heads];
    const KvHeadView rows = store_.view(sequence_, layer, static_cast<int>(head));
    const auto n_rows = static_cast<size_t>(rows.n_rows);
    for (size_t block = of.begin; block < of.end; ++block)
      part[block * n_heads + head].assign(n_rows, 0.0F);
    const size_t first = blocks[of.begin].begin;
    size_t m = 0;  // query and member of the group
    size_t block = of.begin;
    eviction::for_weights(*engine_.kernels, rows, tile(queries, static_cast<int>(head), first, blocks[of.end - 1].end),
                          [&](int, int, std::span<const float> a) {
                            for (size_t at = 0; at < a.size(); at += n_rows, ++m) {
                              while (first + m / static_cast<size_t>(hyper.group()) >= blocks[block].end)
                                ++block;
                              std::vector<float>& sum = part[block * n_heads + head];
                              for (size_t row = 0; row < n_rows; ++row)
                                sum[row] += a[at + row];
                            }
                          });
  });
  for_each_index(*engine_.compute, hyper.n_kv_heads, [&](int head) {
    std::vector<float> total = store_.notes(sequence_, layer, head, column);
    for (size_t block = 0; block < blocks.size(); ++block) {
      const std::vector<float>& sum = part[block * n_heads + static_cast<size_t>(head)];
      const float share =
          static_cast<float>(times(queries.positions[blocks[block].begin])) / static_cast<float>(hyper.group());
      for (size_t row = 0; row < total.size(); ++row)
        total[row] += sum[row] * share;
    }
    store_.set_notes(sequence_, layer, head, column, total);
  });
}

void Observations::add_past(int layer, const LayerQueries& queries) {
  const size_t width = query_width();
  std::vector<float> q;
  std::vector<int32_t> positions;
  for (size_t t = 0; t < queries.positions.size(); ++t) {
    if (!is_past_query(queries.positions[t]))
      continue;
    positions.push_back(queries.positions[t]);
    q.insert(q.end(), queries.q + t * width, queries.q + (t + 1) * width);
  }
  if (!positions.empty())
    add_weights(layer, {.q = q.data(), .positions = positions}, columns_.past,
                [](int32_t position) { return past_stride(position) / kPastStride; });
}

void Observations::add_echo(int layer, const LayerQueries& queries) {
  const model::HyperParams& hyper = engine_.model->hyper();
  const size_t width = query_width();
  const std::span<float> own = lead(layer);
  int64_t& lead_end = lead_end_[static_cast<size_t>(layer)];
  const int32_t front = queries.positions.front();
  const size_t n_lead = lead_end == front ? std::min<size_t>(static_cast<size_t>(lead_end), kEchoReach) : 0;
  std::array<int32_t, kEchoReach> lead_positions{};
  std::iota(lead_positions.begin(), lead_positions.end(), front - kEchoReach);
  const std::vector<Range> blocks = blocks_of(queries.positions);
  std::vector<EchoedRows> echoed(blocks.size() * static_cast<size_t>(hyper.n_kv_heads));
  for_each_index(*engine_.compute, static_cast<int>(echoed.size()), [&](int i) {
    const int head = i % hyper.n_kv_heads;
    const Range& block = blocks[static_cast<size_t>(i / hyper.n_kv_heads)];
    const size_t n_before = std::min<size_t>(block.begin, kEchoReach);
    const size_t n_of_lead = std::min(n_lead, kEchoReach - n_before);
    MovedQueries asked;
    asked.add(turn_, tile({.q = own.data(), .positions = lead_positions}, head, kEchoReach - n_of_lead, kEchoReach),
              hyper.head_dim);
    asked.add(turn_, tile(queries, head, block.begin - n_before, block.end), hyper.head_dim);
    echoed[static_cast<size_t>(i)] =
        echo_of(*engine_.kernels, store_.view(sequence_, layer, head), asked, hyper.group(), hyper.attention_scale,
                {.begin = queries.positions[block.begin], .end = queries.positions[block.end - 1] + 1});
  });
  for_each_index(*engine_.compute, hyper.n_kv_heads, [&](int head) {
    std::vector<float> notes = store_.notes(sequence_, layer, head, columns_.echo);
    for (size_t i = static_cast<size_t>(head); i < echoed.size(); i += static_cast<size_t>(hyper.n_kv_heads)) {
      float* const to = notes.data() + echoed[i].first;
      for (size_t row = 0; row < echoed[i].echo.size(); ++row)
        to[row] = std::max(to[row], echoed[i].echo[row]);
    }
    store_.set_notes(sequence_, layer, head, columns_.echo, notes);
  });
  // The last queries lead the next ones.
  const size_t n = queries.positions.size();
  const size_t n_new = std::min<size_t>(n, kEchoReach);
  std::ranges::copy(own.subspan(n_new * width), own.begin());
  std::copy(queries.q + (n - n_new) * width, queries.q + n * width, own.last(n_new * width).begin());
  lead_end = int64_t{queries.positions.back()} + 1;
}

void Observations::add_moments(int layer, const LayerQueries& queries) {
  const model::HyperParams& hyper = engine_.model->hyper();
  const size_t n = queries.positions.size();
  const size_t n_pairs = rotation_.frequency.size();
  std::vector<float> turns(n * n_pairs * 2);  // cos, sin of each query's pairs
  int64_t n_counted = 0;
  for (size_t t = 0; t < n; ++t) {
    n_counted += queries.positions[t] >= kSinkQueries ? 1 : 0;
    for (size_t j = 0; j < n_pairs; ++j) {
      const double angle = double{rotation_.frequency[j]} * queries.positions[t];
      turns[(t * n_pairs + j) * 2] = static_cast<float>(std::cos(angle));
      turns[(t * n_pairs + j) * 2 + 1] = static_cast<float>(std::sin(angle));
    }
  }
  for_each_index(*engine_.compute, hyper.n_heads,
                 [&](int query_head) { add_query_moments(layer, query_head, queries, turns); });
  for (int head = 0; head < hyper.n_kv_heads; ++head)
    moments_[index(layer, head)].n_queries += n_counted;
}

// One query head. turns f32 [n][n_pairs][cos, sin].
void Observations::add_query_moments(int layer, int query_head, const LayerQueries& queries,
                                     std::span<const float> turns) {
  const model::HyperParams& hyper = engine_.model->hyper();
  const auto d = static_cast<size_t>(hyper.head_dim);
  const size_t n_pairs = rotation_.frequency.size();
  const auto g = static_cast<size_t>(query_head % hyper.group());
  eviction::QueryMoments& moments = moments_[index(layer, query_head / hyper.group())];
  const float upright = 1.0F / rotation_.magnitude;
  std::vector<float> u(d), sum(d), length(n_pairs), outer(d * d);
  for (const Range& block : blocks_of(queries.positions)) {
    std::ranges::fill(sum, 0.0F);
    std::ranges::fill(length, 0.0F);
    std::ranges::fill(outer, 0.0F);
    for (size_t t = block.begin; t < block.end; ++t) {
      if (queries.positions[t] < kSinkQueries)
        continue;
      const float* q = queries.q + (t * static_cast<size_t>(hyper.n_heads) + static_cast<size_t>(query_head)) * d;
      std::copy_n(q, d, u.begin());
      for (size_t j = 0; j < n_pairs; ++j) {
        const auto a = static_cast<size_t>(rotation_.first(static_cast<int>(j)));
        const auto b = static_cast<size_t>(rotation_.second(static_cast<int>(j)));
        const float c = turns[(t * n_pairs + j) * 2];
        const float s = turns[(t * n_pairs + j) * 2 + 1];
        u[a] = (q[a] * c + q[b] * s) * upright;
        u[b] = (q[b] * c - q[a] * s) * upright;
        length[j] += std::sqrt(u[a] * u[a] + u[b] * u[b]);
      }
      for (size_t i = 0; i < d; ++i) {
        sum[i] += u[i];
        for (size_t j = 0; j < d; ++j)
          outer[i * d + j] += u[i] * u[j];
      }
    }
    for (size_t i = 0; i < d; ++i)
      moments.sum[g * d + i] += double{sum[i]};
    for (size_t j = 0; j < n_pairs; ++j)
      moments.length[g * n_pairs + j] += double{length[j]};
    for (size_t i = 0; i < d * d; ++i)
      moments.outer[g * d * d + i] += double{outer[i]};
  }
}

// ---- the repetition ----

void Observations::add_reconstruction(int layer, const LayerQueries& queries, const Repeated& repeated) {
  const model::HyperParams& hyper = engine_.model->hyper();
  const std::vector<Range> blocks = blocks_of(queries.positions);
  const auto n_best = static_cast<size_t>(repeated.end - repeated.begin);
  std::vector<std::vector<float>> best(blocks.size() * static_cast<size_t>(hyper.n_kv_heads));
  for_each_index(*engine_.compute, static_cast<int>(best.size()), [&](int i) {
    const int head = i % hyper.n_kv_heads;
    const Range& block = blocks[static_cast<size_t>(i / hyper.n_kv_heads)];
    const SomeRows rows(
        store_.view(sequence_, layer, head),
        {.begin = repeated.begin, .end = repeated.end, .n_sinks = kSinkQueries, .probe = repeated.probe});
    std::vector<float>& largest = best[static_cast<size_t>(i)];
    largest.assign(n_best, 0.0F);
    eviction::for_weights(*engine_.kernels, rows.view, tile(queries, head, block.begin, block.end),
                          [&](int, int, std::span<const float> a) { take_largest(rows, a, largest); });
  });
  for_each_index(*engine_.compute, hyper.n_kv_heads, [&](int head) {
    const KvHeadView rows = store_.view(sequence_, layer, head);
    std::vector<float> notes = store_.notes(sequence_, layer, head, columns_.reconstruction);
    for (size_t row = 0; row < notes.size(); ++row) {
      const int64_t to = int64_t{rows.position(static_cast<int32_t>(row))} - repeated.begin;
      if (to < 0 || to >= static_cast<int64_t>(n_best))
        continue;
      for (size_t i = static_cast<size_t>(head); i < best.size(); i += static_cast<size_t>(hyper.n_kv_heads))
        notes[row] = std::max(notes[row], best[i][static_cast<size_t>(to)]);
    }
    store_.set_notes(sequence_, layer, head, columns_.reconstruction, notes);
  });
}

// ---- forks, and what scorers get ----

void Observations::forget(int64_t n_tokens) {
  for (int64_t& n : n_added_)
    n = std::min(n, n_tokens);
  token_kinds_.resize(std::min(token_kinds_.size(), static_cast<size_t>(n_tokens)));
}

void Observations::adopt(const HistoryState& state, int64_t n_tokens) {
  n_added_ = state.n_added;
  moments_ = state.moments;
  lead_ = state.lead;
  lead_end_ = state.lead_end;
  forget(n_tokens);
}

void Observations::restore(int64_t n_tokens, std::vector<eviction::QueryMoments> moments) {
  check(moments.size() == moments_.size(), "moments of each head are restored");
  std::ranges::fill(n_added_, n_tokens);
  moments_ = std::move(moments);
}

std::string Observations::missing(const eviction::Needs& needs) const {
  if (needs.attention_sum && !recorded_.attention_sum)
    return "attention sums";
  if (needs.echo && !recorded_.echo)
    return "echoes";
  if (needs.query_moments && !recorded_.query_moments)
    return "query moments";
  if (needs.gate && !recorded_.gate)
    return "what the gate says";
  return needs.reconstruction && !recorded_.reconstruction ? "reconstruction" : "";
}

void Observations::copy_layer(const Observations& parent, int layer, bool tested) {
  const int n_kv_heads = engine_.model->hyper().n_kv_heads;
  n_added_[static_cast<size_t>(layer)] = parent.n_added_[static_cast<size_t>(layer)];
  if (recorded_.echo) {
    lead_end_[static_cast<size_t>(layer)] = parent.lead_end_[static_cast<size_t>(layer)];
    const std::span<float> own = lead(layer);
    std::ranges::copy(std::span(parent.lead_).subspan(static_cast<size_t>(layer) * own.size(), own.size()),
                      own.begin());
  }
  for (int head = 0; head < n_kv_heads; ++head) {
    if (recorded_.attention_sum)
      store_.set_notes(sequence_, layer, head, columns_.attention_sum, parent.attention_sum(layer, head));
    if (recorded_.echo) {
      store_.set_notes(sequence_, layer, head, columns_.past, parent.notes(layer, head, parent.columns_.past));
      store_.set_notes(sequence_, layer, head, columns_.echo, parent.echo(layer, head));
    }
    if (recorded_.gate)
      store_.set_notes(sequence_, layer, head, columns_.gate, parent.gate(layer, head));
    if (recorded_.reconstruction && tested)
      store_.set_notes(sequence_, layer, head, columns_.reconstruction, parent.reconstruction(layer, head));
    if (recorded_.query_moments)
      moments_[index(layer, head)] = parent.moments_[index(layer, head)];
  }
}

void Observations::attach(int layer, const eviction::Needs& needs, std::span<const Token> tokens, LayerHistory& history,
                          eviction::LayerInput& in) {
  const model::HyperParams& hyper = engine_.model->hyper();
  if (needs.output_weights && output_weights_layer_ != layer) {
    output_weights_ = engine_.model->output_projection(layer);
    output_weights_layer_ = layer;
  }
  for (size_t i = needs.tokens ? token_kinds_.size() : tokens.size(); i < tokens.size(); ++i)
    token_kinds_.push_back(engine_.tokenizer == nullptr ? 0 : token_kind(*engine_.tokenizer, tokens[i]));
  history.attention_sum.resize(in.heads.size());
  history.past.resize(in.heads.size());
  history.echo.resize(in.heads.size());
  history.reconstruction.resize(in.heads.size());
  history.gate.resize(in.heads.size());
  for (size_t h = 0; h < in.heads.size(); ++h) {
    eviction::HeadInput& head = in.heads[h];
    head.n_layers = hyper.n_layers;
    if (needs.attention_sum)
      head.attention_sum = history.attention_sum[h] = attention_sum(layer, head.head);
    if (needs.echo) {
      head.past = history.past[h] = past(layer, head.head, head.n_tokens);
      head.echo = history.echo[h] = echo(layer, head.head);
    }
    if (needs.reconstruction)
      head.reconstruction = history.reconstruction[h] = reconstruction(layer, head.head);
    if (needs.gate)
      head.gate = history.gate[h] = gate(layer, head.head);
    if (needs.ageing)
      head.ageing = engine_.ageing;
    if (needs.query_moments) {
      head.moments = &moments_[index(layer, head.head)];
      head.rotation = &rotation_;
    }
    if (needs.output_weights) {
      head.w_o = output_weights_.data() + h * static_cast<size_t>(hyper.group() * hyper.head_dim * hyper.n_embd);
      head.n_embd = hyper.n_embd;
    }
    if (needs.tokens) {
      head.tokens = tokens;
      head.token_kinds = std::span(token_kinds_).first(tokens.size());
    }
  }
}

std::vector<float> Observations::notes(int layer, int head, int column) const {
  return column < 0 ? std::vector<float>() : store_.notes(sequence_, layer, head, column);
}
std::vector<float> Observations::attention_sum(int layer, int head) const {
  return notes(layer, head, columns_.attention_sum);
}
std::vector<float> Observations::past(int layer, int head, int32_t n_tokens) const {
  std::vector<float> mean = notes(layer, head, columns_.past);
  const KvHeadView rows = store_.view(sequence_, layer, head);
  for (size_t row = 0; row < mean.size(); ++row) {
    const int32_t n = past_queries(rows.position(static_cast<int32_t>(row)), n_tokens);
    mean[row] = n > 0 ? mean[row] / static_cast<float>(n) : 0.0F;
  }
  return mean;
}
std::vector<float> Observations::echo(int layer, int head) const { return notes(layer, head, columns_.echo); }
std::vector<float> Observations::reconstruction(int layer, int head) const {
  return notes(layer, head, columns_.reconstruction);
}
std::vector<float> Observations::gate(int layer, int head) const { return notes(layer, head, columns_.gate); }
const eviction::QueryMoments& Observations::moments(int layer, int head) const { return moments_[index(layer, head)]; }

}  // namespace kedge::session
