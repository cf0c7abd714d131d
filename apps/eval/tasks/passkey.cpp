// Passkey retrieval: Mohtashami and Jaggi 2023, "Landmark Attention", arXiv:2305.16300, with the user's text as filler.
#include "eval/grid.h"
#include "eval/haystack.h"
#include "eval/names.h"

namespace kedge::eval {
namespace {

class Passkey : public Task {
 public:
  Passkey(const TaskRequest& request, Haystack haystack)
      : request_(request), haystack_(std::move(haystack)), grid_("passkey", request, true) {}

  int64_t n_samples() const override { return grid_.size(); }

  Result<Sample> sample(int64_t index) override {
    const Place place = grid_.at(index);
    Random random(request_.seed, place.id);
    const std::string key = Names(random).digits(5);
    Sample sample = Grid::sample(place);
    sample.questions.push_back(
        {.text =
             "\n\nQuestion: What is the secret pass key mentioned in the text above?\nAnswer: The secret pass key is",
         .answers = {key},
         .metric = "contains",
         .max_tokens = 12});
    const HaystackWish wish{.n_tokens = room(request_.tokenizer, place.length, sample.questions),
                            .inserts = {{.text = "\n\nThe secret pass key is " + key + ". Remember it: " + key +
                                                 " is the secret pass key.\n\n",
                                         .depth = place.depth}}};
    Result<std::vector<Token>> context = haystack_.context(wish, random);
    if (!context)
      return context.error();
    sample.context = *std::move(context);
    return sample;
  }

 private:
  TaskRequest request_;
  Haystack haystack_;
  Grid grid_;
};

Result<std::unique_ptr<Task>> make(const TaskRequest& request) {
  Result<Haystack> haystack = Haystack::make(request, "passkey");
  if (!haystack)
    return haystack.error();
  return std::unique_ptr<Task>(std::make_unique<Passkey>(request, *std::move(haystack)));
}

}  // namespace

TaskInfo passkey_task() {
  return {.name = "passkey",
          .summary = "finds a five-digit number that was put into the text",
          .source = "Mohtashami and Jaggi 2023, arXiv:2305.16300",
          .input = "text",
          .uses_depth = true,
          .make = make};
}

}  // namespace kedge::eval
