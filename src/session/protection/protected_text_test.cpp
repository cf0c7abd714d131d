#include "session/protection/protected_text.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace kedge::session {
namespace {

using Positions = std::vector<int32_t>;

// Tokens are bytes; from 256 on they are markers.
TokenText describe(int32_t token) {
  if (token >= 256)
    return {.bytes = "<|" + std::to_string(token) + "|>", .is_special = true};
  return {.bytes = std::string(1, static_cast<char>(token)), .is_special = false};
}

std::unique_ptr<ProtectedText> open(const Protection& protection) {
  Result<std::unique_ptr<ProtectedText>> text = ProtectedText::create(protection, describe);
  EXPECT_TRUE(text.ok()) << text.error().message;
  return *std::move(text);
}

std::vector<int32_t> bytes(const std::string& text) {
  std::vector<int32_t> out;
  for (const char c : text)
    out.push_back(static_cast<uint8_t>(c));
  return out;
}

Positions protected_by(const Pinned& pinned, ProtectedBy what) {
  Positions out;
  for (size_t i = 0; i < pinned.by.size(); ++i) {
    if (pinned.by[i] == static_cast<uint8_t>(what))
      out.push_back(static_cast<int32_t>(i));
  }
  return out;
}

Positions run(int32_t first, int32_t n) {
  Positions out(static_cast<size_t>(n));
  std::iota(out.begin(), out.end(), first);
  return out;
}

HeadRoom room(int64_t n_tokens, int64_t rows) {
  return {.n_tokens = n_tokens, .rows = rows, .budget_rows = static_cast<double>(rows)};
}

TEST(ProtectedText, SpansAndPhrasesAreFoundAndCounted) {
  const auto text = open({.spans = {{.begin = 2, .end = 4}}, .phrases = {{.text = "key"}}});
  text->append(bytes("aakeya key no"));
  const Pinned& pinned = text->pinned(room(13, 100));
  EXPECT_EQ(protected_by(pinned, ProtectedBy::span), (Positions{2, 3}));
  EXPECT_EQ(protected_by(pinned, ProtectedBy::phrase), (Positions{7, 8, 9}));
  EXPECT_EQ(pinned.n_needed, 6) << "five and the newest";
  EXPECT_EQ(pinned.counts.spans, 2);
  EXPECT_EQ(pinned.counts.phrases, 3);
  EXPECT_EQ(text->pinned(room(8, 100)).by.size(), 8U) << "what comes later is not there yet";
}

TEST(ProtectedText, PiecesOfAnyLengthGiveTheSame) {
  std::mt19937 random(3);
  std::string words;
  for (int i = 0; i < 400; ++i)
    words += i % 17 == 0 ? "alpha  beta\n" : i % 5 == 0 ? "f(x[1]) " : "alp ha ";
  std::vector<int32_t> tokens = bytes(words);
  for (size_t i = 50; i < tokens.size(); i += 97)
    tokens.insert(tokens.begin() + static_cast<std::ptrdiff_t>(i), 256 + static_cast<int32_t>(i % 2));
  const Protection protection{
      .phrases = {{.text = "alpha beta"}}, .domain = domain_texts().front().toml, .special_quota = 3};
  const auto whole = open(protection);
  whole->append(tokens);
  const auto pieces = open(protection);
  for (size_t at = 0; at < tokens.size();) {
    const size_t n = std::min<size_t>(1 + random() % 40, tokens.size() - at);
    pieces->append(std::span(tokens).subspan(at, n));
    at += n;
    if (at % 3 == 0)
      pieces->pinned(room(static_cast<int64_t>(at), 60));
  }
  const HeadRoom asked = room(static_cast<int64_t>(tokens.size()), 400);
  EXPECT_EQ(pieces->pinned(asked).by, whole->pinned(asked).by);
  EXPECT_GT(whole->pinned(asked).counts.phrases, 200);
  EXPECT_GT(whole->pinned(asked).counts.domain, 20);
  EXPECT_GT(whole->pinned(asked).counts.special, 3);

  whole->truncate(500);
  const auto shorter = open(protection);
  shorter->append(std::span(tokens).first(500));
  EXPECT_EQ(whole->pinned(room(500, 100)).by, shorter->pinned(room(500, 100)).by);
  EXPECT_EQ(whole->tokens().size(), 500U);
}

TEST(ProtectedText, ABeginningIsHeldUntilItIsKnownToBeNone) {
  const auto text = open({.phrases = {{.text = "secret code"}}});
  text->append(bytes("x secret c"));
  EXPECT_EQ(protected_by(text->pinned(room(10, 100)), ProtectedBy::phrase), run(2, 8));
  text->append(bytes("ar."));
  EXPECT_EQ(protected_by(text->pinned(room(13, 100)), ProtectedBy::phrase), Positions{});
}

TEST(ProtectedText, OldestGivesUpTheLowestPositionsAndSaysHowMany) {
  const Protection protection{.spans = {{.begin = 0, .end = 10}, {.begin = 20, .end = 30}}};
  const auto refused = open(protection);
  refused->append(bytes(std::string(40, 'x')));
  EXPECT_EQ(refused->pinned(room(40, 15)).n_needed, 21);
  EXPECT_EQ(refused->pinned(room(40, 15)).n_dropped, 0);

  Protection oldest = protection;
  oldest.overflow = ProtectOverflow::oldest;
  const auto text = open(oldest);
  text->append(bytes(std::string(40, 'x')));
  HeadRoom small = room(40, 15);
  small.n_sinks = 2;  // which are protected anyway
  const Pinned& pinned = text->pinned(small);
  Positions expected = run(0, 2);
  for (const int32_t p : run(8, 2))
    expected.push_back(p);
  for (const int32_t p : run(20, 10))
    expected.push_back(p);
  EXPECT_EQ(protected_by(pinned, ProtectedBy::span), expected);
  EXPECT_EQ(pinned.n_dropped, 6);
  EXPECT_EQ(pinned.n_needed, 15);
}

TEST(ProtectedText, WithoutSpansAndPhrasesNothingIsNeeded) {
  const auto text = open({.phrases = {{.text = "absent"}}, .special_quota = 2});
  text->append(bytes(std::string(40, 'x')));
  HeadRoom none = room(40, -3);  // a batch that takes the whole budget
  none.n_sinks = 4;
  EXPECT_EQ(text->pinned(none).n_needed, 0);

  const auto oldest = open({.spans = {{.begin = 1, .end = 9}}, .overflow = ProtectOverflow::oldest});
  oldest->append(bytes(std::string(40, 'x')));
  EXPECT_EQ(oldest->pinned(none).n_needed, 0) << "everything is given up, nothing is an error";
  EXPECT_EQ(oldest->pinned(none).counts.spans, 0);
  EXPECT_EQ(oldest->pinned(none).n_dropped, 5);
}

TEST(ProtectedText, SpecialTokensHaveAQuotaOfEachKindAndAShareTogether) {
  std::vector<int32_t> tokens(100, 'x');
  for (const int32_t p : {5, 15, 25, 35})
    tokens[static_cast<size_t>(p)] = 256;
  for (const int32_t p : {6, 16, 26})
    tokens[static_cast<size_t>(p)] = 257;
  const auto text = open({.special_quota = 2});
  text->append(tokens);
  EXPECT_EQ(protected_by(text->pinned(room(100, 90)), ProtectedBy::special), (Positions{16, 25, 26, 35}));
  EXPECT_EQ(protected_by(text->pinned(room(30, 90)), ProtectedBy::special), (Positions{15, 16, 25, 26}))
      << "of those that are there";
  EXPECT_EQ(protected_by(text->pinned(room(100, 12)), ProtectedBy::special), (Positions{25, 26, 35}))
      << "a quarter of 12 rows, the newest of each kind first";
  HeadRoom sinks = room(100, 90);
  sinks.n_sinks = 26;
  EXPECT_EQ(protected_by(text->pinned(sinks), ProtectedBy::special), (Positions{26, 35})) << "sinks stay anyway";
}

TEST(ProtectedText, OpenBracketsComeBeforeNewerClosedOnes) {
  const auto text = open({.domain = R"toml(
name = "b"
summary = "b"
[[class]]
name = "brackets"
share = 0.05
pairs = ["()"]
)toml"});
  std::string source = "f(" + std::string(20, 'a') + " g(x) h(y) k(z) " + std::string(40, 'b');
  text->append(bytes(source));
  const auto n = static_cast<int64_t>(source.size());
  HeadRoom asked = room(n, 60);  // 5 %: three rows
  asked.n_recent = 20;
  EXPECT_EQ(protected_by(text->pinned(asked), ProtectedBy::domain), (Positions{1, 34, 36}));
  asked.n_recent = static_cast<int>(n) - 33;
  EXPECT_EQ(protected_by(text->pinned(asked), ProtectedBy::domain), (Positions{1, 29, 31}))
      << "what is recent needs no quota";
}

TEST(ProtectedText, QuotasTakeOnlyWhatIsLeft) {
  const auto text =
      open({.spans = {{.begin = 4, .end = 40}}, .domain = domain_texts().front().toml, .special_quota = 4});
  std::vector<int32_t> tokens = bytes(std::string(40, 'x') + "(((((((((((((((((((((((((((((((" + std::string(30, ' '));
  tokens[60] = 256;
  text->append(tokens);
  HeadRoom asked = room(static_cast<int64_t>(tokens.size()), 60);
  asked.n_sinks = 4;
  asked.n_recent = 18;  // 4 + 36 + 18: two rows are left
  const Pinned& pinned = text->pinned(asked);
  EXPECT_EQ(pinned.counts.special + pinned.counts.domain, 2);
  EXPECT_EQ(pinned.counts.special, 1);
  asked.n_recent = 20;
  EXPECT_EQ(text->pinned(asked).counts.special + text->pinned(asked).counts.domain, 0);
  EXPECT_EQ(text->pinned(asked).counts.spans, 36);
}

TEST(ProtectedText, WhatIsNotValidIsRefused) {
  EXPECT_FALSE(ProtectedText::create({.spans = {{.begin = 3, .end = 3}}}, describe).ok());
  EXPECT_FALSE(ProtectedText::create({.spans = {{.begin = -1, .end = 3}}}, describe).ok());
  EXPECT_FALSE(ProtectedText::create({.phrases = {{.text = ""}}}, describe).ok());
  EXPECT_FALSE(ProtectedText::create({.domain = "name = 3"}, describe).ok());
  EXPECT_FALSE(ProtectedText::create({.special_quota = -1}, describe).ok());
  const auto nothing = ProtectedText::create({}, {});
  ASSERT_TRUE(nothing.ok());
  EXPECT_FALSE((*nothing)->is_active());
  (*nothing)->append(bytes("abc"));
  EXPECT_TRUE((*nothing)->tokens().empty());
}

}  // namespace
}  // namespace kedge::session
