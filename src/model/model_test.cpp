#include "model/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <llama.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <random>

#include "model/naive_attention.h"
#include "model/tokenizer.h"
#include "tensor/test_gguf.h"

namespace kedge::model {
namespace {

using tensor::PromptWeights;

std::unique_ptr<tensor::Compute> make_compute(int n_threads) {
  auto compute = tensor::Compute::create({.n_threads = n_threads, .pin = false});
  EXPECT_TRUE(compute.ok());
  return *std::move(compute);
}

// Logits [n_tokens, n_vocab] of all tokens through embed, every layer and the head, in one graph.
std::vector<float> logits_of(tensor::Compute& compute, const Model& model, const std::vector<Token>& tokens) {
  NaiveAttention port(model.hyper());
  tensor::Graph graph(compute, model.weights());
  const auto n = static_cast<int64_t>(tokens.size());
  tensor::Tensor ids = graph.input_i32(n);
  tensor::Tensor positions = graph.input_i32(n);
  tensor::Tensor x = model.embed(graph, ids);
  for (int il = 0; il < model.hyper().n_layers; ++il)
    x = model.layer(graph, il, x, positions, 0, port);
  tensor::Tensor logits = model.head(graph, x);
  graph.output(logits);
  EXPECT_TRUE(graph.finish().ok());
  std::vector<int32_t> position(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i)
    position[i] = static_cast<int32_t>(i);
  graph.set(ids, std::span<const int32_t>(tokens));
  graph.set(positions, std::span<const int32_t>(position));
  graph.run();
  const std::span<const float> all = graph.read(logits);
  return {all.begin(), all.end()};
}

// The same from libllama: no flash attention, f32 rows.
std::vector<float> llama_logits(const std::string& path, std::vector<Token> tokens, int n_threads) {
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_model_params model_params = llama_model_default_params();
  model_params.use_extra_bufts = false;  // AMX in a ggml built by GCC 12 dies of SIGILL (tensor/weights.cpp)
  llama_model* model = llama_model_load_from_file(path.c_str(), model_params);
  llama_context_params params = llama_context_default_params();
  params.n_ctx = 512;
  params.n_batch = 512;
  params.n_threads = params.n_threads_batch = n_threads;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.type_k = params.type_v = GGML_TYPE_F32;
  llama_context* context = llama_init_from_model(model, params);
  const auto n = static_cast<int32_t>(tokens.size());
  llama_batch batch = llama_batch_init(n, 0, 1);
  for (int32_t i = 0; i < n; ++i) {
    batch.token[i] = tokens[static_cast<size_t>(i)];
    batch.pos[i] = i;
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = 1;
  }
  batch.n_tokens = n;
  std::vector<float> all;
  if (llama_decode(context, batch) == 0) {
    const size_t count = tokens.size() * static_cast<size_t>(llama_vocab_n_tokens(llama_model_get_vocab(model)));
    const float* logits = llama_get_logits(context);
    all.assign(logits, logits + count);
  }
  llama_batch_free(batch);
  llama_free(context);
  llama_model_free(model);
  return all;
}

// Mean KL divergence of q from p over rows of n_vocab logits; also counts equal top tokens.
struct Distance {
  double kld = 0;
  double same_top = 0;
};
Distance distance(const std::vector<float>& p, const std::vector<float>& q, size_t n_vocab) {
  const size_t n = p.size() / n_vocab;
  Distance result;
  for (size_t row = 0; row < n; ++row) {
    const float* a = p.data() + row * n_vocab;
    const float* b = q.data() + row * n_vocab;
    const auto log_sum = [n_vocab](const float* x) {
      const double top = static_cast<double>(*std::max_element(x, x + n_vocab));
      double sum = 0;
      for (size_t i = 0; i < n_vocab; ++i)
        sum += std::exp(static_cast<double>(x[i]) - top);
      return top + std::log(sum);
    };
    const double la = log_sum(a);
    const double lb = log_sum(b);
    for (size_t i = 0; i < n_vocab; ++i) {
      const double log_p = static_cast<double>(a[i]) - la;
      result.kld += std::exp(log_p) * (log_p - (static_cast<double>(b[i]) - lb)) / static_cast<double>(n);
    }
    result.same_top += std::max_element(a, a + n_vocab) - a == std::max_element(b, b + n_vocab) - b
                           ? 1.0 / static_cast<double>(n)
                           : 0.0;
  }
  return result;
}

// A random llama in f32 without a vocabulary, small enough to compute in microseconds.
struct Tiny {
  int n_layers = 2, n_embd = 64, n_heads = 4, n_kv_heads = 2, head_dim = 16, n_ff = 96, n_vocab = 50;
  bool tied = false, biases = false;
  std::function<void(tensor::TestGguf&)> more;  // further keys and tensors, written last: they override
  std::string without;                          // a key to leave out

  std::vector<std::byte> bytes() const {
    tensor::TestGguf g;
    g.text("general.architecture", "llama");
    g.text("general.name", "tiny");
    g.u32("llama.block_count", static_cast<uint32_t>(n_layers));
    g.u32("llama.context_length", 256);
    g.u32("llama.embedding_length", static_cast<uint32_t>(n_embd));
    g.u32("llama.feed_forward_length", static_cast<uint32_t>(n_ff));
    g.u32("llama.attention.head_count", static_cast<uint32_t>(n_heads));
    g.u32("llama.attention.head_count_kv", static_cast<uint32_t>(n_kv_heads));
    g.u32("llama.attention.key_length", static_cast<uint32_t>(head_dim));
    g.u32("llama.attention.value_length", static_cast<uint32_t>(head_dim));
    g.u32("llama.rope.dimension_count", static_cast<uint32_t>(head_dim));
    g.f32("llama.attention.layer_norm_rms_epsilon", 1e-5F);
    g.u32("llama.vocab_size", static_cast<uint32_t>(n_vocab));
    g.text("tokenizer.ggml.model", "no_vocab");
    std::mt19937 random(7);
    const auto add = [&](const std::string& name, std::vector<int64_t> ne, float centre, float spread) {
      std::normal_distribution<float> normal(centre, spread);
      std::vector<float> values(static_cast<size_t>(ne[0] * (ne.size() > 1 ? ne[1] : 1)));
      for (float& v : values)
        v = normal(random);
      g.tensor(name, GGML_TYPE_F32, std::move(ne), values);
    };
    const int64_t n_q = int64_t{n_heads} * head_dim;
    const int64_t n_kv = int64_t{n_kv_heads} * head_dim;
    add("token_embd.weight", {n_embd, n_vocab}, 0, 0.5F);
    add("output_norm.weight", {n_embd}, 1, 0.1F);
    if (!tied)
      add("output.weight", {n_embd, n_vocab}, 0, 0.3F);
    for (int il = 0; il < n_layers; ++il) {
      const std::string p = "blk." + std::to_string(il) + ".";
      add(p + "attn_norm.weight", {n_embd}, 1, 0.1F);
      add(p + "attn_q.weight", {n_embd, n_q}, 0, 0.3F);
      add(p + "attn_k.weight", {n_embd, n_kv}, 0, 0.3F);
      add(p + "attn_v.weight", {n_embd, n_kv}, 0, 0.2F);
      add(p + "attn_output.weight", {n_q, n_embd}, 0, 0.2F);
      add(p + "ffn_norm.weight", {n_embd}, 1, 0.1F);
      add(p + "ffn_gate.weight", {n_embd, n_ff}, 0, 0.2F);
      add(p + "ffn_up.weight", {n_embd, n_ff}, 0, 0.2F);
      add(p + "ffn_down.weight", {n_ff, n_embd}, 0, 0.2F);
      if (!biases)
        continue;
      add(p + "attn_q.bias", {n_q}, 0, 0.5F);
      add(p + "attn_k.bias", {n_kv}, 0, 0.5F);
      add(p + "attn_v.bias", {n_kv}, 0, 0.5F);
      add(p + "attn_output.bias", {n_embd}, 0, 0.5F);
      add(p + "ffn_gate.bias", {n_ff}, 0, 0.5F);
      add(p + "ffn_up.bias", {n_ff}, 0, 0.5F);
      add(p + "ffn_down.bias", {n_embd}, 0, 0.5F);
    }
    if (more)
      more(g);
    if (!without.empty())
      gguf_remove_key(g.keys(), without.c_str());
    return g.bytes();
  }
};

std::vector<Token> some_tokens(size_t n, int n_vocab) {
  std::vector<Token> tokens(n);
  for (size_t i = 0; i < n; ++i)
    tokens[i] = static_cast<Token>((i * i * 7 + 3 * i + 1) % static_cast<size_t>(n_vocab));
  return tokens;
}

struct Variant {
  std::string name;
  Tiny tiny;
};

std::vector<Variant> variants() {
  using tensor::TestGguf;
  std::vector<Variant> all;
  all.push_back({"plain", {}});
  all.push_back({"one_kv_head", {.n_kv_heads = 1}});
  all.push_back({"no_groups", {.n_kv_heads = 4}});
  all.push_back({"wide_heads", {.n_layers = 1, .n_heads = 3, .n_kv_heads = 1, .head_dim = 48}});
  all.push_back({"tied", {.tied = true}});
  all.push_back({"biases", {.biases = true}});
  all.push_back({"freq_base", {.more = [](TestGguf& g) { g.f32("llama.rope.freq_base", 500000.0F); }}});
  all.push_back({"linear", {.more = [](TestGguf& g) { g.f32("llama.rope.scaling.factor", 4.0F); }}});
  all.push_back({"scale_linear", {.more = [](TestGguf& g) { g.f32("llama.rope.scale_linear", 2.0F); }}});
  all.push_back({"none", {.more = [](TestGguf& g) {
                   g.text("llama.rope.scaling.type", "none");
                   g.f32("llama.rope.scaling.factor", 4.0F);
                 }}});
  all.push_back({"yarn", {.more = [](TestGguf& g) {
                   g.text("llama.rope.scaling.type", "yarn");
                   g.f32("llama.rope.scaling.factor", 4.0F);
                   g.u32("llama.rope.scaling.original_context_length", 64);
                 }}});
  all.push_back({"yarn_attn_factor", {.more = [](TestGguf& g) {
                   g.text("llama.rope.scaling.type", "yarn");
                   g.f32("llama.rope.scaling.factor", 2.0F);
                   g.f32("llama.rope.scaling.attn_factor", 1.25F);
                 }}});
  all.push_back({"llama3_factors", {.more = [](TestGguf& g) {
                   g.tensor("rope_freqs.weight", GGML_TYPE_F32, {8}, {1, 1, 1.5F, 2, 4, 8, 8, 8});
                 }}});
  all.push_back({"ignored_window", {.more = [](TestGguf& g) { g.u32("llama.attention.sliding_window", 256); }}});
  return all;
}

TEST(TinyModel, EveryVariantMatchesLibllama) {
  const auto compute = make_compute(1);
  for (const Variant& variant : variants()) {
    const tensor::TempFile file(variant.tiny.bytes());
    const auto model = load_model(*compute, file.path(), {});
    ASSERT_TRUE(model.ok()) << variant.name << ": " << model.error().message;
    const std::vector<Token> tokens = some_tokens(70, variant.tiny.n_vocab);
    const std::vector<float> ours = logits_of(*compute, **model, tokens);
    const std::vector<float> theirs = llama_logits(file.path(), tokens, 1);
    ASSERT_EQ(ours.size(), theirs.size()) << variant.name;
    double worst = 0;
    for (size_t i = 0; i < ours.size(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>(ours[i]) - static_cast<double>(theirs[i])));
    EXPECT_LT(worst, 1e-3) << variant.name;
  }
}

TEST(TinyModel, HyperParams) {
  const auto compute = make_compute(1);
  const tensor::TempFile file(Tiny{.tied = true}.bytes());
  const auto model = load_model(*compute, file.path(), {});
  ASSERT_TRUE(model.ok()) << model.error().message;
  const HyperParams& h = (*model)->hyper();
  EXPECT_EQ(h.architecture, "llama");
  EXPECT_EQ(h.name, "tiny");
  EXPECT_EQ(h.n_layers, 2);
  EXPECT_EQ(h.group(), 2);
  EXPECT_EQ(h.head_dim, 16);
  EXPECT_EQ(h.n_vocab, 50);
  EXPECT_EQ(h.n_ctx_train, 256);
  EXPECT_FLOAT_EQ(h.attention_scale, 0.25F);
  EXPECT_EQ(h.weight_type, "f32");
  EXPECT_EQ(h.weight_bytes, 4 * h.n_params);
  EXPECT_EQ(h.n_params, 50 * 64 + 64 + 2 * (2 * 64 + 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96));
  EXPECT_THAT(known_architectures(), ::testing::Contains("llama"));
}

TEST(TinyModel, LastRowsAloneAreTheSame) {
  const auto compute = make_compute(2);
  const tensor::TempFile file(Tiny{.n_layers = 1}.bytes());
  const auto model = load_model(*compute, file.path(), {});
  ASSERT_TRUE(model.ok());
  const std::vector<Token> tokens = some_tokens(20, 50);
  const std::vector<float> all = logits_of(*compute, **model, tokens);
  NaiveAttention port((*model)->hyper());
  tensor::Graph graph(*compute, (*model)->weights());
  tensor::Tensor ids = graph.input_i32(20);
  tensor::Tensor positions = graph.input_i32(20);
  tensor::Tensor logits =
      (*model)->head(graph, (*model)->layer(graph, 0, (*model)->embed(graph, ids), positions, 3, port));
  graph.output(logits);
  ASSERT_TRUE(graph.finish().ok());
  std::vector<int32_t> position(20);
  for (int i = 0; i < 20; ++i)
    position[static_cast<size_t>(i)] = i;
  graph.set(ids, std::span<const int32_t>(tokens));
  graph.set(positions, std::span<const int32_t>(position));
  graph.run();
  const auto last = graph.read(logits);
  ASSERT_EQ(last.size(), 3U * 50);
  EXPECT_EQ(port.n_rows(), 20U);
  for (size_t i = 0; i < last.size(); ++i)
    ASSERT_NEAR(last[i], all[17 * 50 + i], 1e-4);
}

TEST(TinyModel, AReplayedDecodeGraphContinuesAPrompt) {
  const auto compute = make_compute(2);
  const tensor::TempFile file(Tiny{}.bytes());
  const auto model = load_model(*compute, file.path(), {});
  ASSERT_TRUE(model.ok());
  const std::vector<Token> tokens = some_tokens(12, 50);
  const std::vector<float> all = logits_of(*compute, **model, tokens);
  NaiveAttention port((*model)->hyper());
  tensor::Graph graph(*compute, (*model)->weights());
  tensor::Tensor id = graph.input_i32(1);
  tensor::Tensor position = graph.input_i32(1);
  tensor::Tensor x = (*model)->embed(graph, id);
  for (int il = 0; il < 2; ++il)
    x = (*model)->layer(graph, il, x, position, 0, port);
  tensor::Tensor logits = (*model)->head(graph, x);
  graph.output(logits);
  ASSERT_TRUE(graph.finish().ok());
  for (size_t t = 0; t < tokens.size(); ++t) {
    const int32_t at = static_cast<int32_t>(t);
    graph.set(id, std::span<const int32_t>(&tokens[t], 1));
    graph.set(position, std::span<const int32_t>(&at, 1));
    graph.run();
    for (size_t i = 0; i < 50; ++i)
      ASSERT_NEAR(graph.read(logits)[i], all[t * 50 + i], 1e-4) << "token " << t;
  }
}

struct Refusal {
  std::string expected;  // part of the message
  Tiny tiny;
};

TEST(TinyModel, RefusesByName) {
  using tensor::TestGguf;
  const auto key = [](const std::string& name, uint32_t value) {
    return Tiny{.more = [=](TestGguf& g) { g.u32(name, value); }};
  };
  const auto text = [](const std::string& name, const std::string& value) {
    return Tiny{.more = [=](TestGguf& g) { g.text(name, value); }};
  };
  const uint32_t two[] = {4, 4};
  const std::vector<Refusal> refusals = {
      {"key 'general.architecture': found 'mamba', allowed llama", text("general.architecture", "mamba")},
      {"key 'general.architecture': found u32, allowed a string", key("general.architecture", 1)},
      {"key 'general.architecture': not found", {.without = "general.architecture"}},
      {"key 'llama.expert_count': found a mixture of experts", key("llama.expert_count", 8)},
      {"key 'llama.block_count': found 0, allowed 1..1024", key("llama.block_count", 0)},
      {"key 'llama.block_count': found 5000, allowed 1..1024", key("llama.block_count", 5000)},
      {"key 'llama.block_count': found str, allowed an integer", text("llama.block_count", "2")},
      {"tensor 'blk.2.attn_norm.weight': not found", key("llama.block_count", 3)},
      {"tensor 'blk.1.", key("llama.block_count", 1)},  // tensors nothing asks for
      {"key 'llama.context_length': not found", {.without = "llama.context_length"}},
      {"key 'llama.attention.layer_norm_rms_epsilon': not found",
       {.without = "llama.attention.layer_norm_rms_epsilon"}},
      {"key 'llama.attention.head_count_kv': found 3, allowed divisors of head_count 4",
       key("llama.attention.head_count_kv", 3)},
      {"key 'llama.attention.head_count': found array of u32, allowed an integer",
       {.more =
            [&](TestGguf& g) { gguf_set_arr_data(g.keys(), "llama.attention.head_count", GGUF_TYPE_UINT32, two, 2); }}},
      {"key 'llama.attention.key_length': found 24, allowed multiples of 16", key("llama.attention.key_length", 24)},
      {"key 'llama.attention.key_length': found 512, allowed multiples of 16 up to 256",
       key("llama.attention.key_length", 512)},
      {"key 'llama.attention.value_length': found 32, allowed 16", key("llama.attention.value_length", 32)},
      {"key 'llama.rope.dimension_count': found 8, allowed 16", key("llama.rope.dimension_count", 8)},
      {"key 'llama.attention.sliding_window': found 128, allowed none, or 256",
       key("llama.attention.sliding_window", 128)},
      {"key 'llama.rope.scaling.type': found 'longrope', allowed none, linear, yarn",
       text("llama.rope.scaling.type", "longrope")},
      {"key 'llama.rope.scaling.factor': found -2",
       {.more = [](TestGguf& g) { g.f32("llama.rope.scaling.factor", -2.0F); }}},
      {"tensor 'token_embd.weight': found shape [64, 50], allowed [128, any]", key("llama.embedding_length", 128)},
      {"tensor 'blk.0.ffn_gate.weight': found shape [64, 96], allowed [64, 97]", key("llama.feed_forward_length", 97)},
      {"tensor 'rope_freqs.weight': found shape [4], allowed [8]",
       {.more =
            [](TestGguf& g) {
              g.tensor("rope_freqs.weight", GGML_TYPE_F32, {4}, {1, 1, 1, 1});
            }}},
      {"tensor 'blk.0.attn_q_norm.weight': found, but this architecture does not use it",
       {.more =
            [](TestGguf& g) { g.tensor("blk.0.attn_q_norm.weight", GGML_TYPE_F32, {16}, std::vector<float>(16, 1)); }}},
      {"key 'tokenizer.ggml.tokens': found 2 tokens, allowed 50",
       {.more =
            [](TestGguf& g) {
              const char* words[] = {"a", "b"};
              gguf_set_arr_str(g.keys(), "tokenizer.ggml.tokens", words, 2);
            }}},
  };
  const auto compute = make_compute(1);
  for (const Refusal& refusal : refusals) {
    const tensor::TempFile file(refusal.tiny.bytes());
    const auto model = load_model(*compute, file.path(), {});
    ASSERT_FALSE(model.ok()) << refusal.expected;
    EXPECT_EQ(model.error().code, ErrorCode::model_unreadable);
    EXPECT_THAT(model.error().message, ::testing::HasSubstr(refusal.expected));
    EXPECT_THAT(model.error().message, ::testing::StartsWith(file.path() + ": "));
  }
}

const char* real_model() { return std::getenv("KEDGE_MODEL"); }

constexpr std::string_view kText =
    "A kedge is a small anchor, carried out in a boat and dropped some way off, so that a ship can be hauled towards "
    "it. "
    "In rivers without wind the whole crew would do this all day, anchor after anchor, until the sea was reached.";

TEST(RealModel, MatchesLibllama) {
  if (real_model() == nullptr)
    GTEST_SKIP() << "KEDGE_MODEL is not set";
  const auto compute = make_compute(1);
  const auto tokenizer = Tokenizer::open(real_model());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const std::vector<Token> tokens = (*tokenizer)->tokenize(kText, true, false);
  ASSERT_GT(tokens.size(), 40U);
  const std::vector<float> theirs = llama_logits(real_model(), tokens, 1);
  for (const PromptWeights mode : {PromptWeights::native, PromptWeights::f32, PromptWeights::bf16}) {
    const auto model = load_model(*compute, real_model(), {.prompt_weights = mode, .repack = true});
    ASSERT_TRUE(model.ok()) << model.error().message;
    const std::vector<float> ours = logits_of(*compute, **model, tokens);
    ASSERT_EQ(ours.size(), theirs.size());
    const Distance d = distance(theirs, ours, static_cast<size_t>((*model)->hyper().n_vocab));
    RecordProperty("kld_mode_" + std::to_string(static_cast<int>(mode)), std::to_string(d.kld));
    EXPECT_LT(d.kld, 1e-2) << "mode " << static_cast<int>(mode);
    EXPECT_GT(d.same_top, 0.9) << "mode " << static_cast<int>(mode);
  }
}

}  // namespace
}  // namespace kedge::model
