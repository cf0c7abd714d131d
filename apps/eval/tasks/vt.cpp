// Variable tracking of RULER: Hsieh et al. 2024, arXiv:2404.06654, section 3.2; the filler is the user's text.
#include <algorithm>

#include "eval/grid.h"
#include "eval/haystack.h"
#include "eval/names.h"

namespace kedge::eval {
namespace {

class VariableTracking : public Task {
 public:
  VariableTracking(const TaskRequest& request, Haystack haystack)
      : request_(request),
        chains_(number(request, "chains")),
        hops_(number(request, "hops")),
        haystack_(std::move(haystack)),
        grid_("vt", request, false) {}

  int64_t n_samples() const override { return grid_.size(); }

  Result<Sample> sample(int64_t index) override {
    const Place place = grid_.at(index);
    Random random(request_.seed, place.id);
    Names names(random);
    Question question{.metric = "contains_all"};
    std::string asked;
    std::vector<Insert> inserts;
    for (int64_t chain = 0; chain < chains_; ++chain) {
      std::vector<double> depths;
      for (int64_t hop = 0; hop <= hops_; ++hop)
        depths.push_back(static_cast<double>(random.below(10001)) / 10000);
      std::ranges::sort(depths);  // a variable is assigned after the one it takes its value from
      std::string value = names.digits(5);
      if (chain == 0)
        asked = value;
      for (const double depth : depths) {
        const std::string variable = names.variable();
        inserts.push_back({.text = "VAR " + variable + " = " + value + ".", .depth = depth});
        value = "VAR " + variable;
        if (chain == 0)
          question.answers.push_back(variable);
      }
    }
    std::ranges::stable_sort(inserts, {}, &Insert::depth);
    question.text = "\nQuestion: Find all variables that are assigned the value " + asked +
                    " in the text above.\nAnswer: According to the chain of variable assignments in the text above, " +
                    std::to_string(hops_ + 1) + " variables are assigned the value " + asked + ", they are: VAR";
    question.max_tokens = 16 + 10 * static_cast<int>(hops_ + 1);
    Sample sample = Grid::sample(place);
    sample.questions.push_back(std::move(question));
    const HaystackWish wish{.n_tokens = room(request_.tokenizer, place.length, sample.questions),
                            .opening =
                                "Memorize and track the chain(s) of variable assignments hidden in the "
                                "following text.\n",
                            .inserts = std::move(inserts)};
    Result<std::vector<Token>> context = haystack_.context(wish, random);
    if (!context)
      return context.error();
    sample.context = *std::move(context);
    return sample;
  }

 private:
  TaskRequest request_;
  int64_t chains_;
  int64_t hops_;
  Haystack haystack_;
  Grid grid_;
};

Result<std::unique_ptr<Task>> make(const TaskRequest& request) {
  Result<Haystack> haystack = Haystack::make(request, "vt");
  if (!haystack)
    return haystack.error();
  return std::unique_ptr<Task>(std::make_unique<VariableTracking>(request, *std::move(haystack)));
}

}  // namespace

TaskInfo vt_task() {
  return {.name = "vt",
          .summary = "follows a value through assignments that are spread over the text",
          .source = "RULER's variable tracking, Hsieh et al. 2024, arXiv:2404.06654",
          .input = "text",
          .options = {{.name = "chains", .fallback = "1", .min = 1, .max = 32, .help = "chains; one is asked for"},
                      {.name = "hops", .fallback = "4", .min = 1, .max = 32, .help = "assignments after the first"}},
          .make = make};
}

}  // namespace kedge::eval
