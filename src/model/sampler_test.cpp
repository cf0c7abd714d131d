#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "model/tokenizer.h"

namespace kedge::model {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

Sampler greedy() { return Sampler({.temperature = 0}); }

TEST(Sampler, GreedyTakesTheLowestOfEquals) {
  EXPECT_EQ(greedy().sample(std::vector<float>{1, 3, 2, 3}), 1);
  EXPECT_EQ(greedy().sample(std::vector<float>{-5, -5}), 0);
  EXPECT_EQ(greedy().sample(std::vector<float>{-kInf, -3, -kInf}), 1);
  EXPECT_EQ(greedy().sample(std::vector<float>(1)), 0);
  std::mt19937 random(3);
  for (const size_t n : {7U, 8U, 9U, 63U, 1000U}) {
    std::vector<float> logits(n);
    for (float& l : logits)
      l = static_cast<float>(random() % 50) - 60;
    EXPECT_EQ(greedy().sample(logits), std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
}

TEST(Sampler, NanNeverWins) {
  EXPECT_EQ(greedy().sample(std::vector<float>{kNan, 1, kNan, 2, kNan, 0, kNan, kNan, kNan, kNan}), 3);
  EXPECT_EQ(greedy().sample(std::vector<float>(20, kNan)), 0);
  std::vector<float> logits(100, kNan);
  logits[42] = -7;
  Sampler sampler({.temperature = 1.0F, .top_k = 5, .min_p = 0, .seed = 1});
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(sampler.sample(logits), 42);
}

// How often each token comes of `n` samples of the same logits.
std::map<Token, int> histogram(const SamplerOptions& options, const std::vector<float>& logits, int n) {
  Sampler sampler(options);
  std::map<Token, int> counts;
  for (int i = 0; i < n; ++i)
    counts[sampler.sample(logits)]++;
  return counts;
}

std::vector<float> falling(size_t n) {
  std::vector<float> logits(n);
  for (size_t i = 0; i < n; ++i)
    logits[i] = -0.1F * static_cast<float>((i * 37) % n);  // best: id 0; a permutation when n and 37 are coprime
  return logits;
}

TEST(Sampler, TopKKeepsTheKBest) {
  const std::vector<float> logits = falling(100);
  std::set<Token> best;
  for (Token id = 0; id < 100; ++id) {
    if (logits[static_cast<size_t>(id)] > -0.95F)
      best.insert(id);
  }
  ASSERT_EQ(best.size(), 10U);
  std::set<Token> seen;
  for (const auto& [id, count] :
       histogram({.temperature = 2, .top_k = 10, .top_p = 1, .min_p = 0, .seed = 5}, logits, 2000))
    seen.insert(id);
  EXPECT_EQ(seen, best);
}

TEST(Sampler, TopKOfManyTiesTakesTheLowestIds) {
  // Flat but for a few: the k best are those few and the lowest of the equals, wherever they stand.
  std::vector<float> logits(5000, 1.0F);
  for (const size_t id : {700U, 4999U, 33U})
    logits[id] = 1.5F;
  for (const size_t id : {0U, 2U})
    logits[id] = kNan;
  std::set<Token> seen;
  for (const auto& [id, count] :
       histogram({.temperature = 5, .top_k = 6, .top_p = 1, .min_p = 0, .seed = 2}, logits, 3000)) {
    seen.insert(id);
  }
  EXPECT_EQ(seen, (std::set<Token>{33, 700, 4999, 1, 3, 4}));
}

TEST(Sampler, TopKOfNothingMeansAll) {
  const std::vector<float> flat(2000, 0.0F);
  for (const int k : {0, -1, 2000, 5000}) {
    EXPECT_GT(histogram({.temperature = 1, .top_k = k, .top_p = 1, .min_p = 0, .seed = 5}, flat, 3000).size(), 1200U)
        << k;
  }
  EXPECT_EQ(histogram({.temperature = 1, .top_k = 1, .seed = 5}, falling(100), 50).size(), 1U);
}

TEST(Sampler, FrequenciesFollowTheSoftmax) {
  const std::vector<float> logits = {std::log(0.6F), std::log(0.3F), std::log(0.1F), -40};
  const auto counts = histogram({.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .seed = 9}, logits, 20000);
  EXPECT_NEAR(counts.at(0) / 20000.0, 0.6, 0.02);
  EXPECT_NEAR(counts.at(1) / 20000.0, 0.3, 0.02);
  EXPECT_NEAR(counts.at(2) / 20000.0, 0.1, 0.02);
  EXPECT_EQ(histogram({.temperature = 1, .top_k = 0, .top_p = 0.55F, .min_p = 0, .seed = 9}, logits, 200).size(), 1U);
  EXPECT_EQ(histogram({.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0.4F, .seed = 9}, logits, 500).size(), 2U);
}

TEST(Sampler, SeedsRepeat) {
  const std::vector<float> logits = falling(99);
  const auto draw = [&](Sampler& sampler) {
    std::vector<Token> tokens;
    for (int i = 0; i < 50; ++i)
      tokens.push_back(sampler.sample(logits));
    return tokens;
  };
  Sampler a({.temperature = 2, .seed = 123});
  Sampler b({.temperature = 2, .seed = 123});
  Sampler c({.temperature = 2, .seed = 124});
  EXPECT_EQ(a.seed(), 123U);
  const std::vector<Token> first = draw(a);
  EXPECT_EQ(first, draw(b));
  EXPECT_NE(first, draw(c));
  EXPECT_NE(first, draw(a));
  a.reset();
  EXPECT_EQ(first, draw(a));
  const Sampler random({.temperature = 1});
  Sampler same({.temperature = 1, .seed = random.seed()});
  EXPECT_EQ(same.seed(), random.seed());
}

TEST(Sampler, PenaltyCountsRecentTokens) {
  // Token 0 leads by a factor that one penalty of 2 undoes; after two more tokens it is out of the window again.
  const std::vector<float> logits = {4, 3, 1, 1};
  Sampler sampler({.temperature = 0, .repeat_penalty = 2, .repeat_last_n = 2});
  EXPECT_EQ(sampler.sample(logits), 0);
  sampler.accept(0);
  EXPECT_EQ(sampler.sample(logits), 1);
  sampler.accept(1);
  EXPECT_EQ(sampler.sample(logits), 0);  // 2 against 1.5
  sampler.accept(2);
  sampler.accept(3);
  EXPECT_EQ(sampler.sample(logits), 0);
  sampler.accept(0);
  EXPECT_EQ(sampler.sample(logits), 1);
  sampler.reset();
  EXPECT_EQ(sampler.sample(logits), 0);
}

TEST(Sampler, OurTopKChangesNothingTheChainWouldSay) {
  // With k = all the chain sees every token; our selection before it must not change what it answers.
  std::mt19937 random(4);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(3000);
  for (float& l : logits)
    l = normal(random);
  for (const float penalty : {1.0F, 1.3F, 0.7F}) {
    Sampler narrow({.temperature = 0, .top_k = 40, .repeat_penalty = penalty, .repeat_last_n = 30});
    std::vector<float> adjusted = logits;
    std::vector<Token> history;
    for (int step = 0; step < 60; ++step) {
      adjusted = logits;
      std::set<Token> recent(history.end() - std::min<long>(30, static_cast<long>(history.size())), history.end());
      for (const Token t : recent) {
        float& l = adjusted[static_cast<size_t>(t)];
        l = penalty == 1.0F ? l : l <= 0 ? l * penalty : l / penalty;
      }
      const Token expected = static_cast<Token>(std::max_element(adjusted.begin(), adjusted.end()) - adjusted.begin());
      ASSERT_EQ(narrow.sample(logits), expected) << "step " << step << " penalty " << penalty;
      const Token token = step % 3 == 0 ? static_cast<Token>(random() % 3000) : expected;
      narrow.accept(token);
      history.push_back(token);
    }
  }
}

// The plain meaning of a length penalty X: every probability of an end token is divided by X, all are made to sum to
// one again.
std::vector<double> with_rarer_ends(const std::vector<float>& logits, const std::set<Token>& ends, double penalty) {
  std::vector<double> p;
  double sum = 0;
  for (size_t id = 0; id < logits.size(); ++id) {
    p.push_back(std::exp(static_cast<double>(logits[id])) / (ends.contains(static_cast<Token>(id)) ? penalty : 1.0));
    sum += p.back();
  }
  for (double& each : p)
    each /= sum;
  return p;
}

TEST(Sampler, ALengthPenaltyDividesTheOddsOfEnding) {
  // An offset that is common to all logits means nothing.
  for (const float offset : {0.0F, 30.0F, -30.0F}) {
    const std::vector<float> logits = {1.0F + offset, offset, 0.5F + offset, 1.5F + offset};
    for (const float penalty : {0.25F, 1.1F, 4.0F}) {
      const auto counts = histogram({.temperature = 1,
                                     .top_k = 0,
                                     .top_p = 1,
                                     .min_p = 0,
                                     .length_penalty = penalty,
                                     .seed = 3,
                                     .end_tokens = {3, 1}},
                                    logits, 20000);
      const std::vector<double> expected = with_rarer_ends(logits, {1, 3}, static_cast<double>(penalty));
      for (Token id = 0; id < 4; ++id)
        EXPECT_NEAR(counts.at(id) / 20000.0, expected[static_cast<size_t>(id)], 0.015) << penalty << " " << id;
    }
  }
}

TEST(Sampler, ALengthPenaltyMovesTheGreedyChoiceByItsLogarithm) {
  const auto chosen = [](float lead, const SamplerOptions& options) {
    return Sampler(options).sample(std::vector<float>{2, 2 + lead, 1, -kInf, kNan});
  };
  const SamplerOptions longer{.temperature = 0, .length_penalty = 1.1F, .end_tokens = {1, 99}};
  EXPECT_EQ(chosen(0.096F, longer), 1);  // ln 1.1 = 0.0953
  EXPECT_EQ(chosen(0.094F, longer), 0);
  const SamplerOptions shorter{.temperature = 0, .length_penalty = 0.5F, .end_tokens = {1}};
  EXPECT_EQ(chosen(-0.68F, shorter), 1);  // ln 2 = 0.693
  EXPECT_EQ(chosen(-0.70F, shorter), 0);
}

TEST(Sampler, APenaltyOfEndsComesBeforeThatOfRepetitions) {
  std::mt19937 random(8);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(500);
  for (float& l : logits)
    l = normal(random);
  const std::vector<Token> ends = {7, 130, 131};
  for (const Token end : ends)
    logits[static_cast<size_t>(end)] = 9;
  Sampler sampler(
      {.temperature = 0, .repeat_penalty = 1.2F, .repeat_last_n = 6, .length_penalty = 20, .end_tokens = ends});
  std::vector<Token> history;
  for (int step = 0; step < 60; ++step) {
    std::vector<float> adjusted = logits;
    for (const Token end : ends)
      adjusted[static_cast<size_t>(end)] -= std::log(20.0F);
    for (const Token t :
         std::set<Token>(history.end() - std::min<long>(6, static_cast<long>(history.size())), history.end())) {
      float& l = adjusted[static_cast<size_t>(t)];
      l = l <= 0 ? l * 1.2F : l / 1.2F;
    }
    const auto expected = static_cast<Token>(std::max_element(adjusted.begin(), adjusted.end()) - adjusted.begin());
    ASSERT_EQ(sampler.sample(logits), expected) << step;
    sampler.accept(expected);
    history.push_back(expected);
  }
}

TEST(Sampler, PenaltiesOfOneDrawTheSameTokens) {
  std::mt19937 random(6);
  std::normal_distribution<float> normal(0, 2);
  Sampler plain({.temperature = 0.8F, .seed = 11});
  Sampler off({.temperature = 0.8F, .repeat_penalty = 1, .length_penalty = 1, .seed = 11, .end_tokens = {0, 1, 2}});
  for (int step = 0; step < 200; ++step) {
    std::vector<float> logits(300);
    for (float& l : logits)
      l = normal(random);
    const Token token = plain.sample(logits);
    ASSERT_EQ(token, off.sample(logits)) << step;
    plain.accept(token);
    off.accept(token);
  }
}

TEST(Sampler, ASavedStateDrawsWhatWouldHaveBeenDrawn) {
  const std::vector<float> logits = falling(500);
  for (const SamplerOptions& options :
       {SamplerOptions{.temperature = 1.0F, .seed = 4}, SamplerOptions{.temperature = 1.0F, .top_k = 1, .seed = 4},
        SamplerOptions{.temperature = 0.9F, .top_k = 0, .repeat_penalty = 1.5F, .repeat_last_n = 7},
        SamplerOptions{.temperature = 0, .repeat_penalty = 2.0F, .repeat_last_n = 3},
        SamplerOptions{.temperature = 1.0F, .length_penalty = 3.0F, .seed = 4, .end_tokens = {0, 40}},
        SamplerOptions{.temperature = 0}}) {
    Sampler sampler(options);
    for (int i = 0; i < 25; ++i)
      sampler.accept(sampler.sample(logits));
    const SamplerState state = sampler.state();
    EXPECT_EQ(state.n_draws, options.temperature > 0 ? 25U : 0U);
    EXPECT_EQ(state.options.seed, sampler.seed());
    EXPECT_LE(static_cast<int>(state.recent.size()), options.repeat_last_n);
    Sampler again = Sampler::resume(state);
    for (int i = 0; i < 40; ++i) {
      const Token token = sampler.sample(logits);
      ASSERT_EQ(token, again.sample(logits)) << i;
      sampler.accept(token);
      again.accept(token);
    }
    EXPECT_EQ(sampler.state().n_draws, again.state().n_draws);
  }
}

}  // namespace
}  // namespace kedge::model
