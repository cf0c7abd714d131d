#include "attention/taps.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

namespace kedge::attention {

Taps::Taps(const TapShape& shape) : shape_(shape) {
  const auto slots = static_cast<size_t>(shape.n_layers) * shape.n_heads * shape.window;
  q_.resize(slots * shape.head_dim);
  y_.resize(slots * shape.head_dim);
  positions_.assign(slots, -1);
  if (shape.running_every > 0 && shape.window > 0)
    running_ = RunningAnchor(shape.n_layers * shape.n_heads, shape.head_dim, shape.running_every);
}

size_t Taps::slot(int layer, int head, int32_t position) const {
  return (static_cast<size_t>(layer) * shape_.n_heads + head) * shape_.window + position % shape_.window;
}

// The mean of the rows in the ring, which holds row.position already. Prompts record in any order: what counts is who
// is within a window of the newest.
std::vector<float> Taps::ring_mean(int layer, int head) const {
  const size_t first = slot(layer, head, 0);
  const auto d = static_cast<size_t>(shape_.head_dim);
  const auto positions = std::span(positions_).subspan(first, static_cast<size_t>(shape_.window));
  const int32_t newest = *std::max_element(positions.begin(), positions.end());
  std::vector<float> mean(d);
  int n = 0;
  for (size_t i = 0; i < positions.size(); ++i) {
    if (positions[i] < 0 || positions[i] + shape_.window <= newest)
      continue;
    ++n;
    for (size_t j = 0; j < d; ++j)
      mean[j] += y_[(first + i) * d + j];
  }
  for (float& value : mean)
    value /= static_cast<float>(std::max(n, 1));
  return mean;
}

void Taps::record(const Row& row) {
  const size_t at = slot(row.layer, row.head, row.position);
  const auto d = static_cast<size_t>(shape_.head_dim);
  const size_t anchor = static_cast<size_t>(row.layer) * shape_.n_heads + row.head;
  const bool moves =
      running_.is_on() && running_.holds(anchor, row.position - 1) && positions_[at] == row.position - shape_.window;
  if (moves)
    running_.move(anchor, {.newest = row.y, .oldest = &y_[at * d], .window = shape_.window, .position = row.position});
  std::memcpy(&q_[at * d], row.q, d * sizeof(float));
  std::memcpy(&y_[at * d], row.y, d * sizeof(float));
  positions_[at] = row.position;
  if (running_.is_on() && (!moves || running_.is_due(row.position)))
    running_.recompute(anchor, ring_mean(row.layer, row.head), row.position, !moves);
}

void Taps::copy_from(const Taps& other, int32_t n_tokens) {
  const auto d = static_cast<size_t>(shape_.head_dim);
  for (int layer = 0; layer < shape_.n_layers; ++layer) {
    for (int head = 0; head < shape_.n_heads; ++head) {
      for (int32_t position = std::max(0, n_tokens - shape_.window); position < n_tokens; ++position) {
        const size_t from = other.slot(layer, head, position);
        if (other.positions_[from] == position)
          record({layer, head, position, &other.q_[from * d], &other.y_[from * d]});
      }
    }
  }
}

bool Taps::reach_back_to(int32_t n_tokens) const {
  for (size_t head = 0; head < positions_.size(); head += static_cast<size_t>(std::max(shape_.window, 1))) {
    for (int32_t position = std::max(0, n_tokens - shape_.window); position < n_tokens; ++position) {
      if (positions_[head + static_cast<size_t>(position % shape_.window)] > position)
        return false;
    }
  }
  return true;
}

void Taps::truncate(int32_t n_tokens) {
  for (int32_t& position : positions_) {
    if (position >= n_tokens)
      position = -1;
  }
}

std::string Taps::load(const Contents& contents, int64_t n_tokens) {
  const auto sizes = [](size_t q, size_t y, size_t positions) {
    return std::to_string(q) + ", " + std::to_string(y) + " and " + std::to_string(positions) + " values";
  };
  if (contents.q.size() != q_.size() || contents.y.size() != y_.size() ||
      contents.positions.size() != positions_.size()) {
    return "found " + sizes(contents.q.size(), contents.y.size(), contents.positions.size()) + ", allowed " +
           sizes(q_.size(), y_.size(), positions_.size());
  }
  for (size_t i = 0; i < positions_.size(); ++i) {
    const int32_t position = contents.positions[i];
    const bool in_slot =
        position >= 0 && position < n_tokens && position % shape_.window == static_cast<int>(i) % shape_.window;
    if (position != -1 && !in_slot) {
      return "position of slot " + std::to_string(i) + ": found " + std::to_string(position) + " in a ring of " +
             std::to_string(shape_.window) + ", allowed those below " + std::to_string(n_tokens) + " that belong there";
    }
  }
  const auto finite = [](float x) { return std::isfinite(x); };
  if (!std::ranges::all_of(contents.q, finite) || !std::ranges::all_of(contents.y, finite))
    return "found a value that is not finite";
  q_.assign(contents.q.begin(), contents.q.end());
  y_.assign(contents.y.begin(), contents.y.end());
  positions_.assign(contents.positions.begin(), contents.positions.end());
  return "";
}

ObservedWindow Taps::gather(const Query& query) const {
  ObservedWindow out;
  if (shape_.window == 0)
    return out;
  int n = 0;
  while (n < std::min(shape_.window, query.n_tokens)) {
    const int32_t position = query.n_tokens - 1 - n;
    if (positions_[slot(query.layer, query.first_head, position)] != position)
      break;
    ++n;
  }
  const auto d = static_cast<size_t>(shape_.head_dim);
  out.q.reserve(static_cast<size_t>(n) * query.group * d);
  out.y.reserve(static_cast<size_t>(n) * query.group * d);
  out.positions.reserve(static_cast<size_t>(n));
  for (int g = 0; running_.is_on() && g < query.group; ++g) {
    const std::vector<float> mean =
        running_.mean(static_cast<size_t>(query.layer) * shape_.n_heads + query.first_head + g);
    out.running_y.insert(out.running_y.end(), mean.begin(), mean.end());
  }
  for (int t = 0; t < n; ++t) {
    const int32_t position = query.n_tokens - n + t;
    out.positions.push_back(position);
    for (int g = 0; g < query.group; ++g) {
      const size_t from = slot(query.layer, query.first_head + g, position) * d;
      out.q.insert(out.q.end(), &q_[from], &q_[from] + d);
      out.y.insert(out.y.end(), &y_[from], &y_[from] + d);
    }
  }
  return out;
}

}  // namespace kedge::attention
