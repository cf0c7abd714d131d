// Frequent words of RULER: Hsieh et al. 2024, arXiv:2404.06654, section 3.3. Frequencies fall as 1 / rank^alpha (Zeta
// distribution); the words are the user's text's.
#include <algorithm>
#include <cmath>

#include "eval/draft.h"
#include "eval/grid.h"
#include "eval/vocabulary.h"

namespace kedge::eval {
namespace {

constexpr size_t kAsked = 3;
constexpr size_t kRanks = 50;  // words with a frequency of their own; every further one appears once
constexpr std::string_view kOpening =
    "Read the following coded text and track the frequency of each coded word. Find the three words that appear most "
    "frequently.\n";

// rank^alpha from products and square roots, which are the same on every machine; pow() is not.
double power(double rank, std::string_view alpha) {
  const double root = std::sqrt(rank);
  if (alpha == "1.5")
    return rank * root;
  if (alpha == "2.5")
    return rank * rank * root;
  return alpha == "3.0" ? rank * rank * rank : rank * rank;
}

class FrequentWords : public Task {
 public:
  FrequentWords(const TaskRequest& request, std::vector<std::string> words)
      : request_(request), words_(std::move(words)), grid_("fwe", request, false) {
    for (size_t rank = 1; rank <= kRanks; ++rank)
      shares_.push_back(1 / power(static_cast<double>(rank), word(request, "alpha")));
    double sum = 0;
    for (const double share : shares_)
      sum += share;
    for (double& share : shares_)
      share /= sum;
  }

  int64_t n_samples() const override { return grid_.size(); }

  Result<Sample> sample(int64_t index) override {
    const Place place = grid_.at(index);
    Random random(request_.seed, place.id);
    const std::vector<std::string> order = draw_words(words_, words_.size(), kAsked, random);
    const uint64_t shuffle_seed = random.next();
    Sample sample = Grid::sample(place);
    sample.questions.push_back(
        {.text = "\nQuestion: What are the three most frequently appearing words in the above coded text?\nAnswer: "
                 "According to the coded text above, the three most frequently appearing words are:",
         .answers = {order.begin(), order.begin() + kAsked},
         .metric = "contains_all",
         .max_tokens = 32,
         .stop_at_newline = false});
    const int64_t n_tokens = room(request_.tokenizer, place.length, sample.questions);
    std::string problem;
    sample.context = fit_entries(request_.tokenizer, n_tokens, tokens_per_entry(order), [&](EntryCounts entries) {
      Random mixing(shuffle_seed, "order");
      return coded_text(order, entries, mixing, problem);
    });
    if (sample.context.empty() && problem.empty())
      problem = "no coded text of exactly " + std::to_string(std::max<int64_t>(n_tokens, 0)) + " tokens was found";
    if (!problem.empty())
      return usage("fwe: length " + std::to_string(place.length) + ": " + problem);
    return sample;
  }

 private:
  double tokens_per_entry(const std::vector<std::string>& order) const {
    std::string text;
    double tokens = 0;
    for (size_t rank = 0; rank < kRanks; ++rank)
      tokens += shares_[rank] * static_cast<double>(request_.tokenizer.tokenize("a " + order[rank]).size() -
                                                    request_.tokenizer.tokenize("a").size());
    return std::max(tokens, 0.5);
  }

  Draft coded_text(const std::vector<std::string>& order, EntryCounts entries, Random& random,
                   std::string& problem) const {
    std::vector<const std::string*> mixed;
    std::vector<int64_t> counts;
    for (size_t rank = 0; rank < kRanks; ++rank) {
      counts.push_back(static_cast<int64_t>(shares_[rank] * static_cast<double>(entries.main)));
      mixed.insert(mixed.end(), static_cast<size_t>(counts.back()), &order[rank]);
    }
    problem.clear();
    // Spare words take the ranks beyond, around and around: none appears as often as the third.
    const auto n_rest = static_cast<int64_t>(order.size() - kRanks);
    const int64_t n_more = std::max<int64_t>(entries.main - static_cast<int64_t>(mixed.size()), 0);
    if (counts[kAsked - 1] <= counts[kAsked] || (n_more + entries.spare) / n_rest + 1 >= counts[kAsked - 1])
      problem = "too short for three words that clearly lead: raise --lengths or lower alpha";
    if (!problem.empty())
      return {};
    for (int64_t i = 0; i < n_more; ++i)
      mixed.push_back(&order[kRanks + static_cast<size_t>(i % n_rest)]);
    random.shuffle(mixed);
    Draft draft;
    draft.text = kOpening;
    draft.slack_begin = draft.text.size();
    for (int64_t i = 0; i < entries.spare; ++i)
      draft.text.append(i == 0 ? "" : " ").append(order[kRanks + static_cast<size_t>((n_more + i) % n_rest)]);
    draft.slack_end = draft.text.size();
    for (const std::string* word : mixed)
      draft.text.append(draft.text.size() == kOpening.size() ? "" : " ").append(*word);
    return draft;
  }

  TaskRequest request_;
  std::vector<std::string> words_;
  std::vector<double> shares_;  // [kRanks], sum 1
  Grid grid_;
};

Result<std::unique_ptr<Task>> make(const TaskRequest& request) {
  const Result<std::string> text = read_task_text(request, "fwe");
  if (!text)
    return text.error();
  std::vector<std::string> words = vocabulary(*text);
  if (words.size() < 3 * kRanks) {
    return usage("fwe: the text has " + std::to_string(words.size()) +
                 " different words of 4 to 12 letters, at least " + std::to_string(3 * kRanks) + " are needed");
  }
  return std::unique_ptr<Task>(std::make_unique<FrequentWords>(request, std::move(words)));
}

}  // namespace

TaskInfo fwe_task() {
  return {.name = "fwe",
          .summary = "names the three most frequent words of a coded text",
          .source = "RULER's frequent words extraction, Hsieh et al. 2024, arXiv:2404.06654",
          .input = "text",
          .options = {{.name = "alpha",
                       .fallback = "2.0",
                       .choices = {"1.5", "2.0", "2.5", "3.0"},
                       .help = "how fast frequencies fall with the rank"}},
          .make = make};
}

}  // namespace kedge::eval
