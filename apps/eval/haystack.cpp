#include "eval/haystack.h"

#include <algorithm>
#include <cmath>

#include "eval/grid.h"

namespace kedge::eval {
namespace {

// Times a stretch is lengthened or shortened until its tokens, counted together, are as many as asked.
constexpr int kMaxSteps = 64;

}  // namespace

// Sentences end - n .. end - 1, counted around the text's end.
struct Haystack::Stretch {
  size_t end = 0;
  size_t n = 0;
  size_t n_all = 0;
  size_t at(size_t i) const { return (end + n_all - n + i) % n_all; }
};

Result<Haystack> Haystack::make(const TaskRequest& request, const std::string& name) {
  Result<std::string> text = read_task_text(request, name);
  if (!text)
    return text.error();
  return Haystack(name, *std::move(text), request.tokenizer);
}

Haystack::Haystack(std::string name, std::string text, Tokenizer tokenizer)
    : name_(std::move(name)),
      text_(std::move(text)),
      sentences_(split_sentences(text_)),
      counts_(sentences_.size(), -1),
      tokenizer_(std::move(tokenizer)) {}

std::string_view Haystack::sentence(size_t index) const {
  const Sentence& s = sentences_[index];
  return std::string_view(text_).substr(s.body, s.end - s.body);
}

std::string_view Haystack::lead(size_t index) const {
  const Sentence& s = sentences_[index];
  return s.body == s.begin ? std::string_view(" ") : std::string_view(text_).substr(s.begin, s.body - s.begin);
}

int64_t Haystack::n_tokens(size_t index) {
  if (counts_[index] < 0) {
    const Sentence& s = sentences_[index];
    counts_[index] =
        static_cast<int32_t>(tokenizer_.tokenize(std::string_view(text_).substr(s.begin, s.end - s.begin)).size());
  }
  return counts_[index];
}

Draft Haystack::assemble(const HaystackWish& wish, const Stretch& stretch) {
  std::vector<int64_t> ends = {0};  // tokens before each boundary between sentences, and after the last
  for (size_t i = 0; i < stretch.n; ++i)
    ends.push_back(ends.back() + n_tokens(stretch.at(i)));
  int64_t fixed = static_cast<int64_t>(tokenizer_.tokenize(wish.opening).size());
  for (const Insert& insert : wish.inserts)
    fixed += static_cast<int64_t>(tokenizer_.tokenize(" " + insert.text).size());
  const int64_t kept = std::max<int64_t>(wish.n_tokens - fixed, 0);
  const int64_t lost = ends.back() - kept;  // by the first sentence
  std::vector<std::vector<const Insert*>> at(stretch.n + 1);
  for (const Insert& insert : wish.inserts) {
    const double wanted = insert.depth * static_cast<double>(kept);
    const auto distance = [&](int64_t end) {
      return std::abs(static_cast<double>(std::max<int64_t>(end - lost, 0)) - wanted);
    };
    auto nearest = std::ranges::lower_bound(ends, lost + static_cast<int64_t>(wanted));
    if (nearest == ends.end() || (nearest != ends.begin() && distance(nearest[-1]) <= distance(*nearest)))
      --nearest;
    if (wanted <= 0)
      nearest = ends.begin();
    at[static_cast<size_t>(nearest - ends.begin())].push_back(&insert);
  }
  Draft draft;
  draft.text = wish.opening;
  bool slack_ends = false;  // at the first insert within the stretch
  for (size_t i = 0; i <= stretch.n; ++i) {
    const size_t next = stretch.at(i);  // of the boundary after the last: the sentence that the text has there
    slack_ends = slack_ends || (i > 0 && !at[i].empty());
    for (const Insert* insert : at[i]) {
      if (!draft.text.empty() && draft.text.size() != wish.opening.size())
        draft.text += insert->paragraph ? "\n\n" : lead(next);
      draft.text += insert->text;
    }
    if (i == stretch.n)
      break;
    const Sentence& s = sentences_[next];
    if (i == 0) {
      draft.text += at[i].empty() ? "" : "\n";
      draft.slack_begin = draft.text.size();
    } else if (!at[i].empty() && s.begin == s.body) {
      draft.text += ' ';  // a sentence that begins without white space
    }
    const size_t begin = i == 0 ? s.body : s.begin;
    draft.text += std::string_view(text_).substr(begin, s.end - begin);
    if (!slack_ends)
      draft.slack_end = draft.text.size();
  }
  return draft;
}

Error Haystack::too_short(int64_t most, int64_t wanted) const {
  return usage(name_ + ": the text is too short: with all of its " + std::to_string(sentences_.size()) +
               " sentences the context has " + std::to_string(most) + " tokens, not " + std::to_string(wanted) +
               ": give a longer one with -f");
}

Result<std::vector<Token>> Haystack::context(const HaystackWish& wish, Random& random) {
  int64_t n = static_cast<int64_t>(tokenizer_.tokenize(wish.opening).size());
  for (const Insert& insert : wish.inserts)
    n += static_cast<int64_t>(tokenizer_.tokenize(" " + insert.text).size());
  if (n >= wish.n_tokens) {
    return usage(name_ + ": what is asked for takes " + std::to_string(n) + " tokens beside the question, and only " +
                 std::to_string(std::max<int64_t>(wish.n_tokens, 0)) + " are left of the length: raise --lengths");
  }
  Stretch stretch{.end = static_cast<size_t>(random.below(static_cast<int64_t>(sentences_.size()))),
                  .n = 0,
                  .n_all = sentences_.size()};
  while (n < wish.n_tokens && stretch.n < stretch.n_all) {
    ++stretch.n;
    n += n_tokens(stretch.at(0));
  }
  for (int step = 0; step < kMaxSteps; ++step) {
    const Draft draft = assemble(wish, stretch);
    std::vector<Token> tokens = tokenizer_.tokenize(draft.text);
    const auto n_draft = static_cast<int64_t>(tokens.size());
    if (n_draft < wish.n_tokens) {
      if (stretch.n == stretch.n_all)
        return too_short(n_draft, wish.n_tokens);
      for (auto missing = wish.n_tokens - n_draft; missing > 0 && stretch.n < stretch.n_all;
           missing -= n_tokens(stretch.at(0)))
        ++stretch.n;
      continue;
    }
    tokens = cut_to(tokenizer_, draft, std::move(tokens), wish.n_tokens);
    if (!tokens.empty())
      return tokens;
    // Too long by more than what stands before the first insert: shorter, and at another end, for it may go back and
    // forth between too long and too short.
    int64_t excess = n_draft - wish.n_tokens;
    do {
      excess -= n_tokens(stretch.at(0));
      --stretch.n;
    } while (stretch.n > 1 && excess > n_tokens(stretch.at(0)));
    stretch.n = std::max<size_t>(stretch.n, 1);
    stretch.end = (stretch.end + 1) % stretch.n_all;
  }
  return Error{.code = ErrorCode::failed,
               .message = name_ + ": no stretch of the text was found that has exactly " +
                          std::to_string(wish.n_tokens) + " tokens"};
}

}  // namespace kedge::eval
