#include "session/protection/protected_text.h"

#include <algorithm>
#include <cmath>

#include "session/protection/phrase_list.h"

namespace kedge::session {
namespace {

constexpr auto kNothing = static_cast<uint8_t>(ProtectedBy::nothing);

// All phrases of the request in one automaton: keywords belong to 0, those of the domain's class c to c + 1.
std::vector<Phrase> phrases_of(const Protection& protection, const Domain& domain) {
  std::vector<Phrase> out;
  for (const ProtectedPhrase& phrase : protection.phrases)
    out.push_back({.text = phrase.text, .match_case = phrase.match_case});
  for (size_t c = 0; c < domain.classes.size(); ++c) {
    for (Phrase phrase : domain.classes[c].phrases) {
      phrase.owner = static_cast<int32_t>(c) + 1;
      out.push_back(std::move(phrase));
    }
  }
  return out;
}

void add_sorted(std::vector<int32_t>& list, int32_t value) {
  if (list.empty() || list.back() < value)
    list.push_back(value);
  else if (const auto at = std::ranges::lower_bound(list, value); *at != value)
    list.insert(at, value);
}

int64_t count_of(std::span<const uint8_t> by, ProtectedBy what) {
  return std::ranges::count(by, static_cast<uint8_t>(what));
}

// Positions that are neither sinks nor recent, and not yet protected.
bool is_free(const HeadRoom& room, const Pinned& pinned, int32_t position) {
  return position >= room.n_sinks && position < room.n_tokens - std::max(room.n_recent, 1) &&
         pinned.by[position] == kNothing;
}

}  // namespace

Result<std::unique_ptr<ProtectedText>> ProtectedText::create(const Protection& protection, DescribeToken describe) {
  if (Status status = check_phrases(protection.phrases); !status)
    return status.error();
  for (const TokenSpan& span : protection.spans) {
    if (span.begin < 0 || span.end <= span.begin) {
      return Error{ErrorCode::usage, "protected span: found tokens " + std::to_string(span.begin) + " to " +
                                         std::to_string(span.end) + ", the first must be 0 or more and below the last"};
    }
  }
  if (protection.special_quota < 0) {
    return Error{ErrorCode::usage,
                 "quota of special tokens: found " + std::to_string(protection.special_quota) + ", allowed from 0"};
  }
  Domain domain;
  if (!protection.domain.empty()) {
    Result<Domain> parsed = parse_domain(protection.domain, "domain");
    if (!parsed)
      return parsed.error();
    domain = *std::move(parsed);
  }
  return std::unique_ptr<ProtectedText>(new ProtectedText(protection, std::move(domain), std::move(describe)));
}

ProtectedText::ProtectedText(const Protection& protection, Domain domain, DescribeToken describe)
    : protection_(protection),
      domain_(std::move(domain)),
      describe_(std::move(describe)),
      matcher_(phrases_of(protection_, domain_)) {
  reset();
}

void ProtectedText::reset() {
  tokens_.clear();
  required_.clear();
  special_.clear();
  classes_.clear();
  known_room_.reset();
  phrases_ = std::make_unique<PhraseScan>(matcher_);
  for (const DomainClass& entry : domain_.classes) {
    classes_.push_back({.tokens = {},
                        .brackets = BracketScan(entry.pairs),
                        .lines = LineScan({.indentation = entry.indentation,
                                           .speaker_labels = entry.speaker_labels,
                                           .table_columns = entry.table_columns})});
  }
}

void ProtectedText::append(std::span<const int32_t> tokens) {
  known_room_.reset();
  if (!is_active())
    return;
  for (const int32_t token : tokens)
    read(token);
}

void ProtectedText::truncate(int64_t n_tokens) {
  if (n_tokens >= static_cast<int64_t>(tokens_.size()))
    return;
  const std::vector<int32_t> kept(tokens_.begin(), tokens_.begin() + n_tokens);
  reset();
  append(kept);
}

void ProtectedText::read(int32_t token) {
  const auto position = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
  const bool in_span = std::ranges::any_of(
      protection_.spans, [&](const TokenSpan& span) { return position >= span.begin && position < span.end; });
  required_.push_back(static_cast<uint8_t>(in_span ? ProtectedBy::span : ProtectedBy::nothing));
  const TokenText text = describe_(token);
  if (text.is_special)
    special_[token].push_back(position);
  if (!matcher_.empty()) {
    std::vector<TokenRun> matches;
    phrases_->read(text.bytes, position, matches);
    take_matches(matches);
  }
  for (ClassState& state : classes_) {
    state.brackets.read(text.bytes, position);
    state.lines.read(text.bytes, position);
  }
}

void ProtectedText::take_matches(const std::vector<TokenRun>& runs) {
  for (const TokenRun& run : runs) {
    for (int32_t position = run.first; position <= run.last; ++position) {
      if (run.owner > 0)
        add_sorted(classes_[static_cast<size_t>(run.owner) - 1].tokens, position);
      else if (required_[position] == kNothing)
        required_[position] = static_cast<uint8_t>(ProtectedBy::phrase);
    }
  }
}

const Pinned& ProtectedText::pinned(const HeadRoom& asked) {
  HeadRoom room = asked;
  room.n_tokens = std::min<int64_t>(room.n_tokens, static_cast<int64_t>(required_.size()));
  room.n_sinks = static_cast<int>(std::clamp<int64_t>(room.n_sinks, 0, room.n_tokens));
  room.n_recent = static_cast<int>(std::clamp<int64_t>(room.n_recent, 0, room.n_tokens));
  if (known_room_ == room)
    return pinned_;
  known_room_ = room;
  pinned_ = {};
  if (room.n_tokens == 0)
    return pinned_;
  pin_required(room, pinned_);
  const int64_t window = std::min<int64_t>(std::max(room.n_recent, 1), room.n_tokens - room.n_sinks);
  const auto recent = std::span(pinned_.by).last(static_cast<size_t>(window));
  int64_t free_rows = room.rows - room.n_sinks - std::ranges::count(recent, kNothing);
  const auto others = std::span(pinned_.by).subspan(static_cast<size_t>(room.n_sinks));
  free_rows -= static_cast<int64_t>(others.size()) - std::ranges::count(others, kNothing);
  free_rows = pin_special(room, free_rows, pinned_);
  for (size_t c = 0; c < classes_.size(); ++c)
    free_rows = pin_class(c, room, free_rows, pinned_);
  pinned_.counts = {.spans = count_of(pinned_.by, ProtectedBy::span),
                    .phrases = count_of(pinned_.by, ProtectedBy::phrase),
                    .special = count_of(pinned_.by, ProtectedBy::special),
                    .domain = count_of(pinned_.by, ProtectedBy::domain)};
  return pinned_;
}

void ProtectedText::pin_required(const HeadRoom& room, Pinned& out) const {
  out.by.assign(required_.begin(), required_.begin() + room.n_tokens);
  std::vector<TokenRun> open;
  phrases_->append_open(open);
  for (const TokenRun& run : open) {
    for (int64_t p = run.first; run.owner == 0 && p <= std::min<int64_t>(run.last, room.n_tokens - 1); ++p) {
      if (out.by[p] == kNothing)
        out.by[p] = static_cast<uint8_t>(ProtectedBy::phrase);
    }
  }
  if (std::ranges::count(out.by, kNothing) == room.n_tokens)
    return;  // sinks and recent rows alone: theirs is the old rule, they are lowered where they do not fit
  const auto others = std::span(out.by).subspan(static_cast<size_t>(room.n_sinks));
  out.n_needed = room.n_sinks + static_cast<int64_t>(others.size()) - std::ranges::count(others, kNothing);
  out.n_needed += !others.empty() && others.back() == kNothing ? 1 : 0;
  if (protection_.overflow == ProtectOverflow::error)
    return;
  for (size_t i = 0; i < others.size() && out.n_needed > room.rows; ++i) {
    if (others[i] == kNothing)
      continue;
    others[i] = kNothing;
    --out.n_needed;
    ++out.n_dropped;
  }
  if (out.n_needed <= room.rows)
    return;
  std::ranges::fill(out.by, kNothing);  // not even the sinks fit
  out.n_needed = 0;
}

// The newest of each kind first, then the second newest of each, until the quota or the share is used up. Returns the
// rows that are left.
int64_t ProtectedText::pin_special(const HeadRoom& room, int64_t free_rows, Pinned& out) const {
  int64_t quota = std::min(free_rows, static_cast<int64_t>(std::floor(kSpecialShare * room.budget_rows)));
  for (int rank = 1; rank <= protection_.special_quota; ++rank) {
    for (const auto& [token, positions] : special_) {
      const auto end = std::ranges::lower_bound(positions, room.n_tokens) - positions.begin();
      if (rank > end || quota <= 0)
        continue;
      const int32_t position = positions[static_cast<size_t>(end - rank)];
      if (!is_free(room, out, position))
        continue;
      out.by[position] = static_cast<uint8_t>(ProtectedBy::special);
      --quota;
      --free_rows;
    }
  }
  return free_rows;
}

// Open brackets first, the newest of them first; then the newest of everything in the class.
int64_t ProtectedText::pin_class(size_t index, const HeadRoom& room, int64_t free_rows, Pinned& out) const {
  const ClassState& state = classes_[index];
  const auto share = static_cast<int64_t>(std::floor(domain_.classes[index].share * room.budget_rows));
  int64_t quota = std::min(free_rows, share);
  const auto pin_newest = [&](std::vector<int32_t> positions) {
    std::ranges::sort(positions, std::greater<>());
    for (size_t i = 0; i < positions.size() && quota > 0; ++i) {
      if (!is_free(room, out, positions[i]))
        continue;
      out.by[positions[i]] = static_cast<uint8_t>(ProtectedBy::domain);
      --quota;
      --free_rows;
    }
  };
  pin_newest(state.brackets.open());
  std::vector<int32_t> all = state.tokens;
  all.insert(all.end(), state.brackets.tokens().begin(), state.brackets.tokens().end());
  all.insert(all.end(), state.lines.tokens().begin(), state.lines.tokens().end());
  pin_newest(std::move(all));
  return free_rows;
}

}  // namespace kedge::session
