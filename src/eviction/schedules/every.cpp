// After the prompt, between its chunks, and every n generated tokens. 64 is AnDPro's anchor refresh (128 was seen to be
// too long).
#include "eviction/options.h"

namespace kedge::eviction {
namespace {

class Every final : public Schedule {
 public:
  explicit Every(int n) : n_(n) {}
  ScheduleInfo info() const override { return {.after_prompt = true, .between_chunks = true, .every_n = n_}; }

 private:
  int n_;
};

std::unique_ptr<Schedule> make(const OptionValues& options) {
  return std::make_unique<Every>(static_cast<int>(options.numbers.at("n")));
}

}  // namespace

Method schedule_every() {
  return {.info = {.name = "every",
                   .summary = "after the prompt, between its chunks and every n generated tokens",
                   .source = "AnDPro's refresh of the anchor",
                   .options = {integer_option("n", "64", {1, 65536}, "generated tokens between two evictions")}},
          .make_schedule = make};
}

}  // namespace kedge::eviction
