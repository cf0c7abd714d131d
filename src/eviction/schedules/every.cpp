// After the prompt, between its chunks, and every n generated tokens. 64 is AnDPro's anchor refresh (128 was seen to be
// too long: with 640 rows a head the KL divergence rose by a tenth, .0042 +- .0009). An eviction reads all rows of a
// layer and moves most, so that where there are many it waits for a share of them instead: 6 % of 3,300 rows are 198
// tokens. A layer is evicted when more than `high` of its part would be in use then, down to `low`.
#include "eviction/turns.h"

namespace kedge::eviction {
namespace {

class Every final : public Schedule {
 public:
  explicit Every(const OptionValues& options)
      : n_(static_cast<int>(options.numbers.at("n"))),
        share_(options.numbers.at("share")),
        high_(options.numbers.at("high")),
        low_(options.numbers.at("low")),
        is_staggered_(options.choices.at("stagger") == "on") {}

  ScheduleInfo info() const override {
    return {.after_prompt = true, .between_chunks = true, .every_n = n_, .every_share = share_};
  }

  Cut at_token(const LayerMoment& at) const override {
    return {.is_due = at.must || (is_turn(at, is_staggered_) && at.used > high_), .keep = low_};
  }

 private:
  int n_;
  double share_;
  double high_;
  double low_;
  bool is_staggered_;
};

std::unique_ptr<Schedule> make(const OptionValues& options) { return std::make_unique<Every>(options); }

Status validate(const OptionValues& options) {
  if (options.numbers.at("low") <= options.numbers.at("high"))
    return {};
  return Error{ErrorCode::usage, "option 'low' of 'every' is above 'high'"};
}

}  // namespace

Method schedule_every() {
  return {.info = {.name = "every",
                   .summary = "after the prompt, between its chunks and every n generated tokens",
                   .source = "AnDPro's refresh of the anchor",
                   .options = {period_option(),
                               real_option("share", "0", {0, 0.25}, "of a head's rows, if that is more than n"),
                               real_option("high", "1", {0.1, 1}, "share that has to be passed before rows go"),
                               real_option("low", "1", {0.1, 1}, "share that is in use afterwards; at most high"),
                               stagger_option()}},
          .validate = validate,
          .make_schedule = make};
}

}  // namespace kedge::eviction
