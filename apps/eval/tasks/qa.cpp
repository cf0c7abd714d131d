// Question answering over several documents, after RULER's: Hsieh et al. 2024, arXiv:2404.06654, section 3.4. RULER
// takes facts and distractors from SQuAD and HotpotQA; here the documents are the user's text and the facts are made
// up, so that no model knows them beforehand.
#include <algorithm>

#include "eval/grid.h"
#include "eval/haystack.h"
#include "eval/names.h"

namespace kedge::eval {
namespace {

struct Fact {
  std::vector<std::string> sentences;  // one a hop
  std::string question;
  std::string answer_begins;
  std::string answer;
};

Fact make_fact(Names& names, int64_t hops) {
  const std::string person = names.person(), city = names.city();
  if (hops == 1) {
    return {.sentences = {person + " lives in " + city + "."},
            .question = "In which city does " + person + " live?",
            .answer_begins = person + " lives in",
            .answer = city};
  }
  const std::string company = names.company();
  return {.sentences = {person + " works for " + company + ".", "The office of " + company + " is in " + city + "."},
          .question = "In which city is the office of the company that " + person + " works for?",
          .answer_begins = person + " works for a company whose office is in",
          .answer = city};
}

class QuestionAnswering : public Task {
 public:
  QuestionAnswering(const TaskRequest& request, Haystack haystack)
      : request_(request),
        facts_(number(request, "facts")),
        hops_(number(request, "hops")),
        document_tokens_(number(request, "document_tokens")),
        haystack_(std::move(haystack)),
        grid_("qa", request, false) {}

  int64_t n_samples() const override { return grid_.size(); }

  Result<Sample> sample(int64_t index) override {
    const Place place = grid_.at(index);
    Random random(request_.seed, place.id);
    Names names(random);
    std::vector<Fact> facts;
    for (int64_t i = 0; i < facts_; ++i)
      facts.push_back(make_fact(names, hops_));
    const Fact& asked = facts[0];
    Sample sample = Grid::sample(place);
    sample.questions.push_back({.text = "\n\nQuestion: " + asked.question + "\nAnswer: " + asked.answer_begins,
                                .answers = {asked.answer},
                                .metric = "contains",
                                .max_tokens = 12});
    HaystackWish wish{.n_tokens = room(request_.tokenizer, place.length, sample.questions),
                      .opening = "Answer the question based on the given documents.\n\nDocument 1:\n"};
    wish.inserts = inserts(facts, std::max<int64_t>(wish.n_tokens / document_tokens_, 1), random);
    Result<std::vector<Token>> context = haystack_.context(wish, random);
    if (!context)
      return context.error();
    sample.context = *std::move(context);
    return sample;
  }

 private:
  // Headings at even distances, every sentence of a fact somewhere in a document drawn for it.
  static std::vector<Insert> inserts(const std::vector<Fact>& facts, int64_t n_documents, Random& random) {
    std::vector<Insert> list;
    const auto depth = [n_documents](int64_t document, double within) {
      return (static_cast<double>(document) + within) / static_cast<double>(n_documents);
    };
    for (int64_t i = 1; i < n_documents; ++i)
      list.push_back({.text = "Document " + std::to_string(i + 1) + ":", .depth = depth(i, 0), .paragraph = true});
    for (const Fact& fact : facts) {
      for (const std::string& sentence : fact.sentences) {
        const int64_t document = random.below(n_documents);
        const double within = 0.1 + static_cast<double>(random.below(801)) / 1000;
        list.push_back({.text = sentence, .depth = depth(document, within)});
      }
    }
    std::ranges::stable_sort(list, {}, &Insert::depth);
    return list;
  }

  TaskRequest request_;
  int64_t facts_;
  int64_t hops_;
  int64_t document_tokens_;
  Haystack haystack_;
  Grid grid_;
};

Result<std::unique_ptr<Task>> make(const TaskRequest& request) {
  Result<Haystack> haystack = Haystack::make(request, "qa");
  if (!haystack)
    return haystack.error();
  return std::unique_ptr<Task>(std::make_unique<QuestionAnswering>(request, *std::move(haystack)));
}

}  // namespace

TaskInfo qa_task() {
  return {.name = "qa",
          .summary = "answers a question from facts spread over several documents",
          .source = "after RULER's question answering, Hsieh et al. 2024, arXiv:2404.06654",
          .input = "text",
          .options = {{.name = "facts",
                       .fallback = "4",
                       .min = 1,
                       .max = 40,
                       .help = "facts of one kind in the documents; one is asked for"},
                      {.name = "hops",
                       .fallback = "1",
                       .min = 1,
                       .max = 2,
                       .help = "sentences, in documents of their own, that the answer follows from"},
                      {.name = "document_tokens",
                       .fallback = "160",
                       .min = 20,
                       .max = 100000,
                       .help = "length of a document, about"}},
          .make = make};
}

}  // namespace kedge::eval
