// For long texts that arrive in a running session: what may stay beside them shrinks over `steps` growing chunks,
// instead of one cut to the smallest share before the text is read. While decoding as `every`.
#include "eviction/turns.h"

namespace kedge::eviction {
namespace {

class Burst final : public Schedule {
 public:
  explicit Burst(const OptionValues& options)
      : n_(static_cast<int>(options.numbers.at("n"))),
        steps_(static_cast<int>(options.numbers.at("steps"))),
        is_staggered_(options.choices.at("stagger") == "on") {}

  ScheduleInfo info() const override {
    return {.after_prompt = true, .between_chunks = true, .every_n = n_, .burst_steps = steps_};
  }
  Cut at_token(const LayerMoment& at) const override {
    return {.is_due = at.must || (is_turn(at, is_staggered_) && at.used > 1), .keep = 1};
  }

 private:
  int n_;
  int steps_;
  bool is_staggered_;
};

std::unique_ptr<Schedule> make(const OptionValues& options) { return std::make_unique<Burst>(options); }

}  // namespace

Method schedule_burst() {
  return {.info = {.name = "burst",
                   .summary = "as every; a long text in a running session tightens the share step by step",
                   .source = "AnDPro's notes on bursts: tighten gradually, not in one cut",
                   .options = {period_option(),
                               integer_option("steps", "4", {1, 64}, "chunks over which the share shrinks"),
                               stagger_option()}},
          .make_schedule = make};
}

}  // namespace kedge::eviction
