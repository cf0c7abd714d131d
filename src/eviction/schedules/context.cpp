// The part of the budget that is used follows the context: a layer whose attention is spread over many rows may use all
// of its share, one that looks at a few rows gives memory back. share = min + (max - min) * ramp(difficulty), where
// ramp rises from 0 at `easy` to 1 at `hard`. Evicts at turns as `every`.
#include <algorithm>

#include "eviction/turns.h"

namespace kedge::eviction {
namespace {

class Context final : public Schedule {
 public:
  explicit Context(const OptionValues& options)
      : n_(static_cast<int>(options.numbers.at("n"))),
        min_(options.numbers.at("min")),
        max_(options.numbers.at("max")),
        easy_(options.numbers.at("easy")),
        hard_(options.numbers.at("hard")),
        measure_(options.choices.at("measure") == "entropy" ? Difficulty::entropy : Difficulty::error),
        is_staggered_(options.choices.at("stagger") == "on") {}

  ScheduleInfo info() const override { return {.after_prompt = true, .between_chunks = true, .every_n = n_}; }
  // A layer that may use less than it does is only found out by measuring: every turn is due.
  Cut at_token(const LayerMoment& at) const override { return {.is_due = at.must || is_turn(at, is_staggered_)}; }
  Difficulty measure() const override { return measure_; }
  double min_share() const override { return min_; }
  double share(double difficulty) const override {
    const double ramp = hard_ > easy_ ? (difficulty - easy_) / (hard_ - easy_) : (difficulty >= hard_ ? 1.0 : 0.0);
    return min_ + (max_ - min_) * std::clamp(ramp, 0.0, 1.0);
  }

 private:
  int n_;
  double min_;
  double max_;
  double easy_;
  double hard_;
  Difficulty measure_;
  bool is_staggered_;
};

std::unique_ptr<Schedule> make(const OptionValues& options) { return std::make_unique<Context>(options); }

Status validate(const OptionValues& options) {
  if (options.numbers.at("min") > options.numbers.at("max"))
    return Error{ErrorCode::usage, "option 'min' of 'context' is above 'max'"};
  if (options.numbers.at("easy") > options.numbers.at("hard"))
    return Error{ErrorCode::usage, "option 'easy' of 'context' is above 'hard'"};
  return {};
}

}  // namespace

Method schedule_context() {
  return {.info = {.name = "context",
                   .summary = "as every; the share that a layer uses follows how spread its attention is",
                   .source = "this project; entropy of attention as in the entropy-driven allocators",
                   .options = {period_option(),
                               real_option("min", "0.5", {0.1, 1}, "share of its blocks that an easy layer uses"),
                               real_option("max", "1", {0.1, 1}, "share of its blocks that a hard layer uses"),
                               real_option("easy", "0.2", {0, 1}, "difficulty at which min is used"),
                               real_option("hard", "0.8", {0, 1}, "difficulty from which max is used"),
                               choice_option("measure", {"entropy", "error"},
                                             "entropy of the attention, or attention outside of the best min rows"),
                               stagger_option()}},
          .validate = validate,
          .make_schedule = make};
}

}  // namespace kedge::eviction
