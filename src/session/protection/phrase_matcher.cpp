#include "session/protection/phrase_matcher.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "session/protection/utf8.h"

namespace kedge::session {
namespace {

std::string even_blanks(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (!is_blank(c))
      out += c;
    else if (!out.empty() && out.back() != ' ')
      out += ' ';
  }
  if (!out.empty() && out.back() == ' ')
    out.pop_back();
  return out;
}

char last_lead(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && is_continuation(text[at]))
    --at;
  return text[at];
}

}  // namespace

PhraseMatcher::PhraseMatcher(const std::vector<Phrase>& phrases) : nodes_(1) {
  for (const Phrase& phrase : phrases)
    insert(phrase);
  link();
}

int32_t PhraseMatcher::child(int32_t node, char byte) const {
  if (node == 0)
    return root_[static_cast<uint8_t>(byte)];
  int32_t next = nodes_[node].first_child;
  while (next >= 0 && nodes_[next].byte != byte)
    next = nodes_[next].next_sibling;
  return std::max(next, 0);
}

int32_t PhraseMatcher::step(int32_t node, char byte) const {
  for (;;) {
    const int32_t next = child(node, byte);
    if (next != 0 || node == 0)
      return next;
    node = nodes_[node].fail;
  }
}

void PhraseMatcher::insert(const Phrase& phrase) {
  Pattern pattern{.text = even_blanks(phrase.text),
                  .match_case = phrase.match_case,
                  .at_line_start = phrase.at_line_start,
                  .owner = phrase.owner};
  check(!pattern.text.empty(), "a phrase has characters");
  pattern.starts_word = starts_word_character(pattern.text.front());
  pattern.ends_word = starts_word_character(last_lead(pattern.text));
  longest_ = std::max(longest_, pattern.text.size());
  int32_t node = 0;
  for (const char c : pattern.text) {
    nodes_[node].leads_to_keyword |= pattern.owner == 0;
    const char byte = folded(c);
    int32_t next = child(node, byte);
    if (next == 0) {
      next = static_cast<int32_t>(nodes_.size());
      nodes_.push_back({.next_sibling = nodes_[node].first_child, .depth = nodes_[node].depth + 1, .byte = byte});
      nodes_[node].first_child = next;
      if (node == 0)
        root_[static_cast<uint8_t>(byte)] = next;
    }
    node = next;
  }
  pattern.next = nodes_[node].last_phrase;
  nodes_[node].last_phrase = static_cast<int32_t>(patterns_.size());
  patterns_.push_back(std::move(pattern));
}

// Breadth first: a node's `fail` is the longest proper end of its text that begins a phrase.
void PhraseMatcher::link() {
  std::vector<int32_t> queue = {0};
  for (size_t head = 0; head < queue.size(); ++head) {
    const int32_t node = queue[head];
    for (int32_t next = nodes_[node].first_child; next >= 0; next = nodes_[next].next_sibling) {
      Node& fresh = nodes_[next];
      fresh.fail = node == 0 ? 0 : step(nodes_[node].fail, fresh.byte);
      fresh.match = fresh.last_phrase >= 0 ? next : nodes_[fresh.fail].match;
      queue.push_back(next);
    }
  }
}

PhraseScan::PhraseScan(const PhraseMatcher& matcher)
    : matcher_(matcher), ring_(std::bit_ceil(std::max<size_t>(matcher.longest_, 1))) {}

void PhraseScan::read(std::string_view bytes, int32_t token, std::vector<TokenRun>& matches) {
  for (const char c : bytes) {
    if (!is_blank(c)) {
      push(c, token, matches);
      was_blank_ = false;
      line_start_ = false;
      continue;
    }
    if (!was_blank_)
      push(' ', token, matches);
    was_blank_ = true;
    line_start_ |= c == '\n';
  }
}

void PhraseScan::push(char byte, int32_t token, std::vector<TokenRun>& matches) {
  if (!pending_.empty()) {
    if (!starts_word_character(byte) && !is_continuation(byte))
      matches.insert(matches.end(), pending_.begin(), pending_.end());
    pending_.clear();
  }
  ring_[static_cast<size_t>(n_bytes_) & (ring_.size() - 1)] = {
      .byte = byte, .word_before = in_word_, .line_start = line_start_, .token = token};
  ++n_bytes_;
  if (!is_continuation(byte))
    in_word_ = starts_word_character(byte);
  node_ = matcher_.step(node_, folded(byte));
  for (int32_t node = matcher_.nodes_[node_].match; node != 0;
       node = matcher_.nodes_[matcher_.nodes_[node].fail].match) {
    for (int32_t i = matcher_.nodes_[node].last_phrase; i >= 0; i = matcher_.patterns_[i].next) {
      const PhraseMatcher::Pattern& pattern = matcher_.patterns_[i];
      const int64_t begin = n_bytes_ - static_cast<int64_t>(pattern.text.size());
      if (holds(pattern, begin))
        (pattern.ends_word ? pending_ : matches).push_back({place(begin).token, token, pattern.owner});
    }
  }
}

bool PhraseScan::holds(const PhraseMatcher::Pattern& pattern, int64_t begin) const {
  const Place& first = place(begin);
  if ((pattern.starts_word && first.word_before) || (pattern.at_line_start && !first.line_start))
    return false;
  if (!pattern.match_case)
    return true;
  for (size_t i = 0; i < pattern.text.size(); ++i) {
    if (place(begin + static_cast<int64_t>(i)).byte != pattern.text[i])
      return false;
  }
  return true;
}

void PhraseScan::append_open(std::vector<TokenRun>& runs) const {
  runs.insert(runs.end(), pending_.begin(), pending_.end());
  for (int32_t node = node_; node != 0; node = matcher_.nodes_[node].fail) {
    const Place& first = place(n_bytes_ - matcher_.nodes_[node].depth);
    const bool may_begin = !first.word_before || !starts_word_character(first.byte);
    if (!matcher_.nodes_[node].leads_to_keyword || !may_begin)
      continue;
    runs.push_back({first.token, place(n_bytes_ - 1).token, 0});
    return;
  }
}

}  // namespace kedge::session
