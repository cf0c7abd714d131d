// Protection through the public door: phrases, spans, special tokens and domains stay in every layer and head, whatever
// the scorer says; what cannot fit is refused before anything is lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <regex>

#include "door.h"
#include "support/kl.h"
#include "support/real_model.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace kedge::test {
namespace {

const std::string kPhrase = "Open Sesame";

std::string text_of(const KvMap& map, const std::vector<int32_t>& wanted) {
  std::string lost;
  for (size_t layer = 0; layer < map.layers.size(); ++layer) {
    for (size_t head = 0; head < map.layers[layer].size(); ++head) {
      for (const int32_t position : wanted) {
        if (!std::ranges::binary_search(map.layers[layer][head], position))
          lost += " " + std::to_string(layer) + "/" + std::to_string(head) + "@" + std::to_string(position);
      }
    }
  }
  return lost;
}

std::vector<int32_t> range(int64_t begin, int64_t end) {
  std::vector<int32_t> out;
  for (int64_t i = begin; i < end; ++i)
    out.push_back(static_cast<int32_t>(i));
  return out;
}

class TinyProtection : public testing::Test {
 protected:
  void SetUp() override {
    write_tiny_model(make_tiny_weights({.n_layers = 3, .n_heads = 4, .n_kv_heads = 2, .qk_gain = 1.4F, .seed = 3}),
                     dir_.file("tiny.gguf"));
    model_ = open_model(dir_.file("tiny.gguf"), 1);
  }
  // The model's tokens are bytes: lower-case words with the phrase at one place.
  std::vector<Token> words(int n, uint32_t seed) const {
    std::string text;
    for (const int32_t token : random_tokens(n, seed))
      text += token % 6 == 0 ? ' ' : static_cast<char>('a' + token % 26);
    return model_->tokenize(text, false, false);
  }
  std::vector<Token> with_phrase(int n, int at, uint32_t seed) const {
    std::vector<Token> tokens = words(n, seed);
    const std::vector<Token> phrase = model_->tokenize(" " + kPhrase + " ", false, false);
    for (size_t i = 0; i < phrase.size(); ++i) {
      const int64_t place = at - 1 + static_cast<int64_t>(i);
      if (place >= 0 && place < n)
        tokens[static_cast<size_t>(place)] = phrase[i];
    }
    return tokens;
  }

  TempDir dir_;
  std::unique_ptr<Model> model_;
};

TEST_F(TinyProtection, APhraseAnywhereStaysInEveryLayerAndHeadAtTwoPercent) {
  const int n = 1500;
  const int length = static_cast<int>(kPhrase.size());
  int n_lost_without = 0;
  for (const std::string& policy : evicting_scorers()) {
    for (const int at : {0, 315, 700, n - length}) {  // 315: over the border of two chunks
      for (const PrefillOrder order : {PrefillOrder::layer_major, PrefillOrder::chunked}) {
        SessionOptions options =
            session_options({.budget = "2%", .policy = policy, .prompt = n, .generated = 8, .hold_continuation = true});
        options.order = order;
        options.sinks = "4";  // some methods have as many sinks as 2 % leaves rows
        options.n_batch = 64;
        const std::vector<Token> prompt = with_phrase(n, at, 11);
        const std::vector<int32_t> wanted = range(at, at + length);
        const std::string where = policy + " at " + std::to_string(at);
        if (order == PrefillOrder::layer_major) {
          const auto plain = open_session(*model_, options);
          must(plain->prefill(prompt));
          n_lost_without += text_of(plain->kv_map(), wanted).empty() ? 0 : 1;
        }
        options.protect.phrases = {{.text = "open sesame"}};
        const auto session = open_session(*model_, options);
        must(session->prefill(prompt));
        EXPECT_EQ(text_of(session->kv_map(), wanted), "") << where;
        EXPECT_EQ(session->stats().kv_rows, 30 * 3 * 2) << where << ": the budget is met exactly";
        EXPECT_EQ(session->stats().protected_phrases, length) << where;
        const std::vector<ProtectedBy> by = session->kv_map().protected_by;
        ASSERT_EQ(by.size(), static_cast<size_t>(n));
        EXPECT_EQ(std::ranges::count(by, ProtectedBy::phrase), length);
        EXPECT_EQ(by[static_cast<size_t>(at)], ProtectedBy::phrase) << where;
      }
    }
  }
  EXPECT_GT(n_lost_without, 0) << "without protection it is lost";
}

TEST_F(TinyProtection, WhatIsDecodedIsProtectedToo) {
  for (const std::string& policy : evicting_scorers()) {
    SessionOptions options = session_options({.budget = "300KiB", .policy = policy, .prompt = 400, .generated = -1});
    options.protect.phrases = {{.text = kPhrase, .match_case = true}};
    const auto session = open_session(*model_, options);
    must(session->prefill(with_phrase(400, 100, 12)));
    for (const Token token : with_phrase(700, 350, 13))
      must(session->decode(token));
    std::vector<int32_t> wanted = range(100, 111);
    for (const int32_t position : range(750, 761))
      wanted.push_back(position);
    EXPECT_EQ(text_of(session->kv_map(), wanted), "") << policy;
    EXPECT_EQ(session->stats().protected_phrases, 22) << policy;
    EXPECT_GT(session->stats().evictions, 6) << policy;
    EXPECT_LE(session->stats().kv_peak_bytes, session->stats().kv_budget_bytes);
  }
}

TEST_F(TinyProtection, LaterTurnsAndManyOccurrences) {
  SessionOptions options = session_options({.budget = "300KiB", .policy = "random", .prompt = 4096, .generated = -1});
  options.protect.phrases = {{.text = kPhrase}};
  options.protect.spans = {{.begin = 3, .end = 9}};
  const auto session = open_session(*model_, options);
  std::vector<int32_t> wanted = range(3, 9);
  for (int turn = 0; turn < 5; ++turn) {
    must(session->prefill(with_phrase(600, 333, 20 + static_cast<uint32_t>(turn))));
    for (const int32_t position : range(600 * turn + 333, 600 * turn + 344))
      wanted.push_back(position);
  }
  EXPECT_EQ(text_of(session->kv_map(), wanted), "");
  EXPECT_GT(session->stats().evicted_rows, 0);
  EXPECT_EQ(session->stats().protected_phrases, 55);
  EXPECT_EQ(session->stats().protected_spans, 6);
}

TEST_F(TinyProtection, NothingThatMatchesChangesNoBit) {
  const std::vector<Token> prompt = words(500, 5);
  for (const std::string& policy : evicting_scorers()) {
    SessionOptions options = session_options({.budget = "20%", .policy = policy, .prompt = 500, .generated = 60});
    const auto plain = open_session(*model_, options);
    const std::vector<Token> expected = greedy(*plain, prompt, 60);
    options.protect.phrases = {{.text = "\xC3\x89tude"}};
    options.protect.overflow = ProtectOverflow::oldest;
    const auto session = open_session(*model_, options);
    EXPECT_EQ(greedy(*session, prompt, 60), expected) << policy;
    EXPECT_EQ(session->kv_map().layers, plain->kv_map().layers) << policy;
    EXPECT_EQ(logits_of(*session), logits_of(*plain)) << policy;
    EXPECT_TRUE(plain->kv_map().protected_by.empty());
  }
}

TEST_F(TinyProtection, TooMuchIsRefusedWithABudgetThatWorks) {
  const std::vector<Token> prompt = words(800, 6);
  for (const char* text : {"130KiB", "10%", "80tok"}) {
    for (const PrefillOrder order : {PrefillOrder::automatic, PrefillOrder::chunked}) {
      SessionOptions options = session_options({.budget = text, .policy = "andpro", .prompt = 800, .generated = 40});
      options.order = order;
      options.protect.spans = {{.begin = 100, .end = 400}};
      const auto session = open_session(*model_, options);
      const Status status = session->prefill(prompt);
      ASSERT_FALSE(status.ok()) << text;
      EXPECT_EQ(status.error().code, ErrorCode::budget_impossible);
      EXPECT_EQ(session->n_tokens(), 0);
      EXPECT_EQ(session->stats().kv_live_bytes, 0);
      const std::string& message = status.error().message;
      EXPECT_NE(message.find("300 in spans"), std::string::npos) << message;
      EXPECT_NE(message.find(std::string("--kv-budget ") + text), std::string::npos) << message;
      std::smatch found;
      ASSERT_TRUE(std::regex_search(message, found, std::regex("; (\\d+(KiB|tok)) is enough"))) << message;
      options.budget = budget(found[1]);
      const auto enough = open_session(*model_, options);
      must(enough->prefill(prompt));
      for (int i = 0; i < 40; ++i)
        must(enough->decode(argmax(enough->logits())));
      EXPECT_EQ(text_of(enough->kv_map(), range(100, 400)), "") << text;
    }
  }
}

TEST_F(TinyProtection, ARefusedTurnLeavesTheSessionAsItWas) {
  SessionOptions options = session_options({.budget = "200KiB", .policy = "andpro", .prompt = 4096, .generated = -1});
  options.protect.phrases = {{.text = kPhrase}};
  const auto touched = open_session(*model_, options);
  const auto untouched = open_session(*model_, options);
  for (const auto& session : {touched.get(), untouched.get()})
    must(session->prefill(with_phrase(300, 40, 7)));
  std::vector<Token> flood;
  while (flood.size() < 2000) {
    const std::vector<Token> more = model_->tokenize(kPhrase + ". ", false, false);
    flood.insert(flood.end(), more.begin(), more.end());
  }
  const Status status = touched->prefill(flood);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::budget_impossible);
  EXPECT_EQ(touched->n_tokens(), 300);
  EXPECT_EQ(touched->kv_map().layers, untouched->kv_map().layers);
  const std::vector<Token> next = with_phrase(500, 200, 8);
  EXPECT_EQ(greedy(*touched, next, 50), greedy(*untouched, next, 50));
  EXPECT_EQ(touched->kv_map().layers, untouched->kv_map().layers);

  options.protect.overflow = ProtectOverflow::oldest;
  const auto oldest = open_session(*model_, options);
  must(oldest->prefill(with_phrase(300, 40, 7)));
  must(oldest->prefill(flood));
  EXPECT_GT(oldest->stats().protected_dropped, 1000);
  const int64_t held = oldest->stats().protected_phrases;
  EXPECT_GT(held, 20);
  std::vector<int32_t> wanted;
  const std::vector<ProtectedBy> by = oldest->kv_map().protected_by;
  for (size_t i = 0; i < by.size(); ++i) {
    if (by[i] == ProtectedBy::phrase)
      wanted.push_back(static_cast<int32_t>(i));
  }
  EXPECT_GT(wanted.front(), 1500) << "the oldest went";
  EXPECT_EQ(text_of(oldest->kv_map(), wanted), "");
  for (int i = 0; i < 200; ++i)
    must(oldest->decode(flood[static_cast<size_t>(i)]));
  EXPECT_LE(oldest->stats().kv_peak_bytes, oldest->stats().kv_budget_bytes);
}

TEST_F(TinyProtection, DecodingIntoTooMuchEndsWithAnErrorAndNothingIsLost) {
  SessionOptions options = session_options({.budget = "110KiB", .policy = "snapkv", .prompt = 60, .generated = -1});
  options.protect.phrases = {{.text = "x"}};
  const auto session = open_session(*model_, options);
  must(session->prefill(words(60, 9)));
  const std::vector<Token> x = model_->tokenize("x ", false, false);
  Status status;
  int n = 0;
  for (; status.ok() && n < 400; ++n)
    status = session->decode(x[static_cast<size_t>(n % 2)]);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::budget_impossible);
  EXPECT_EQ(session->n_tokens(), 60 + n - 1);
  const KvMap before = session->kv_map();
  EXPECT_FALSE(session->decode(x[0]).ok());
  EXPECT_EQ(session->kv_map().layers, before.layers);
}

TEST_F(TinyProtection, AForkProtectsWhatAPrefillWould) {
  const std::vector<Token> prompt = with_phrase(700, 123, 10);
  SessionOptions full = session_options({.policy = "none", .prompt = 700});
  full.n_observed = 64;
  const auto parent = open_session(*model_, full);
  must(parent->prefill(prompt));
  SessionOptions options = session_options({.budget = "5%", .policy = "snapkv", .prompt = 700, .generated = 8});
  options.order = PrefillOrder::layer_major;
  options.protect = {.phrases = {{.text = kPhrase}}, .domain = list_domains().front().definition};
  const auto own = open_session(*model_, options);
  must(own->prefill(prompt));
  Result<std::unique_ptr<Session>> fork = parent->fork(options);
  ASSERT_TRUE(fork.ok()) << fork.error().message;
  EXPECT_EQ((*fork)->kv_map().layers, own->kv_map().layers);
  EXPECT_EQ(text_of(own->kv_map(), range(123, 134)), "");
  options.protect.spans = {{.begin = 0, .end = 500}};
  EXPECT_EQ(parent->fork(options).error().code, ErrorCode::budget_impossible);
}

TEST_F(TinyProtection, SpecialTokensStayWithinTheirQuota) {
  std::vector<Token> prompt = words(800, 14);
  for (const int at : {50, 150, 250, 350, 450})
    prompt[static_cast<size_t>(at)] = 257;  // <|im_end|>
  SessionOptions options = session_options({.budget = "40tok", .policy = "random", .prompt = 800, .generated = 8});
  options.protect.special_quota = 3;
  const auto session = open_session(*model_, options);
  must(session->prefill(prompt));
  EXPECT_EQ(text_of(session->kv_map(), {250, 350, 450}), "");
  EXPECT_NE(text_of(session->kv_map(), {50, 150}), "");
  EXPECT_EQ(session->stats().protected_special, 3);
}

TEST_F(TinyProtection, WhatIsNotValidIsRefusedWhenTheSessionIsMade) {
  SessionOptions options = session_options({.budget = "10%", .policy = "andpro", .prompt = 800});
  options.protect.phrases = {{.text = "fine"}, {.text = "\xFF"}};
  EXPECT_EQ(Session::create(*model_, options).error().code, ErrorCode::usage);
  options.protect = {.domain = "x = ["};
  EXPECT_EQ(Session::create(*model_, options).error().code, ErrorCode::usage);
}

// Real text and tokens: a phrase of several tokens, early, in the middle and late, at keep 2 %, under every scorer.
TEST(RealProtection, APhraseStaysInEveryLayerAndHeadAtTwoPercent) {
  ASSERT_FALSE(real_model_path().empty()) << "KEDGE_MODEL names no file";
  const auto model = open_model(real_model_path());
  std::vector<Token> text = model->tokenize(real_text().substr(40000, 6000), false, false);
  ASSERT_GT(text.size(), 1100U);
  text.resize(1100);
  const std::vector<Token> phrase = model->tokenize(" the Bluebird-7 treaty.", false, false);
  for (const size_t at : {200U, 600U, 1000U})
    std::ranges::copy(phrase, text.begin() + static_cast<std::ptrdiff_t>(at));
  SessionOptions full = session_options({.policy = "none", .prompt = 1100});
  full.n_observed = 256;
  full.histories = {.attention_sum = true, .echo = true, .query_moments = true, .reconstruction = true, .gate = true};
  const auto parent = open_session(*model, full);
  must(parent->prefill(text));
  const std::string wanted_text = "bluebird-7  TREATY";
  for (const std::string& policy : evicting_scorers()) {
    SessionOptions options =
        session_options({.budget = "2%", .policy = policy, .prompt = 1100, .generated = 8, .hold_continuation = true});
    Result<std::unique_ptr<Session>> without = parent->fork(options);
    ASSERT_TRUE(without.ok()) << policy << ": " << without.error().message;
    options.protect.phrases = {{.text = wanted_text}};
    options.sinks = "1";
    options.protect.overflow = ProtectOverflow::oldest;  // three do not fit beside the rest
    Result<std::unique_ptr<Session>> with = parent->fork(options);
    ASSERT_TRUE(with.ok()) << policy << ": " << with.error().message;
    const KvMap map = (*with)->kv_map();
    std::vector<int32_t> wanted;
    std::string held;
    for (size_t i = 0; i < map.protected_by.size(); ++i) {
      if (map.protected_by[i] != ProtectedBy::phrase)
        continue;
      wanted.push_back(static_cast<int32_t>(i));
      held += model->piece(text[i]);
    }
    EXPECT_NE(held.find("Bluebird-7 treaty"), std::string::npos) << held;
    EXPECT_EQ(text_of(map, wanted), "") << policy;
    EXPECT_NE(text_of((*without)->kv_map(), wanted), "") << policy << " keeps it anyway: the test shows nothing";
    EXPECT_EQ((*with)->stats().kv_rows, (*without)->stats().kv_rows) << policy;
  }
}

}  // namespace
}  // namespace kedge::test
