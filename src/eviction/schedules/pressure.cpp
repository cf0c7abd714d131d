// By memory pressure: three levels of the store's bytes in use, each with a deeper target, so that the fuller the store
// is, the more goes at once. Below the first level nothing happens. Hysteresis: a cut ends `gap` below the first level,
// and a level does not act again before the store has grown back to it.
#include "eviction/turns.h"

namespace kedge::eviction {
namespace {

class Pressure final : public Schedule {
 public:
  explicit Pressure(const OptionValues& options)
      : n_(static_cast<int>(options.numbers.at("n"))), gap_(options.numbers.at("gap")) {
    at_[0] = options.numbers.at("light");
    at_[1] = options.numbers.at("medium");
    at_[2] = options.numbers.at("heavy");
  }

  ScheduleInfo info() const override {
    return {.after_prompt = true, .between_chunks = true, .every_n = n_, .prompt_keep = target(1)};
  }

  // The first level waits for the layer's turn; the others act at once.
  Cut at_token(const LayerMoment& at) const override {
    int level = 0;
    while (level < 3 && at.pressure >= at_[level])
      ++level;
    if (at.must)
      level = 3;
    return {.is_due = level > 1 || (level == 1 && is_turn(at, true)), .keep = target(level)};
  }

 private:
  double target(int level) const { return level == 0 ? 1.0 : at_[0] - level * gap_; }

  int n_;
  double gap_;
  double at_[3] = {};
};

std::unique_ptr<Schedule> make(const OptionValues& options) { return std::make_unique<Pressure>(options); }

Status validate(const OptionValues& options) {
  const double light = options.numbers.at("light");
  if (light > options.numbers.at("medium") || options.numbers.at("medium") > options.numbers.at("heavy"))
    return Error{ErrorCode::usage, "options 'light', 'medium' and 'heavy' of 'pressure' must not fall"};
  if (light - 3 * options.numbers.at("gap") < 0.1)
    return Error{ErrorCode::usage, "option 'gap' of 'pressure': 'light' - 3 * 'gap' must be at least 0.1"};
  return {};
}

}  // namespace

Method schedule_pressure() {
  return {.info = {.name = "pressure",
                   .summary = "by the share of the budget in use: three levels, each with a deeper target",
                   .source = "memory pressure levels; the deeper target at more pressure is this project's",
                   .options = {period_option(),
                               real_option("light", "0.7", {0.2, 1}, "share in use at which layers are cut in turn"),
                               real_option("medium", "0.85", {0.2, 1}, "share in use at which all are cut at once"),
                               real_option("heavy", "0.95", {0.2, 1}, "share in use at which the cut is deepest"),
                               real_option("gap", "0.05", {0.01, 0.3}, "level k leaves light - k * gap in use")}},
          .validate = validate,
          .make_schedule = make};
}

}  // namespace kedge::eviction
