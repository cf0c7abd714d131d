// When rows are evicted, and to what part of a layer's share.
#pragma once

#include <cstdint>

namespace kedge::eviction {

struct ScheduleInfo {
  bool after_prompt = true;
  bool between_chunks = true;
  int every_n = 0;         // tokens for which an eviction leaves room while decoding; 0: the plan chooses
  double every_share = 0;  // or this share of a head's rows, where that is more
  // Share of a layer's blocks that may be in use when a prompt has been read, that room included.
  double prompt_keep = 1;
  // > 0: a text that arrives in a running session and does not fit is read in chunks that grow over so many steps, so
  // that what may stay beside them shrinks step by step. 0: everything is cut to the smallest share before it.
  int burst_steps = 0;
};

// A layer before a token is written, while decoding.
struct LayerMoment {
  int layer = 0;
  int n_layers = 1;
  int64_t n_tokens = 0;  // of the sequence, before this token
  int period = 1;        // tokens for which an eviction leaves room: every_n, or fewer where the budget is small
  double used = 0;       // blocks that the layer will hold `period` tokens from now / blocks of its share
  double pressure = 0;   // bytes in use / budget of the store
  bool must = false;     // the token does not fit: the layer is evicted whatever the schedule says
};
// keep: share of the layer's blocks that may be in use afterwards, the room for `period` tokens included.
struct Cut {
  bool is_due = false;
  double keep = 1;
};

// How hard a context is for a layer, measured at each of its evictions. 0: a few rows have all the attention.
//   entropy: of the attention of the window's queries, divided by that of an even spread
//   error:   attention that rows other than the best min_share of them get
enum class Difficulty { none, entropy, error };

class Schedule {
 public:
  virtual ~Schedule() = default;
  virtual ScheduleInfo info() const = 0;
  virtual Cut at_token(const LayerMoment&) const { return {}; }
  // What part of its share a layer may use, by its difficulty 0..1. Within min_share() .. 1.
  virtual Difficulty measure() const { return Difficulty::none; }
  virtual double min_share() const { return 1; }
  virtual double share(double /*difficulty*/) const { return 1; }
};

}  // namespace kedge::eviction
