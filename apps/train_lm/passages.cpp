#include "train_lm/passages.h"

#include <algorithm>

namespace kedge::lm {
namespace {

constexpr size_t kNeedles = 6;
constexpr size_t kCopies = 24;
constexpr int64_t kCopyTokens = 48;
constexpr int64_t kCopyAsked = 12;
constexpr double kFarthest = 0.7;  // of the body: what is needed lies before

constexpr const char* kKinds[] = {"access code",  "serial number", "account number",
                                  "registration", "identifier",    "order number"};
constexpr const char* kColours[] = {"red", "green", "silver", "northern", "old", "second", "quiet", "upper"};
constexpr const char* kThings[] = {"bridge", "harbour", "library", "engine", "warehouse", "garden", "tower", "mill"};

struct Needle {
  std::string question;  // "\nThe serial number of the old mill is"
  std::string answer;    // " KX-40817."
};

Needle make_needle(eval::Random& random) {
  std::string code = " ";
  for (int i = 0; i < 2; ++i)
    code += static_cast<char>('A' + random.below(26));
  code += "-" + std::to_string(random.between(10'000, 99'999)) + ".";
  std::string question = "\nThe ";
  question.append(random.pick(kKinds)).append(" of the ").append(random.pick(kColours)).append(" ");
  question.append(random.pick(kThings)).append(" is");
  return {.question = std::move(question), .answer = std::move(code)};
}

bool ends_line(const std::string& piece) { return piece.find('\n') != std::string::npos; }

// Places [1, limit) where a sentence may be put in: after a line's end, or after a full stop where there are few.
std::vector<int64_t> places(std::span<const Token> text, const Words& words, int64_t limit) {
  std::vector<int64_t> lines;
  std::vector<int64_t> all;
  for (int64_t i = 1; i < limit; ++i) {
    const std::string before = words.piece(text[static_cast<size_t>(i - 1)]);
    if (ends_line(before))
      lines.push_back(i);
    if (ends_line(before) || before.ends_with("."))
      all.push_back(i);
  }
  return lines.size() >= kNeedles ? lines : all;
}

void append(std::vector<Token>& tokens, std::span<const Token> more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
}

}  // namespace

Body plant_needles(std::span<const Token> text, const Words& words, eval::Random& random) {
  struct Tokens {
    std::vector<Token> question, answer;
  };
  std::vector<Tokens> needles;
  std::vector<std::string> asked;
  size_t n_needles_tokens = 0;
  size_t longest = 0;
  while (needles.size() < kNeedles) {
    const Needle needle = make_needle(random);
    if (std::ranges::count(asked, needle.question) > 0)
      continue;  // a question has one answer
    asked.push_back(needle.question);
    Tokens& own = needles.emplace_back(words.tokenize(needle.question), words.tokenize(needle.answer));
    n_needles_tokens += own.question.size() + own.answer.size();
    longest = std::max(longest, own.question.size() + own.answer.size());
  }
  Body body;
  if (text.size() < 2 * (n_needles_tokens + longest))
    return body;
  const auto n_text = static_cast<int64_t>(text.size() - n_needles_tokens - longest);
  std::vector<int64_t> at = places(text, words, static_cast<int64_t>(kFarthest * static_cast<double>(n_text)));
  if (at.size() < kNeedles)
    return body;
  random.shuffle(at);
  at.resize(kNeedles);
  std::ranges::sort(at);
  int64_t done = 0;
  for (size_t i = 0; i < kNeedles; ++i) {
    append(body.tokens, text.subspan(static_cast<size_t>(done), static_cast<size_t>(at[i] - done)));
    done = at[i];
    Candidate& own = body.candidates.emplace_back();
    own.begin = static_cast<int64_t>(body.tokens.size());
    append(body.tokens, needles[i].question);
    append(body.tokens, needles[i].answer);
    own.end = static_cast<int64_t>(body.tokens.size());
    own.tail = needles[i].question;
    own.n_asked = static_cast<int64_t>(own.tail.size());
    append(own.tail, needles[i].answer);
  }
  append(body.tokens, text.subspan(static_cast<size_t>(done), static_cast<size_t>(n_text - done)));
  return body;
}

Body find_copies(std::span<const Token> text, const Words& words, eval::Random& random) {
  Body body;
  const auto n_body = static_cast<int64_t>(text.size()) - kCopyTokens;
  const auto limit = static_cast<int64_t>(kFarthest * static_cast<double>(n_body)) - kCopyTokens;
  if (limit < kCopyTokens)
    return body;
  append(body.tokens, text.first(static_cast<size_t>(n_body)));
  std::vector<int64_t> at = places(text, words, limit);
  random.shuffle(at);
  at.resize(std::min(at.size(), kCopies));
  for (const int64_t begin : at) {
    const std::span<const Token> passage = text.subspan(static_cast<size_t>(begin), kCopyTokens);
    body.candidates.push_back(
        {.begin = begin, .end = begin + kCopyTokens, .tail = {passage.begin(), passage.end()}, .n_asked = kCopyAsked});
  }
  return body;
}

size_t hardest(const Body& body, std::span<const double> row_keep) {
  size_t best = 0;
  double least = 2;
  for (size_t i = 0; i < body.candidates.size(); ++i) {
    const Candidate& one = body.candidates[i];
    double sum = 0;
    for (int64_t row = one.begin; row < one.end; ++row)
      sum += row_keep[static_cast<size_t>(row)];
    const double mean = sum / static_cast<double>(one.end - one.begin);
    if (mean < least) {
      least = mean;
      best = i;
    }
  }
  return best;
}

}  // namespace kedge::lm
