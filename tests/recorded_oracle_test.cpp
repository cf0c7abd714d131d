// Every scorer against its oracle on what the real model computes from a real text: keys, values, queries and outputs
// of some layers after 1,000 tokens with a full cache. Both must keep the same rows at 25 % and 10 %.
#include <gtest/gtest.h>

#include <cstdio>

#include "eviction/oracle.h"
#include "model/tokenizer.h"
#include "session/timeline.h"
#include "support/real_model.h"
#include "tensor/compute.h"

namespace kedge::test {
namespace {

constexpr int kTokens = 1000;

template <typename T>
T must_have(Result<T> result) {
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  return *std::move(result);
}

// One model for all cases.
class Recorded : public testing::TestWithParam<std::string> {
 protected:
  static void SetUpTestSuite() {
    ASSERT_FALSE(real_model_path().empty()) << "KEDGE_MODEL names no file; `tools/setup --print-env` says where it is";
    compute_ = must_have(tensor::Compute::create({.n_threads = 2})).release();
    model_ = must_have(model::load_model(*compute_, real_model_path(), {})).release();
    const auto tokenizer = must_have(model::Tokenizer::open(real_model_path()));
    const std::string text = real_text();
    ASSERT_GT(text.size(), 100000U) << "no text: KEDGE_TEXT or Debian's developers-reference";
    tokens_ = tokenizer->tokenize(text.substr(20000, 20000), false, false);
    ASSERT_GE(tokens_.size(), size_t{kTokens});
  }
  static void TearDownTestSuite() {
    delete model_;
    delete compute_;
  }

  static tensor::Compute* compute_;
  static model::Model* model_;
  static std::vector<Token> tokens_;
};
tensor::Compute* Recorded::compute_ = nullptr;
model::Model* Recorded::model_ = nullptr;
std::vector<Token> Recorded::tokens_;

TEST_P(Recorded, BothKeepTheSameRows) {
  const session::Engine engine{.compute = compute_, .model = model_, .kernels = &best_attention_kernels()};
  const SessionOptions options{.policy = GetParam()};  // no budget: everything that the scorer asks for, and no
                                                       // eviction
  const auto timeline = must_have(session::Timeline::create(engine, options));
  ASSERT_TRUE(timeline->prefill(std::span(tokens_).first(kTokens), {}).ok());
  const model::HyperParams& hyper = model_->hyper();
  int n_cases = 0;
  int n_equal = 0;
  for (const int layer : {0, 1, hyper.n_layers / 2, hyper.n_layers - 1}) {
    for (const int per_head : {kTokens / 4, kTokens / 10}) {
      std::vector<attention::ObservedWindow> windows;
      const session::EvictionTarget target{.rows_exact = int64_t{per_head} * hyper.n_kv_heads};
      for (const bool is_pooled : {false, true}) {
        eviction::OracleCase one{.scorer = GetParam(), .in = timeline->layer_input(layer, target, kTokens, windows)};
        one.is_pooled = is_pooled;
        n_equal += eviction::expect_oracle_agrees(one, *compute_) ? 1 : 0;
        ++n_cases;
        EXPECT_FALSE(HasFailure()) << GetParam() << " layer " << layer << ", " << per_head << " rows a head";
      }
    }
  }
  std::printf("%s: %d of %d choices equal, the others tie\n", GetParam().c_str(), n_equal, n_cases);
  EXPECT_GE(n_equal, n_cases - 2);
}

std::vector<std::string> evicting() {
  std::vector<std::string> names;
  for (const eviction::Method& method : eviction::scorers()) {
    if (method.evicts)
      names.push_back(method.info.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Scorers, Recorded, testing::ValuesIn(evicting()),
                         [](const testing::TestParamInfo<std::string>& i) { return i.param; });

}  // namespace
}  // namespace kedge::test
