// Contexts of an exact number of tokens: a stretch of the user's text with sentences put into it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "eval/draft.h"
#include "eval/random.h"
#include "eval/sentences.h"
#include "eval/task.h"

namespace kedge::eval {

struct Insert {
  std::string text;
  double depth = 0;  // 0: before the stretch, 1: after it; else at the end of the sentence that is nearest, in tokens
  bool paragraph = false;  // begins a paragraph of its own
};

struct HaystackWish {
  int64_t n_tokens = 0;
  std::string opening;  // what the context begins with
  std::vector<Insert> inserts;
};

class Haystack {
 public:
  // `name` stands before messages. Errors as read_task_text.
  static Result<Haystack> make(const TaskRequest& request, const std::string& name);
  Haystack(std::string name, std::string text, Tokenizer tokenizer);

  // Exactly n_tokens tokens: opening, then a stretch of the text that ends at a sentence drawn from `random` (it passes
  // the text's end and goes on at its beginning, but never repeats itself). Its last sentence is whole; it has lost as
  // many tokens at its beginning as it takes. Inserts at one place stay in order; each begins with the white space of
  // the sentence that it precedes. Error usage: no room for opening and inserts, or the text is too short.
  Result<std::vector<Token>> context(const HaystackWish& wish, Random& random);

  std::string_view text() const { return text_; }
  size_t n_sentences() const { return sentences_.size(); }
  // The body of a sentence, without the white space before it.
  std::string_view sentence(size_t index) const;

 private:
  struct Stretch;
  int64_t n_tokens(size_t sentence);
  std::string_view lead(size_t sentence) const;
  Draft assemble(const HaystackWish& wish, const Stretch& stretch);
  Error too_short(int64_t most, int64_t wanted) const;

  std::string name_;
  std::string text_;
  std::vector<Sentence> sentences_;
  std::vector<int32_t> counts_;  // tokens of each sentence by itself; -1: not counted yet
  Tokenizer tokenizer_;
};

}  // namespace kedge::eval
