#include "model/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <llama.h>

#include <cmath>
#include <cstdlib>

#include "model/naive_attention.h"
#include "model/tokenizer.h"

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
  for (int il = 0; il < model.hyper().n_layers; ++il) x = model.layer(graph, il, x, positions, 0, port);
  tensor::Tensor logits = model.head(graph, x);
  graph.output(logits);
  EXPECT_TRUE(graph.finish().ok());
  std::vector<int32_t> position(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) position[i] = static_cast<int32_t>(i);
  graph.set(ids, std::span<const int32_t>(tokens));
  graph.set(positions, std::span<const int32_t>(position));
  graph.run();
  const std::span<const float> all = graph.read(logits);
  return {all.begin(), all.end()};
}

// The same from libllama: no flash attention, f32 rows.
std::vector<float> llama_logits(const std::string& path, std::vector<Token> tokens) {
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_model_params model_params = llama_model_default_params();
  llama_model* model = llama_model_load_from_file(path.c_str(), model_params);
  llama_context_params params = llama_context_default_params();
  params.n_ctx = 512;
  params.n_batch = 512;
  params.n_threads = params.n_threads_batch = 2;
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
      for (size_t i = 0; i < n_vocab; ++i) sum += std::exp(static_cast<double>(x[i]) - top);
      return top + std::log(sum);
    };
    const double la = log_sum(a);
    const double lb = log_sum(b);
    for (size_t i = 0; i < n_vocab; ++i) {
      const double log_p = static_cast<double>(a[i]) - la;
      result.kld += std::exp(log_p) * (log_p - (static_cast<double>(b[i]) - lb)) / static_cast<double>(n);
    }
    result.same_top += std::max_element(a, a + n_vocab) - a == std::max_element(b, b + n_vocab) - b ? 1.0 / static_cast<double>(n) : 0.0;
  }
  return result;
}

const char* real_model() { return std::getenv("KEDGE_MODEL"); }

constexpr std::string_view kText =
    "A kedge is a small anchor, carried out in a boat and dropped some way off, so that a ship can be hauled towards it. "
    "In rivers without wind the whole crew would do this all day, anchor after anchor, until the sea was reached.";

TEST(RealModel, MatchesLibllama) {
  if (real_model() == nullptr) GTEST_SKIP() << "KEDGE_MODEL is not set";
  const auto compute = make_compute(2);
  const auto tokenizer = Tokenizer::open(real_model());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const std::vector<Token> tokens = (*tokenizer)->tokenize(kText, true, false);
  ASSERT_GT(tokens.size(), 40U);
  const std::vector<float> theirs = llama_logits(real_model(), tokens);
  for (const PromptWeights mode : {PromptWeights::native, PromptWeights::f32, PromptWeights::bf16}) {
    const auto model = load_model(*compute, real_model(), {.prompt_weights = mode, .repack = true});
    ASSERT_TRUE(model.ok()) << model.error().message;
    const std::vector<float> ours = logits_of(*compute, **model, tokens);
    ASSERT_EQ(ours.size(), theirs.size());
    const Distance d = distance(theirs, ours, static_cast<size_t>((*model)->hyper().n_vocab));
    RecordProperty("kld_mode_" + std::to_string(static_cast<int>(mode)), std::to_string(d.kld));
    EXPECT_LT(d.kld, 1e-2) << "mode " << static_cast<int>(mode);
    EXPECT_GT(d.same_top, 0.9) << "mode " << static_cast<int>(mode);
    std::printf("mode %d: KLD %.3g, same top %.3f\n", static_cast<int>(mode), d.kld, d.same_top);
  }
}

}  // namespace
}  // namespace kedge::model
