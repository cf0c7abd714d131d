// Common words of RULER: Hsieh et al. 2024, arXiv:2404.06654, section 3.3; the words are the user's text's.
#include <algorithm>

#include "eval/draft.h"
#include "eval/grid.h"
#include "eval/vocabulary.h"

namespace kedge::eval {
namespace {

constexpr std::string_view kOpening =
    "Below is a numbered list of words. In these words, some appear more often than others. Memorize the ones that "
    "appear most often.\n";

struct Counts {
  int64_t common;   // words that are asked for
  int64_t repeats;  // of each of them; 0: as many as make half the list
  int64_t others;   // repeats of every other word
};

class CommonWords : public Task {
 public:
  CommonWords(const TaskRequest& request, Counts counts, std::vector<std::string> words)
      : request_(request), counts_(counts), words_(std::move(words)), grid_("cwe", request, false) {}

  int64_t n_samples() const override { return grid_.size(); }

  Result<Sample> sample(int64_t index) override {
    const Place place = grid_.at(index);
    Random random(request_.seed, place.id);
    const std::vector<std::string> order =
        draw_words(words_, words_.size(), static_cast<size_t>(counts_.common), random);
    const uint64_t shuffle_seed = random.next();
    Sample sample = Grid::sample(place);
    const std::string n = std::to_string(counts_.common);
    sample.questions.push_back({.text = "\nQuestion: What are the " + n +
                                        " most common words in the above list?\nAnswer: The top " + n +
                                        " words that appear most often in the list are:",
                                .answers = {order.begin(), order.begin() + counts_.common},
                                .metric = "contains_all",
                                .max_tokens = 16 + 8 * static_cast<int>(counts_.common),
                                .stop_at_newline = false});
    const int64_t n_tokens = room(request_.tokenizer, place.length, sample.questions);
    std::string problem;
    sample.context = fit_entries(request_.tokenizer, n_tokens, tokens_per_entry(order), [&](EntryCounts entries) {
      Random mixing(shuffle_seed, "order");
      return list(order, entries, mixing, problem);
    });
    if (sample.context.empty() && problem.empty())
      problem = "no list of exactly " + std::to_string(std::max<int64_t>(n_tokens, 0)) + " tokens was found";
    if (!problem.empty())
      return usage("cwe: length " + std::to_string(place.length) + ": " + problem);
    return sample;
  }

 private:
  double tokens_per_entry(const std::vector<std::string>& order) const {
    std::string text;
    const size_t n = std::min<size_t>(order.size(), 100);
    for (size_t i = 0; i < n; ++i)
      text += std::to_string(100 + i) + ". " + order[i] + " ";
    return static_cast<double>(request_.tokenizer.tokenize(text).size()) / static_cast<double>(n);
  }

  // The spare entries, all different, then the list proper. `problem` becomes what makes the list impossible.
  Draft list(const std::vector<std::string>& order, EntryCounts entries, Random& random, std::string& problem) const {
    const int64_t repeats = counts_.repeats > 0 ? counts_.repeats : entries.main / 2 / counts_.common;
    const int64_t n_others = std::max<int64_t>(entries.main - repeats * counts_.common, 0);
    const int64_t n_words = counts_.common + (n_others + counts_.others - 1) / counts_.others + entries.spare;
    problem.clear();
    if (repeats <= counts_.others || repeats * counts_.common > entries.main) {
      problem = "too short for " + std::to_string(counts_.common) + " common words that appear more than " +
                std::to_string(counts_.others) + " times: raise --lengths, or lower common, repeats or others";
    } else if (n_words > static_cast<int64_t>(order.size())) {
      problem = "the text has " + std::to_string(order.size()) +
                " different words of 4 to 12 letters, the list needs " + std::to_string(n_words) +
                ": give a longer text, or raise others";
    }
    if (!problem.empty())
      return {};
    std::vector<const std::string*> mixed;
    for (int64_t i = 0; i < repeats * counts_.common; ++i)
      mixed.push_back(&order[static_cast<size_t>(i % counts_.common)]);
    for (int64_t i = 0; i < n_others; ++i)
      mixed.push_back(&order[static_cast<size_t>(counts_.common + i / counts_.others)]);
    random.shuffle(mixed);
    Draft draft;
    draft.text = kOpening;
    draft.slack_begin = draft.text.size();
    int64_t line = 0;
    for (int64_t i = 0; i < entries.spare; ++i, ++line)
      append(draft.text, line, order[order.size() - 1 - static_cast<size_t>(i)]);
    draft.slack_end = draft.text.size();
    for (const std::string* word : mixed)
      append(draft.text, line++, *word);
    return draft;
  }

  static void append(std::string& text, int64_t line, const std::string& word) {
    text.append(line == 0 ? "" : " ").append(std::to_string(line + 1)).append(". ").append(word);
  }

  TaskRequest request_;
  Counts counts_;
  std::vector<std::string> words_;
  Grid grid_;
};

Result<std::unique_ptr<Task>> make(const TaskRequest& request) {
  const Counts counts = {
      .common = number(request, "common"), .repeats = number(request, "repeats"), .others = number(request, "others")};
  const Result<std::string> text = read_task_text(request, "cwe");
  if (!text)
    return text.error();
  std::vector<std::string> words = vocabulary(*text);
  if (static_cast<int64_t>(words.size()) < 4 * counts.common) {
    return usage("cwe: the text has " + std::to_string(words.size()) +
                 " different words of 4 to 12 letters, at least " + std::to_string(4 * counts.common) + " are needed");
  }
  return std::unique_ptr<Task>(std::make_unique<CommonWords>(request, counts, std::move(words)));
}

}  // namespace

TaskInfo cwe_task() {
  return {.name = "cwe",
          .summary = "names the words that a long list repeats most",
          .source = "RULER's common words extraction, Hsieh et al. 2024, arXiv:2404.06654",
          .input = "text",
          .options = {{.name = "common", .fallback = "5", .min = 1, .max = 50, .help = "words that are asked for"},
                      {.name = "repeats",
                       .fallback = "0",
                       .min = 0,
                       .max = 1000,
                       .help = "times each of them appears; 0: as often as makes half of the list"},
                      {.name = "others", .fallback = "2", .min = 1, .max = 100, .help = "times every other word does"}},
          .make = make};
}

}  // namespace kedge::eval
