// LoRA adapters over tiny random models: libllama says the same, weights with the adapter's part in them say the same,
// and what goes on with one does not go on without.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <random>

#include "door.h"
#include "llama_side/llama_side.h"
#include "model/model.h"
#include "same_future.h"
#include "support/kl.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"
#include "tensor/lora_file.h"
#include "tensor/test_gguf.h"

namespace kedge::test {
namespace {

struct AdapterOptions {
  int rank = 4;
  float alpha = 6;
  ggml_type type = GGML_TYPE_F32;
  bool attention = true;
  bool feed_forward = true;
};

struct AdapterMatrix {
  std::string name;
  int64_t n_in = 0, n_out = 0;
  std::vector<float> a, b;  // f32 [rank][n_in], [n_out][rank]
};

std::vector<AdapterMatrix> random_matrices(const TinyOptions& model, const AdapterOptions& adapter) {
  const int64_t n_q = int64_t{model.n_heads} * model.head_dim, n_kv = int64_t{model.n_kv_heads} * model.head_dim;
  struct Shape {
    const char* name;
    int64_t n_in, n_out;
    bool wanted;
  };
  const Shape shapes[] = {{"attn_q", model.n_embd, n_q, adapter.attention},
                          {"attn_k", model.n_embd, n_kv, adapter.attention},
                          {"attn_v", model.n_embd, n_kv, adapter.attention},
                          {"attn_output", n_q, model.n_embd, adapter.attention},
                          {"ffn_gate", model.n_embd, model.n_ff, adapter.feed_forward},
                          {"ffn_up", model.n_embd, model.n_ff, adapter.feed_forward},
                          {"ffn_down", model.n_ff, model.n_embd, adapter.feed_forward}};
  std::mt19937 random(5);
  const auto draw = [&](int64_t n, int64_t of) {
    std::normal_distribution<float> normal(0, 0.5F / std::sqrt(static_cast<float>(of)));
    std::vector<float> out(static_cast<size_t>(n));
    std::ranges::generate(out, [&] { return normal(random); });
    return out;
  };
  std::vector<AdapterMatrix> out;
  for (int layer = 0; layer < model.n_layers; ++layer) {
    for (const Shape& shape : shapes) {
      if (shape.wanted)
        out.push_back({"blk." + std::to_string(layer) + "." + shape.name + ".weight", shape.n_in, shape.n_out,
                       draw(adapter.rank * shape.n_in, shape.n_in), draw(shape.n_out * adapter.rank, adapter.rank)});
    }
  }
  return out;
}

// As Kedge writes it where it is f32, else by ggml's own writer.
std::vector<std::byte> adapter_bytes(const std::vector<AdapterMatrix>& matrices, const AdapterOptions& options) {
  if (options.type == GGML_TYPE_F32) {
    std::vector<tensor::LoraMatrices> all;
    for (const AdapterMatrix& one : matrices)
      all.push_back(
          {.matrix = one.name, .n_in = one.n_in, .n_out = one.n_out, .rank = options.rank, .a = one.a, .b = one.b});
    return tensor::lora_bytes({.name = "random", .description = "", .architecture = "llama", .alpha = options.alpha},
                              all);
  }
  tensor::TestGguf file;
  file.text("general.architecture", "llama");
  file.text("general.type", "adapter");
  file.text("general.name", "random");
  file.text("adapter.type", "lora");
  file.f32("adapter.lora.alpha", options.alpha);
  for (const AdapterMatrix& one : matrices) {
    file.tensor(one.name + ".lora_a", options.type, {one.n_in, options.rank}, one.a);
    file.tensor(one.name + ".lora_b", options.type, {options.rank, one.n_out}, one.b);
  }
  return file.bytes();
}

void write_adapter(const std::string& path, const std::vector<AdapterMatrix>& matrices, const AdapterOptions& options) {
  const std::vector<std::byte> bytes = adapter_bytes(matrices, options);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

std::unique_ptr<Model> with_adapter(const std::string& path, const std::string& lora, float scale = 1) {
  Result<std::unique_ptr<Model>> model = Model::load({.path = path, .lora = lora, .lora_scale = scale, .n_threads = 1});
  EXPECT_TRUE(model.ok()) << (model ? "" : model.error().message);
  return model ? *std::move(model) : nullptr;
}

// Of every token: the first 80 as a prompt (of which the last speaks), a batch, and the last three one by one.
std::vector<std::vector<float>> logits_from(const Model& model, std::span<const Token> tokens) {
  std::vector<std::vector<float>> out;
  const auto session = open_session(model, session_options({.policy = "none", .prompt = std::ssize(tokens)}));
  must(session->prefill(tokens.first(80)));
  out.push_back(logits_of(*session));
  for (std::vector<float>& row : score_all(*session, tokens.subspan(80, tokens.size() - 83)))
    out.push_back(std::move(row));
  for (const Token token : tokens.last(3)) {
    must(session->decode(token));
    out.push_back(logits_of(*session));
  }
  return out;
}

Divergence distance(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  Divergence d;
  EXPECT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size() && i < b.size(); ++i)
    d.add(a[i], b[i]);
  return d;
}

struct Case {
  const char* name;
  TinyOptions model;
  AdapterOptions adapter;
  float scale = 1;
  double bound = 1e-3;  // of the largest difference of a logit; quantised products round at other places
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

class AdapterParity : public testing::TestWithParam<Case> {};

TEST_P(AdapterParity, EveryLogitIsLibllamas) {
  const Case& c = GetParam();
  const TempDir dir;
  const std::string path = dir.file("tiny.gguf"), lora = dir.file("lora.gguf");
  write_tiny_model(make_tiny_weights(c.model), path);
  write_adapter(lora, random_matrices(c.model, c.adapter), c.adapter);
  const std::vector<Token> tokens = random_tokens(140, 4);
  Result<std::unique_ptr<llama_side::LlamaSide>> llama = llama_side::LlamaSide::open({.path = path,
                                                                                      .lora = lora,
                                                                                      .lora_scale = c.scale,
                                                                                      .n_threads = 1,
                                                                                      .n_ctx = 256,
                                                                                      .flash_attention = false,
                                                                                      .kv_type = "f32",
                                                                                      .repack_weights = false});
  ASSERT_TRUE(llama.ok()) << llama.error().message;
  std::vector<std::vector<float>> expected;
  must((*llama)->score(tokens, [&](int64_t i, std::span<const float> row) {
    if (i >= 79)
      expected.emplace_back(row.begin(), row.end());
  }));
  const auto model = with_adapter(path, lora, c.scale);
  ASSERT_NE(model, nullptr);
  EXPECT_THAT(model->info().adapter, testing::StartsWith("random (sha256 "));
  const auto found = logits_from(*model, tokens);
  const Divergence d = distance(expected, found);
  EXPECT_LE(d.max_abs(), c.bound);
  const Divergence without = distance(found, logits_from(*open_model(path, 1), tokens));
  std::printf("%s: largest difference of a logit %.2e from libllama, %.2e from no adapter\n", c.name, d.max_abs(),
              without.max_abs());
  EXPECT_GT(without.max_abs(), 20 * c.bound) << "the adapter does something";
}

INSTANTIATE_TEST_SUITE_P(Cases, AdapterParity,
                         testing::Values(Case{"all", {}, {}}, Case{"attention", {}, {.feed_forward = false}, 0.5F},
                                         Case{"feed_forward", {.n_layers = 3}, {.rank = 1, .attention = false}, 0.25F},
                                         Case{"no_alpha", {}, {.alpha = 0}, 0.75F},
                                         Case{"negative", {}, {.alpha = 2}, -1},
                                         Case{"biases", {.n_heads = 2, .n_kv_heads = 1, .biases = true}, {}},
                                         Case{"f16", {}, {.type = GGML_TYPE_F16}, 1, 5e-3},
                                         Case{"q8_0", {}, {.rank = 32, .type = GGML_TYPE_Q8_0}, 1, 1e-2},
                                         Case{"over_q8_0", {.weights = WeightType::q8_0}, {.alpha = 12}, 1, 0.1}),
                         [](const testing::TestParamInfo<Case>& i) { return i.param.name; });

class Adapter : public testing::Test {
 protected:
  void SetUp() override {
    weights_ = make_tiny_weights(model_);
    write_tiny_model(weights_, path());
    matrices_ = random_matrices(model_, adapter_);
    write_adapter(lora(), matrices_, adapter_);
  }
  std::string path() const { return dir_.file("tiny.gguf"); }
  std::string lora() const { return dir_.file("lora.gguf"); }

  TempDir dir_;
  TinyOptions model_ = {.n_layers = 2};
  AdapterOptions adapter_ = {.rank = 3, .alpha = 6};
  TinyWeights weights_;
  std::vector<AdapterMatrix> matrices_;
};

// W + factor * B A as the file's weights: what the engine says, and what scorers take for W_O.
TEST_F(Adapter, IsTheModelWithItsPartInItsWeights) {
  for (const AdapterMatrix& one : matrices_) {
    TinyLayer& layer = weights_.layers[static_cast<size_t>(one.name[4] - '0')];
    const std::string kind = one.name.substr(6, one.name.size() - 6 - 7);
    std::vector<float>& w = kind == "attn_q"        ? layer.wq
                            : kind == "attn_k"      ? layer.wk
                            : kind == "attn_v"      ? layer.wv
                            : kind == "attn_output" ? layer.wo
                            : kind == "ffn_gate"    ? layer.gate
                            : kind == "ffn_up"      ? layer.up
                                                    : layer.down;
    const auto n_in = static_cast<size_t>(one.n_in), rank = static_cast<size_t>(adapter_.rank);
    for (size_t i = 0; i < w.size(); ++i) {
      for (size_t r = 0; r < rank; ++r)
        w[i] += 0.5F * 6 / 3 * one.b[i / n_in * rank + r] * one.a[r * n_in + i % n_in];
    }
  }
  write_tiny_model(weights_, dir_.file("merged.gguf"));
  const std::vector<Token> tokens = random_tokens(140, 4);
  const auto adapted = with_adapter(path(), lora(), 0.5F);
  const auto merged = open_model(dir_.file("merged.gguf"), 1);
  EXPECT_LE(distance(logits_from(*merged, tokens), logits_from(*adapted, tokens)).max_abs(), 1e-3);

  const auto compute = *tensor::Compute::create({.n_threads = 1, .pin = false});
  const auto a = *model::load_model(*compute, path(), {});
  const auto b = *model::load_model(*compute, dir_.file("merged.gguf"), {});
  must(a->use_lora(*compute, {.path = lora(), .scale = 0.5F}));
  const std::vector<float> w_o = a->output_projection(1), expected = b->output_projection(1);
  ASSERT_EQ(w_o.size(), expected.size());
  for (size_t i = 0; i < w_o.size(); ++i)
    ASSERT_NEAR(w_o[i], expected[i], 1e-6) << i;
  a->drop_lora();
  EXPECT_NE(a->output_projection(1), w_o);
}

TEST_F(Adapter, AtTheScaleZeroNoBitChanges) {
  const std::vector<Token> tokens = random_tokens(140, 4);
  EXPECT_EQ(logits_from(*with_adapter(path(), lora(), 0), tokens), logits_from(*open_model(path(), 1), tokens));
}

TEST_F(Adapter, ASessionGoesOnWithItsAdapterAndScaleOnly) {
  const std::string file = dir_.file("a.kedge");
  SessionOptions options = session_options({.budget = "30%", .policy = "andpro", .prompt = 200, .generated = 100});
  const auto model = with_adapter(path(), lora(), 0.5F);
  const auto session = open_session(*model, options);
  must(session->prefill(random_tokens(200, 1)));
  EXPECT_GT(session->stats().evicted_rows, 0);
  must(session->save(file));
  write_adapter(dir_.file("other.gguf"), matrices_, {.rank = 3, .alpha = 5});
  const auto refused = [&](const std::string& other, float scale) {
    const auto here = with_adapter(path(), other, scale);
    const auto restored = Session::restore(*here, file);
    return restored.ok() ? "none" : restored.error().message;
  };
  EXPECT_EQ(refused(lora(), 0.5F), "none");
  EXPECT_THAT(refused(lora(), 1), testing::AllOf(testing::HasSubstr("0.5"), testing::HasSubstr("--lora-scale")));
  EXPECT_THAT(refused("", 1), testing::AllOf(testing::HasSubstr("no adapter"), testing::HasSubstr("--lora FILE")));
  EXPECT_THAT(refused(dir_.file("other.gguf"), 0.5F), testing::HasSubstr("adapter of sha256"));

  const auto plain = Model::load({.path = path(), .n_threads = 1});
  must(open_session(**plain, options)->save(file));
  EXPECT_THAT(refused(lora(), 0.5F), testing::HasSubstr("saved with no adapter"));
  EXPECT_EQ(refused("", 1), "none");
}

TEST_F(Adapter, GoesOnAsItWas) {
  const std::string file = dir_.file("a.kedge");
  const auto model = with_adapter(path(), lora());
  const auto session =
      open_session(*model, session_options({.budget = "30%", .policy = "andpro", .prompt = 200, .generated = 200}));
  must(session->prefill(random_tokens(200, 1)));
  must(session->save(file));
  const auto again = Session::restore(*model, file);
  ASSERT_TRUE(again.ok()) << again.error().message;
  expect_same_future(*session, **again);
}

TEST_F(Adapter, OneThatIsNoneIsRefused) {
  const auto error_of = [&](const std::string& lora, float scale = 1) {
    const auto model = Model::load({.path = path(), .lora = lora, .lora_scale = scale, .n_threads = 1});
    EXPECT_FALSE(model.ok());
    return model.ok() ? Error{} : model.error();
  };
  EXPECT_EQ(error_of(dir_.file("none.gguf")).code, ErrorCode::model_unreadable);
  EXPECT_EQ(error_of(path()).code, ErrorCode::model_unreadable);
  EXPECT_EQ(error_of(lora(), NAN).code, ErrorCode::usage);
  matrices_.back().name = "output.weight";
  write_adapter(lora(), matrices_, adapter_);
  EXPECT_THAT(error_of(lora()).message,
              testing::AllOf(testing::HasSubstr("output.weight"), testing::HasSubstr("blk.1.ffn_down.weight")));
}

}  // namespace
}  // namespace kedge::test
