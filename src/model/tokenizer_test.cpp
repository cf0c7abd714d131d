#include "model/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <random>

#include "tensor/gguf_file.h"
#include "tensor/test_gguf.h"

namespace kedge::model {
namespace {

using tensor::TempFile;
using tensor::TestGguf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kFirstByte = 3;
constexpr int kWords = 3 + 256;  // id of the first word below

// A vocabulary of the "llama" kind: <unk> <s> </s>, a token a byte, a few words and a marker of a chat.
struct Vocabulary {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<float> scores = {0, 0, 0};
  std::vector<int32_t> types = {2, 3, 3};  // unknown, control, control
  std::string chat_template =
      "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";
  std::function<void(TestGguf&)> more;

  Vocabulary() {
    for (int b = 0; b < 256; ++b) {
      char text[8];
      std::snprintf(text, sizeof(text), "<0x%02X>", b);
      add(text, 0, 6);
    }
    add("\xE2\x96\x81", -1, 1);  // the space
    add("a", -2, 1);
    add("b", -3, 1);
    add("ab", -0.5F, 1);
    add("\xE2\x96\x81"
        "ab",
        -0.25F, 1);
    add("<|im_start|>", 0, 3);
  }
  void add(const std::string& text, float score, int32_t type) {
    tokens.push_back(text);
    scores.push_back(score);
    types.push_back(type);
  }
  std::vector<std::byte> bytes() const {
    TestGguf g;
    g.text("general.architecture", "llama");
    g.text("tokenizer.ggml.model", "llama");
    std::vector<const char*> texts;
    for (const std::string& t : tokens)
      texts.push_back(t.c_str());
    gguf_set_arr_str(g.keys(), "tokenizer.ggml.tokens", texts.data(), texts.size());
    gguf_set_arr_data(g.keys(), "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, scores.data(), scores.size());
    gguf_set_arr_data(g.keys(), "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types.data(), types.size());
    g.u32("tokenizer.ggml.bos_token_id", 1);
    g.u32("tokenizer.ggml.eos_token_id", 2);
    gguf_set_val_bool(g.keys(), "tokenizer.ggml.add_bos_token", true);
    if (!chat_template.empty())
      g.text("tokenizer.chat_template", chat_template);
    if (more)
      more(g);
    return g.bytes();
  }
};

std::unique_ptr<Tokenizer> open(const Vocabulary& vocabulary) {
  const TempFile file(vocabulary.bytes());
  auto opened = Tokenizer::open(file.path());
  EXPECT_TRUE(opened.ok()) << opened.error().message;
  return *std::move(opened);
}

TEST(Tokenizer, TokenizesAndBack) {
  const auto t = open({});
  EXPECT_EQ(t->n_vocab(), kWords + 6);
  EXPECT_EQ(t->bos(), 1);
  EXPECT_EQ(t->eos(), 2);
  EXPECT_TRUE(t->adds_bos());
  EXPECT_THAT(t->tokenize("ab", true, false), ElementsAre(1, kWords + 4));
  EXPECT_THAT(t->tokenize("ab", false, false), ElementsAre(kWords + 4));
  EXPECT_THAT(t->tokenize("", true, false), ElementsAre(1));
  EXPECT_THAT(t->tokenize("", false, false), ElementsAre());
  const std::string text = "ab\xC3\xA9 ba\n\x01";
  const std::vector<Token> tokens = t->tokenize(text, false, false);
  EXPECT_EQ(t->detokenize(tokens), " " + text);    // this kind of vocabulary puts a space first
  EXPECT_EQ(t->piece(kFirstByte + 0xC3), "\xC3");  // part of a character
}

TEST(Tokenizer, LongTextsNeedASecondCall) {
  const auto t = open({});
  const std::string text(5000, 'z');  // a byte a token
  const std::vector<Token> tokens = t->tokenize(text, true, false);
  EXPECT_GE(tokens.size(), 5001U);
  EXPECT_EQ(t->detokenize(tokens), " " + text);
}

TEST(Tokenizer, SpecialTokens) {
  const auto t = open({});
  const Token marker = kWords + 5;
  EXPECT_THAT(t->tokenize("<|im_start|>", false, true), ElementsAre(marker));
  EXPECT_GT(t->tokenize("<|im_start|>", false, false).size(), 5U);
  EXPECT_TRUE(t->is_control(marker));
  EXPECT_FALSE(t->is_control(kWords));
  EXPECT_TRUE(t->is_end_of_generation(2));
  EXPECT_FALSE(t->is_end_of_generation(kWords));
  EXPECT_EQ(t->piece(marker), "");
  EXPECT_EQ(t->piece(marker, true), "<|im_start|>");
  for (const Token outside : {-1, t->n_vocab(), 1 << 30}) {
    EXPECT_FALSE(t->is_control(outside));
    EXPECT_FALSE(t->is_end_of_generation(outside));
    EXPECT_EQ(t->piece(outside), "");
  }
}

TEST(Tokenizer, ChatTemplates) {
  const auto t = open({});
  const Tokenizer::Message messages[] = {{"system", "Be brief."}, {"user", "Hi"}};
  const std::string expected = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n";
  EXPECT_EQ(*t->apply_chat_template(messages, false, ""), expected);
  EXPECT_EQ(*t->apply_chat_template(messages, true, ""), expected + "<|im_start|>assistant\n");
  EXPECT_EQ(*t->apply_chat_template(messages, false, "chatml"), expected);
  const Tokenizer::Message long_message[] = {{"user", std::string(10000, 'x')}};
  EXPECT_GT(t->apply_chat_template(long_message, true, "")->size(), 10000U);
  const auto unknown = t->apply_chat_template(messages, true, "no such template\nsecond line");
  EXPECT_EQ(unknown.error().code, ErrorCode::usage);
  EXPECT_THAT(unknown.error().message, HasSubstr("'no such template'"));
  EXPECT_EQ(unknown.error().message.find('\n'), std::string::npos);
  Vocabulary without;
  without.chat_template = "";
  EXPECT_THAT(open(without)->apply_chat_template(messages, true, "").error().message, HasSubstr("the model has none"));
}

TEST(Tokenizer, DamagedVocabulariesAreErrors) {
  const auto error_of = [](const Vocabulary& vocabulary) {
    const TempFile file(vocabulary.bytes());
    const auto opened = Tokenizer::open(file.path());
    if (opened.ok())
      return std::string("opened");
    EXPECT_EQ(opened.error().code, ErrorCode::model_unreadable);
    EXPECT_EQ(opened.error().message.find('\n'), std::string::npos);
    return opened.error().message;
  };
  Vocabulary v;
  v.more = [](TestGguf& g) { g.text("tokenizer.ggml.model", "no_vocab"); };
  EXPECT_THAT(error_of(v), HasSubstr("tokenizer"));
  v.more = [](TestGguf& g) { g.text("tokenizer.ggml.model", "nonsense"); };
  EXPECT_THAT(error_of(v), HasSubstr("nonsense"));
  v.more = [](TestGguf& g) { gguf_remove_key(g.keys(), "tokenizer.ggml.tokens"); };
  EXPECT_THAT(error_of(v), HasSubstr("tokenizer"));
  v.more = [](TestGguf& g) { g.u32("tokenizer.ggml.tokens", 3); };
  EXPECT_NE(error_of(v), "opened");
  v.more = [](TestGguf& g) {
    const float one = 0;
    gguf_set_arr_data(g.keys(), "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, &one, 1);
  };
  EXPECT_NE(error_of(v), "opened");
  v.more = [](TestGguf& g) {
    const int32_t one = 1;
    gguf_set_arr_data(g.keys(), "tokenizer.ggml.token_type", GGUF_TYPE_INT32, &one, 1);
  };
  EXPECT_NE(error_of(v), "opened");
  Vocabulary no_bytes;
  no_bytes.tokens[kFirstByte + 'q'] = "qqq";
  no_bytes.types[kFirstByte + 'q'] = 1;
  EXPECT_THAT(error_of(no_bytes), HasSubstr("cannot write every byte"));
  EXPECT_THAT(Tokenizer::open("/nonexistent.gguf").error().message, HasSubstr("/nonexistent.gguf"));
}

// Whatever GgufFile lets through, libllama answers with a vocabulary or a null: no assertion, no exception.
TEST(Tokenizer, MutantsOpenOrFail) {
  const std::vector<std::byte> original = Vocabulary().bytes();
  std::mt19937 random(11);
  int n_opened = 0;
  int n_refused = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<std::byte> bytes = original;
    for (int c = 0; c < 3; ++c) {
      // The first and last part hold the small keys; the middle is text of tokens.
      const size_t at = random() % 4 == 0   ? random() % bytes.size()
                        : random() % 2 == 0 ? random() % 200
                                            : bytes.size() - 1 - random() % 700;
      bytes[at] = static_cast<std::byte>(random() % 2 == 0 ? random() % 14 : random() % 256);
    }
    const TempFile file(bytes);
    if (!tensor::GgufFile::open(file.path()).ok())
      continue;
    const auto opened = Tokenizer::open(file.path());
    (opened.ok() ? n_opened : n_refused)++;
    EXPECT_TRUE(!opened.ok() || (*opened)->tokenize("ab ab", true, true).size() <= 64U);
  }
  EXPECT_GT(n_opened, 20);
  EXPECT_GT(n_refused, 5);
}

TEST(Tokenizer, RealModel) {
  const char* path = std::getenv("KEDGE_MODEL");
  if (path == nullptr)
    GTEST_SKIP() << "KEDGE_MODEL is not set";
  const auto opened = Tokenizer::open(path);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const Tokenizer& t = **opened;
  const std::string text = "A kedge is a small anchor.\n\n\tÀ bientôt, 世界! 3.14159";
  EXPECT_EQ(t.detokenize(t.tokenize(text, false, false)), text);
  const Tokenizer::Message messages[] = {{"user", "Hi"}};
  const auto chat = t.apply_chat_template(messages, true, "");
  ASSERT_TRUE(chat.ok()) << chat.error().message;
  EXPECT_THAT(*chat, ::testing::EndsWith("<|im_start|>assistant\n"));
  EXPECT_TRUE(t.is_end_of_generation(t.eos()));
}

}  // namespace
}  // namespace kedge::model
