// Which positions of a sequence are protected, by what its tokens are. Reads every token once, as it arrives; knows no
// store and no model.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kedge/protection.h"
#include "session/protection/bracket_scan.h"
#include "session/protection/domain.h"
#include "session/protection/line_scan.h"
#include "session/protection/phrase_matcher.h"

namespace kedge::session {

struct TokenText {
  std::string bytes;  // markers as they are written
  bool is_special = false;
};
using DescribeToken = std::function<TokenText(int32_t token)>;

// What an eviction leaves a kv head, at least.
struct HeadRoom {
  int64_t n_tokens = 0;    // positions that exist by then
  int64_t rows = 0;        // a head may keep
  double budget_rows = 0;  // what shares are shares of
  int n_sinks = 0;
  int n_recent = 0;
  bool operator==(const HeadRoom&) const = default;
};

struct ProtectedCounts {  // tokens; each is a row in every kv head of every layer
  int64_t spans = 0;
  int64_t phrases = 0;
  int64_t special = 0;
  int64_t domain = 0;
};

struct Pinned {
  std::vector<uint8_t> by;  // ProtectedBy of each position [n_tokens]
  // Rows a head cannot do without: sinks, spans, phrases and the newest row; 0 where there is no span and no phrase.
  int64_t n_needed = 0;
  int64_t n_dropped = 0;  // tokens of spans and phrases that lost their protection
  ProtectedCounts counts;
};

class ProtectedText {
 public:
  // The share of the budget that special tokens get at most, of all kinds together.
  static constexpr double kSpecialShare = 0.25;

  // Errors: usage (a phrase, a span or the domain is not valid).
  static Result<std::unique_ptr<ProtectedText>> create(const Protection& protection, DescribeToken describe);

  bool is_active() const { return !protection_.empty(); }
  std::span<const int32_t> tokens() const { return tokens_; }

  void append(std::span<const int32_t> tokens);  // does nothing where nothing is to be protected
  void truncate(int64_t n_tokens);               // forgets what lies behind; reads the rest anew

  // Spans and phrases always (with `oldest`: those of the highest positions that fit). Special tokens and the domain's
  // classes within their quotas, in what those, the sinks and the recent rows leave; what a domain protects is counted
  // outside of the recent rows, which stay anyway. Valid until the next call.
  const Pinned& pinned(const HeadRoom& room);

 private:
  struct ClassState {
    std::vector<int32_t> tokens;  // of phrases, ascending
    BracketScan brackets;
    LineScan lines;
  };
  ProtectedText(const Protection& protection, Domain domain, DescribeToken describe);
  void reset();
  void read(int32_t token);
  void take_matches(const std::vector<TokenRun>& runs);
  void pin_required(const HeadRoom& room, Pinned& out) const;
  int64_t pin_special(const HeadRoom& room, int64_t free_rows, Pinned& out) const;
  int64_t pin_class(size_t index, const HeadRoom& room, int64_t free_rows, Pinned& out) const;

  Protection protection_;
  Domain domain_;
  DescribeToken describe_;
  PhraseMatcher matcher_;
  std::vector<int32_t> tokens_;
  std::vector<uint8_t> required_;  // ProtectedBy by position: spans and phrases that are certain
  std::unique_ptr<PhraseScan> phrases_;
  std::map<int32_t, std::vector<int32_t>> special_;  // positions by token
  std::vector<ClassState> classes_;
  std::optional<HeadRoom> known_room_;  // of pinned_
  Pinned pinned_;
};

}  // namespace kedge::session
