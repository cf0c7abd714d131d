// After every chunk of the prompt and at its end; while decoding only when the next token would not fit.
#include "eviction/policy.h"

namespace kedge::eviction {
namespace {

class BetweenChunks final : public Schedule {
 public:
  ScheduleInfo info() const override { return {.after_prompt = true, .between_chunks = true, .every_n = 0}; }
};

std::unique_ptr<Schedule> make(const OptionValues&) { return std::make_unique<BetweenChunks>(); }

}  // namespace

Method schedule_between_chunks() {
  return {.info = {.name = "between-chunks",
                   .summary = "after every chunk of the prompt; later only when the next token would not fit",
                   .source = "prompts longer than the budget, read in chunks",
                   .options = {}},
          .aliases = {"between_chunks"},
          .make_schedule = make};
}

}  // namespace kedge::eviction
