// A conversation of many turns with questions about early ones, after the idea of LoCoMo (Maharana et al. 2024,
// arXiv:2402.17753); the user passes on pieces of the text and mentions facts, which are made up, between them.
#include <algorithm>

#include "eval/grid.h"
#include "eval/haystack.h"
#include "eval/names.h"

namespace kedge::eval {
namespace {

struct Mention {
  std::string said;
  std::string asked;
  std::string answer_begins;
  std::string answer;
};

Mention make_mention(Names& names, Random& random) {
  const std::string item = names.item();
  switch (random.below(3)) {
    case 0: {
      const std::string city = names.city();
      return {"I keep my " + item + " in " + city + ".", "In which city do I keep my " + item + "?",
              "You keep your " + item + " in", city};
    }
    case 1: {
      const std::string code = names.digits(4);
      return {"The code of my " + item + " is " + code + ".", "What is the code of my " + item + "?",
              "The code of your " + item + " is", code};
    }
    default: {
      const std::string person = names.person();
      return {"I bought my " + item + " from " + person + ".", "From whom did I buy my " + item + "?",
              "You bought your " + item + " from", person};
    }
  }
}

std::string reply(Random& random) {
  static constexpr std::string_view replies[] = {"I see. Please go on.", "Thank you, I have read it.", "Understood.",
                                                 "Noted. What comes next?", "All right, go ahead."};
  return "Assistant: " + std::string(random.pick(replies)) + "\n\nUser:";
}

class Dialogue : public Task {
 public:
  Dialogue(const TaskRequest& request, Haystack haystack)
      : request_(request),
        facts_(number(request, "facts")),
        questions_(number(request, "questions")),
        turn_tokens_(number(request, "turn_tokens")),
        haystack_(std::move(haystack)),
        grid_("dialogue", request, false) {}

  int64_t n_samples() const override { return grid_.size(); }

  Result<Sample> sample(int64_t index) override {
    const Place place = grid_.at(index);
    Random random(request_.seed, place.id);
    Names names(random);
    std::vector<Mention> mentions;
    for (int64_t i = 0; i < facts_; ++i)
      mentions.push_back(make_mention(names, random));
    Sample sample = Grid::sample(place);
    for (int64_t i = 0; i < questions_; ++i) {
      const Mention& asked = mentions[static_cast<size_t>(i)];
      sample.questions.push_back({.text = "\n\nUser: " + asked.asked + "\n\nAssistant: " + asked.answer_begins,
                                  .answers = {asked.answer},
                                  .metric = "contains",
                                  .max_tokens = 12});
    }
    HaystackWish wish{.n_tokens = room(request_.tokenizer, place.length, sample.questions),
                      .opening = "User: Hello! I will read a text to you, and tell you about myself.\n\nAssistant: " +
                                 std::string("That is fine. Go ahead.\n\nUser: ")};
    const int64_t n_turns = std::max<int64_t>(wish.n_tokens / turn_tokens_, facts_ + 1);
    wish.inserts = inserts(mentions, n_turns, random);
    Result<std::vector<Token>> context = haystack_.context(wish, random);
    if (!context)
      return context.error();
    sample.context = *std::move(context);
    return sample;
  }

 private:
  // Turns at even distances; in some of them, drawn, a fact is mentioned. The last word is the assistant's.
  static std::vector<Insert> inserts(std::vector<Mention> mentions, int64_t n_turns, Random& random) {
    std::vector<int64_t> places;
    for (int64_t i = 1; i < n_turns; ++i)
      places.push_back(i);
    random.shuffle(places);
    std::vector<Insert> list;
    for (size_t i = 0; i < places.size(); ++i) {
      std::string turn = reply(random);
      if (i < mentions.size())
        turn += " " + mentions[i].said + "\n\n" + reply(random);
      list.push_back({.text = std::move(turn),
                      .depth = static_cast<double>(places[i]) / static_cast<double>(n_turns),
                      .paragraph = true});
    }
    list.push_back({.text = "Assistant: I have read all of it.", .depth = 1, .paragraph = true});
    std::ranges::stable_sort(list, {}, &Insert::depth);
    return list;
  }

  TaskRequest request_;
  int64_t facts_;
  int64_t questions_;
  int64_t turn_tokens_;
  Haystack haystack_;
  Grid grid_;
};

Result<std::unique_ptr<Task>> make(const TaskRequest& request) {
  const int64_t facts = number(request, "facts"), questions = number(request, "questions");
  if (questions > facts) {
    return usage("dialogue:questions=" + std::to_string(questions) + ": there are only facts=" + std::to_string(facts) +
                 " to ask about");
  }
  Result<Haystack> haystack = Haystack::make(request, "dialogue");
  if (!haystack)
    return haystack.error();
  return std::unique_ptr<Task>(std::make_unique<Dialogue>(request, *std::move(haystack)));
}

}  // namespace

TaskInfo dialogue_task() {
  return {.name = "dialogue",
          .summary = "remembers what was said in earlier turns of a conversation",
          .source = "after LoCoMo, Maharana et al. 2024, arXiv:2402.17753",
          .input = "text",
          .options =
              {{.name = "facts", .fallback = "4", .min = 1, .max = 40, .help = "facts the user mentions"},
               {.name = "questions", .fallback = "2", .min = 1, .max = 40, .help = "how many are asked about"},
               {.name = "turn_tokens", .fallback = "100", .min = 20, .max = 100000, .help = "length of a turn, about"}},
          .make = make};
}

}  // namespace kedge::eval
