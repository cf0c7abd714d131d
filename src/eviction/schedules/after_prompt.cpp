// Once, when the prompt has been read; afterwards only when the next token would not fit.
#include "eviction/policy.h"

namespace kedge::eviction {
namespace {

class AfterPrompt final : public Schedule {
 public:
  ScheduleInfo info() const override { return {.after_prompt = true, .between_chunks = false, .every_n = 0}; }
};

std::unique_ptr<Schedule> make(const OptionValues&) { return std::make_unique<AfterPrompt>(); }

}  // namespace

Method schedule_after_prompt() {
  return {.info = {.name = "after-prompt",
                   .summary = "once after the prompt; later only when the next token would not fit",
                   .source = "SnapKV and most published methods",
                   .options = {}},
          .aliases = {"after_prompt"},
          .make_schedule = make};
}

}  // namespace kedge::eviction
