// What a timeline protects from eviction by its text, and whether that fits.
#include <algorithm>
#include <array>
#include <climits>

#include "session/timeline.h"

namespace kedge::session {
namespace {

// Rows that each head may keep for certain: heads that protect the same positions share a layer's blocks evenly.
int64_t rows_per_head(const EvictionTarget& target, int64_t n_kv_heads) {
  if (target.rows_exact > 0)
    return target.rows_exact / n_kv_heads;
  return target.blocks / n_kv_heads * kBlockRows - target.growth;
}

// Whether every eviction of a plan leaves a head so many rows.
bool leaves(const Plan& plan, int64_t n_rows, int64_t n_kv_heads) {
  const std::array targets = {plan.between_chunks, plan.after_prompt, plan.decoding, plan.followup};
  return std::ranges::all_of(targets, [&](const EvictionTarget& t) { return rows_per_head(t, n_kv_heads) >= n_rows; });
}

}  // namespace

Status Timeline::open_text() {
  const model::Tokenizer* tokenizer = engine_.tokenizer;
  if (tokenizer == nullptr && !options_.protect.empty())
    return Error{ErrorCode::usage, "protection needs a tokenizer"};
  Result<std::unique_ptr<ProtectedText>> text = ProtectedText::create(options_.protect, [tokenizer](Token token) {
    return TokenText{.bytes = tokenizer->piece(token, true), .is_special = tokenizer->is_control(token)};
  });
  if (!text)
    return text.error();
  text_ = *std::move(text);
  return {};
}

HeadRoom Timeline::head_room(const EvictionTarget& target, int64_t n_tokens) const {
  const int64_t heads = engine_.model->hyper().n_kv_heads;
  const double budget_rows = rows_of(target, heads);
  return {.n_tokens = n_tokens,
          .rows = rows_per_head(target, heads),
          .budget_rows = budget_rows,
          .n_sinks = policy_.sinks.rows(budget_rows),
          .n_recent = policy_.recent.rows(budget_rows)};
}

Status Timeline::protection_fits(const EvictionTarget& target, int64_t n_tokens) const {
  if (!text_->is_active())
    return {};
  const HeadRoom room = head_room(target, n_tokens);
  const Pinned& pinned = text_->pinned(room);
  if (pinned.n_needed <= room.rows)
    return {};
  const model::HyperParams& hyper = engine_.model->hyper();
  const int64_t heads = int64_t{hyper.n_layers} * hyper.n_kv_heads;
  const auto number = [](int64_t n) { return std::to_string(n); };
  return Error{ErrorCode::budget_impossible,
               "the protected rows exceed the budget: of " + number(n_tokens) + " tokens " + number(pinned.n_needed) +
                   " must stay (" + number(room.n_sinks) + " sinks, " + number(pinned.counts.spans) + " in spans, " +
                   number(pinned.counts.phrases) + " in phrases, the newest), x " + number(hyper.n_layers) +
                   " layers x " + number(hyper.n_kv_heads) + " kv heads are " + number(pinned.n_needed * heads) +
                   " rows or " + format_bytes(kv::bytes_for_rows(store_->shape(), pinned.n_needed, heads)) +
                   ", and --kv-budget " + options_.budget.text + " keeps " + number(std::max<int64_t>(room.rows, 0)) +
                   " rows of each head" + enough_budget(pinned.n_needed) + " or --kv-protect-overflow oldest"};
}

// "; a budget of 12345KiB is enough,": of the same kind as the one given; bytes and rows are found by planning.
std::string Timeline::enough_budget(int64_t n_rows) const {
  const bool in_bytes = options_.budget.kind == Budget::Kind::bytes;
  const auto works = [&](int64_t n) {
    SessionOptions options = options_;
    options.overflow = Overflow::evict;
    options.budget.kind = in_bytes ? Budget::Kind::bytes : Budget::Kind::rows;
    options.budget.value = static_cast<double>(in_bytes ? n * 1024 : n);
    const Result<Plan> plan = plan_session(engine_, options, policy_);
    if (plan.ok() && !in_bytes && !plan->evicts)
      return true;  // the whole request fits
    return plan.ok() && leaves(*plan, n_rows, engine_.model->hyper().n_kv_heads);
  };
  int64_t hi = 1;
  while (hi < INT_MAX && !works(hi))
    hi *= 2;
  for (int64_t lo = hi / 2; hi - lo > 1;) {
    const int64_t middle = lo + (hi - lo) / 2;
    (works(middle) ? hi : lo) = middle;
  }
  return hi >= INT_MAX ? ";" : "; " + std::to_string(hi) + (in_bytes ? "KiB is enough," : "tok is enough,");
}

// Every eviction that reading this prompt leads to, before the first of its rows is written.
Status Timeline::prompt_protection_fits(int64_t n_tokens, bool planned, bool chunked) const {
  const EvictionTarget& last = planned ? plan_.after_prompt : plan_.decoding;
  if (Status status = protection_fits(last, n_tokens_ + n_tokens); !status || !chunked)
    return status;
  return protection_fits(planned ? plan_.between_chunks : plan_.followup, n_tokens_ + n_tokens);
}

// What is protected of the first n_tokens: as the last eviction would see it, or everything where there was none.
const Pinned& Timeline::pinned_at(int64_t n_tokens) const {
  if (counters_.evictions > 0)
    return text_->pinned(head_room(last_target_, n_tokens));
  return text_->pinned({.n_tokens = n_tokens, .rows = n_tokens, .budget_rows = static_cast<double>(n_tokens)});
}

void Timeline::add_protection(Stats& stats) const {
  if (!text_->is_active())
    return;
  const Pinned& pinned = pinned_at(n_tokens_);
  stats.protected_spans = pinned.counts.spans;
  stats.protected_phrases = pinned.counts.phrases;
  stats.protected_special = pinned.counts.special;
  stats.protected_domain = pinned.counts.domain;
  stats.protected_dropped = pinned.n_dropped;
}

}  // namespace kedge::session
