// Needle in a haystack, the NIAH family of RULER: Hsieh et al. 2024, arXiv:2404.06654; after G. Kamradt 2023.
#include <cmath>

#include "eval/grid.h"
#include "eval/haystack.h"
#include "eval/names.h"

namespace kedge::eval {
namespace {

struct Options {
  int64_t keys;
  int64_t values;
  int64_t queries;
  NameKind kind;
};

class Needle : public Task {
 public:
  Needle(const TaskRequest& request, Options options, Haystack haystack)
      : request_(request),
        options_(options),
        haystack_(std::move(haystack)),
        grid_("needle", request, options.values * options.queries == 1) {}

  int64_t n_samples() const override { return grid_.size(); }

  Result<Sample> sample(int64_t index) override {
    const Place place = grid_.at(index);
    Random random(request_.seed, place.id);
    Names names(random);
    std::vector<std::string> keys, answers;
    std::vector<std::string> needles;  // those asked for first
    for (int64_t key = 0; key < options_.keys; ++key) {
      keys.push_back(names.draw(options_.kind == NameKind::uuids ? NameKind::uuids : NameKind::words));
      for (int64_t value = 0; value < options_.values; ++value) {
        const std::string drawn = names.draw(options_.kind);
        needles.push_back("One of the special magic " + noun() + "s for " + keys.back() + " is: " + drawn + ".");
        if (key < options_.queries)
          answers.push_back(drawn);
      }
    }
    keys.resize(static_cast<size_t>(options_.queries));
    Sample sample = Grid::sample(place);
    sample.questions.push_back(question(keys, std::move(answers)));
    HaystackWish wish{.n_tokens = room(request_.tokenizer, place.length, sample.questions), .opening = opening()};
    // The first is where the grid wants it, the others at even distances from it; with no such place, anywhere.
    const double first = place.depth >= 0 ? place.depth : static_cast<double>(random.below(1000)) / 1000;
    if (place.depth < 0)
      random.shuffle(needles);
    for (size_t i = 0; i < needles.size(); ++i) {
      const double depth = first + static_cast<double>(i) / static_cast<double>(needles.size());
      wish.inserts.push_back({.text = needles[i], .depth = i == 0 ? first : depth - std::floor(depth)});
    }
    Result<std::vector<Token>> context = haystack_.context(wish, random);
    if (!context)
      return context.error();
    sample.context = *std::move(context);
    return sample;
  }

 private:
  std::string noun() const {
    return options_.kind == NameKind::words ? "word" : options_.kind == NameKind::uuids ? "uuid" : "number";
  }

  std::string opening() const {
    return "Some special magic " + noun() + "s are hidden within the following text. Make sure to memorize them. " +
           "I will quiz you about the " + noun() + "s afterwards.\n";
  }

  Question question(const std::vector<std::string>& keys, std::vector<std::string> answers) const {
    std::string asked;
    for (size_t i = 0; i < keys.size(); ++i)
      asked += (i == 0 ? "" : i + 1 < keys.size() ? ", " : keys.size() > 2 ? ", and " : " and ") + keys[i];
    const bool one = answers.size() == 1;
    Question question;
    const std::string what =
        "the special magic " + noun() + (one ? "" : "s") + " for " + asked + " mentioned in the text above";
    // One answer is begun in the very words of its sentence, so that small models can answer too.
    const std::string begun =
        one ? "One of the special magic " + noun() + "s for " + asked + " is:" : "T" + what.substr(1) + " are:";
    question.text = (one ? "\n\nQuestion: What is " : "\n\nQuestion: What are all ") + what + "?\nAnswer: " + begun;
    question.metric = one ? "contains" : "contains_all";
    const int each = options_.kind == NameKind::uuids ? 40 : 12;  // tokens, for vocabularies that split digits
    question.max_tokens = 8 + each * static_cast<int>(answers.size());
    question.answers = std::move(answers);
    return question;
  }

  TaskRequest request_;
  Options options_;
  Haystack haystack_;
  Grid grid_;
};

Result<std::unique_ptr<Task>> make(const TaskRequest& request) {
  const Options options = {.keys = number(request, "keys"),
                           .values = number(request, "values"),
                           .queries = number(request, "queries"),
                           .kind = name_kind(word(request, "kind"))};
  if (options.queries > options.keys) {
    return usage("needle:queries=" + std::to_string(options.queries) +
                 ": there are only keys=" + std::to_string(options.keys) + " to ask for");
  }
  Result<Haystack> haystack = Haystack::make(request, "needle");
  if (!haystack)
    return haystack.error();
  return std::unique_ptr<Task>(std::make_unique<Needle>(request, options, *std::move(haystack)));
}

}  // namespace

TaskInfo needle_task() {
  return {.name = "needle",
          .summary = "finds values that were put into the text under a key",
          .source = "RULER's NIAH family, Hsieh et al. 2024, arXiv:2404.06654",
          .input = "text",
          .uses_depth = true,
          .options = {{.name = "keys", .fallback = "1", .min = 1, .max = 64, .help = "keys in the text"},
                      {.name = "values", .fallback = "1", .min = 1, .max = 16, .help = "values of each key"},
                      {.name = "queries", .fallback = "1", .min = 1, .max = 16, .help = "keys that are asked for"},
                      {.name = "kind",
                       .fallback = "numbers",
                       .choices = {"words", "numbers", "uuids"},
                       .help = "what the values are; with uuids the keys are too"}},
          .make = make};
}

}  // namespace kedge::eval
