#include "eval/haystack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "eval/fake_tokenizer.h"

namespace kedge::eval {
namespace {

std::vector<std::string> bodies(std::string_view text) {
  std::vector<std::string> found;
  for (const Sentence& s : split_sentences(text))
    found.emplace_back(text.substr(s.body, s.end - s.body));
  return found;
}

TEST(Random, IsSplitMix64) {
  // Seed XOR hash = 0: the hash of "" is FNV's basis. SplitMix64 from 0 begins with 0xE220A8397B1DCDAF.
  Random random(0xCBF29CE484222325U, "");
  EXPECT_EQ(random.next(), 0xE220A8397B1DCDAFU);
  // FNV-1a of "a" is 0xAF63DC4C8601EC8C.
  EXPECT_EQ(Random(0xAF63DC4C8601EC8CU, "a").next(), 0xE220A8397B1DCDAFU);
  Random draws(3, "draws");
  std::set<int64_t> seen;
  for (int i = 0; i < 1000; ++i)
    seen.insert(draws.between(-2, 2));
  EXPECT_EQ(seen, (std::set<int64_t>{-2, -1, 0, 1, 2}));
}

TEST(Sentences, Ends) {
  EXPECT_EQ(bodies("One is. Two (is it?) Three!\n Four"),
            (std::vector<std::string>{"One is.", "Two (is it?)", "Three!", "Four"}));
  EXPECT_EQ(bodies("See e.g. Paris. Then i.e. this"), (std::vector<std::string>{"See e.g. Paris.", "Then i.e. this"}));
  EXPECT_EQ(bodies("It was 1984. 2. Next"), (std::vector<std::string>{"It was 1984.", "2. Next"}));
  EXPECT_EQ(bodies("3.2. Duties\n====\n\n They are many. \n\n"),
            (std::vector<std::string>{"3.2. Duties\n====", "They are many."}));
  EXPECT_EQ(bodies("He said \"no.\" She left.5 and so on. but stays."),
            (std::vector<std::string>{"He said \"no.\"", "She left.5 and so on. but stays."}));
  EXPECT_EQ(bodies("你好。再见。"), (std::vector<std::string>{"你好。", "再见。"}));
  EXPECT_TRUE(bodies("").empty());
  EXPECT_TRUE(bodies(" \n\n ").empty());
}

TEST(Sentences, CoverTheTextWithoutGaps) {
  for (const std::string& text :
       {prose(60), std::string(5000, 'x'), std::string(1000, '.'), std::string("a\xff\x80 b.")}) {
    size_t at = 0;
    for (const Sentence& s : split_sentences(text)) {
      EXPECT_EQ(s.begin, at);
      EXPECT_LT(s.body, s.end);
      EXPECT_LE(s.end - s.body, 604U);
      at = s.end;
    }
    EXPECT_EQ(text.find_first_not_of(" \n", at), std::string::npos);
  }
}

TEST(Sentences, LongOnesAreCutBetweenCharacters) {
  std::string text;
  for (int i = 0; i < 1000; ++i)
    text += "é";
  for (const Sentence& s : split_sentences(text))
    EXPECT_EQ((s.end - s.begin) % 2, 0U);
}

std::string context_text(Haystack& haystack, const Tokenizer& tokenizer, const HaystackWish& wish, uint64_t seed) {
  Random random(seed, "test");
  const Result<std::vector<Token>> context = haystack.context(wish, random);
  EXPECT_TRUE(context.ok()) << context.error().message;
  if (!context.ok())
    return "";
  EXPECT_EQ(static_cast<int64_t>(context->size()), wish.n_tokens) << seed;
  return tokenizer.detokenize(*context);
}

TEST(Haystack, ExactLengthsAndNearestSentence) {
  for (const Tokenizer& tokenizer : {byte_tokenizer(), word_tokenizer()}) {
    Haystack haystack("t", prose(400), tokenizer);
    const int64_t unit = tokenizer.tokenize("one two three").size() == 3 ? 1 : 6;  // tokens of a word, about
    for (const int64_t n_words : {60, 61, 200, 1003}) {
      for (const double depth : {0.0, 0.1, 0.5, 0.9, 1.0}) {
        for (uint64_t seed = 0; seed < 5; ++seed) {
          const HaystackWish wish{.n_tokens = n_words * unit,
                                  .opening = "An opening line.\n",
                                  .inserts = {{.text = "NEEDLE is here.", .depth = depth}}};
          const std::string text = context_text(haystack, tokenizer, wish, seed);
          ASSERT_TRUE(std::string_view(text).substr(0, 18).find("An opening line.") != std::string::npos) << text;
          const size_t at = text.find("NEEDLE is here.");
          ASSERT_NE(at, std::string::npos) << text;
          const auto before = static_cast<double>(tokenizer.tokenize(text.substr(0, at)).size());
          const double wanted = depth * static_cast<double>(wish.n_tokens);
          EXPECT_NEAR(before, wanted, static_cast<double>(25 * unit)) << depth << "\n" << text;
          if (depth == 1) {
            EXPECT_EQ(text.substr(at), "NEEDLE is here.");
          }
          if (depth > 0.2) {  // what stands before is a whole sentence or a heading
            const size_t last = text.find_last_not_of(" \n", at - 1);
            EXPECT_TRUE(std::string_view(".!s").find(text[last]) != std::string::npos) << text;
          }
        }
      }
    }
  }
}

TEST(Haystack, StretchIsTheTextsOwn) {
  const Tokenizer tokenizer = byte_tokenizer();
  const std::string source = prose(200);
  Haystack haystack("t", source, tokenizer);
  std::set<std::string> stretches;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::string text = context_text(haystack, tokenizer, {.n_tokens = 700, .opening = "", .inserts = {}}, seed);
    stretches.insert(text);
    // Either one piece of the source, or its end and its beginning.
    const size_t joint = text.find("Chapter 0 on");
    const bool whole = source.find(text) != std::string::npos;
    EXPECT_TRUE(whole || joint != std::string::npos) << text;
    EXPECT_EQ(text, context_text(haystack, tokenizer, {.n_tokens = 700, .opening = "", .inserts = {}}, seed));
  }
  EXPECT_GT(stretches.size(), 15U);
}

TEST(Haystack, NoWhiteSpaceAndNoSentences) {
  const Tokenizer tokenizer = byte_tokenizer();
  Haystack haystack("t", std::string(20000, 'x'), tokenizer);
  const std::string text =
      context_text(haystack, tokenizer, {.n_tokens = 5001, .opening = "", .inserts = {{"NEEDLE", 0.5}}}, 1);
  EXPECT_NEAR(static_cast<double>(text.find(" NEEDLE ")), 2500, 400);
}

TEST(Haystack, InsertsKeepTheirOrder) {
  const Tokenizer tokenizer = byte_tokenizer();
  Haystack haystack("t", prose(50), tokenizer);
  const HaystackWish wish{
      .n_tokens = 900, .opening = "", .inserts = {{"one", 0}, {"two", 0}, {"three", 0.5}, {"four", 1}, {"five", 1}}};
  const std::string text = context_text(haystack, tokenizer, wish, 0);
  EXPECT_EQ(text.find("one"), 0U) << text;
  EXPECT_LT(text.find("one"), text.find("two"));
  EXPECT_LT(text.find("two"), text.find("three"));
  EXPECT_LT(text.find("three"), text.find("four"));
  EXPECT_LT(text.find("four"), text.find("five"));
}

TEST(Haystack, Errors) {
  const Tokenizer tokenizer = byte_tokenizer();
  Haystack haystack("needle", prose(10), tokenizer);
  Random random(0, "x");
  const auto message = [&](int64_t n, const std::string& opening) {
    const auto context = haystack.context({.n_tokens = n, .opening = opening, .inserts = {}}, random);
    EXPECT_FALSE(context.ok());
    return context.ok() ? "" : context.error().message;
  };
  EXPECT_NE(message(100'000, "").find("needle: the text is too short"), std::string::npos);
  EXPECT_NE(message(10, "0123456789").find("only 10 are left"), std::string::npos);
  EXPECT_NE(message(-5, "").find("only 0 are left"), std::string::npos);
}

}  // namespace
}  // namespace kedge::eval
