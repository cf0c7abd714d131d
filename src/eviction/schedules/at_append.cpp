// A row goes as each row comes: a layer that is full drops as many rows with every token as it gets. Nothing waits for
// the next eviction, so that every row of the budget is in use; each token pays for a selection.
#include "eviction/policy.h"

namespace kedge::eviction {
namespace {

class AtAppend final : public Schedule {
 public:
  ScheduleInfo info() const override { return {.after_prompt = true, .between_chunks = true, .every_n = 1}; }
  Cut at_token(const LayerMoment& at) const override { return {.is_due = at.must || at.used > 1, .keep = 1}; }
};

std::unique_ptr<Schedule> make(const OptionValues&) { return std::make_unique<AtAppend>(); }

}  // namespace

Method schedule_at_append() {
  return {.info = {.name = "at-append",
                   .summary = "with every token, as many rows as it brings",
                   .source = "TOVA (arXiv 2401.06104), H2O (arXiv 2306.14048): one in, one out",
                   .options = {}},
          .aliases = {"at_append"},
          .make_schedule = make};
}

}  // namespace kedge::eviction
