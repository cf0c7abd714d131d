// Every scorer against its oracle on what the real model computes from a real text: keys, values, queries and outputs
// of some layers after 1,000 tokens with a full cache. Both must keep the same rows at 25 % and 10 %.
#include <gtest/gtest.h>

#include <cstdio>

#include "door.h"
#include "eviction/oracle.h"
#include "gate/gate.h"
#include "model/tokenizer.h"
#include "session/model_identity.h"
#include "session/timeline.h"
#include "support/real_model.h"
#include "support/temp_dir.h"
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
    tokenizer_ = must_have(model::Tokenizer::open(real_model_path())).release();
    const TempDir folder;
    const std::string gate = folder.file("random.gate");
    write_random_gate(real_model_path(), gate);
    gate_ = must_have(gate::GateNet::load(*compute_, gate, session::gate_model(*model_))).release();
    const std::string text = real_text();
    ASSERT_GT(text.size(), 100000U) << "no text: KEDGE_TEXT or Debian's developers-reference";
    tokens_ = tokenizer_->tokenize(text.substr(20000, 20000), false, false);
    ASSERT_GE(tokens_.size(), size_t{kTokens});
  }
  static void TearDownTestSuite() {
    delete gate_;
    delete tokenizer_;
    delete model_;
    delete compute_;
  }

  static tensor::Compute* compute_;
  static model::Model* model_;
  static model::Tokenizer* tokenizer_;
  static gate::GateNet* gate_;
  static std::vector<Token> tokens_;
};
tensor::Compute* Recorded::compute_ = nullptr;
model::Model* Recorded::model_ = nullptr;
model::Tokenizer* Recorded::tokenizer_ = nullptr;
gate::GateNet* Recorded::gate_ = nullptr;
std::vector<Token> Recorded::tokens_;

TEST_P(Recorded, BothKeepTheSameRows) {
  const session::Engine engine{.compute = compute_,
                               .model = model_,
                               .kernels = &best_attention_kernels(),
                               .tokenizer = tokenizer_,
                               .gate = [](tensor::Graph& graph, int layer, const attention::RowOrigin& row) {
                                 return gate_->logits(graph, layer, row.hidden);
                               }};
  SessionOptions options = session_options({.budget = "25%", .policy = GetParam(), .prompt = kTokens, .generated = 0});
  options.order = PrefillOrder::layer_major;  // a layer is evicted when all of its rows are there
  const auto timeline = must_have(session::Timeline::create(engine, options));
  const eviction::Policy policy = must_have(eviction::parse_policy(GetParam(), {}));
  int n_cases = 0;
  int n_equal = 0;
  timeline->watch([&](const eviction::LayerInput& seen) {
    const int layer = seen.heads[0].layer;
    const int n_layers = model_->hyper().n_layers;
    if ((layer > 1 && layer != n_layers / 2 && layer != n_layers - 1) || HasFailure())
      return;
    for (const int per_head : {kTokens / 4, kTokens / 10}) {
      for (const bool is_pooled : {false, true}) {
        eviction::OracleCase one{.scorer = GetParam(), .in = seen, .is_pooled = is_pooled};
        ASSERT_EQ(one.in.heads[0].rows.n_rows, kTokens);
        one.in.rows_total = int64_t{per_head} * model_->hyper().n_kv_heads;
        one.in.n_sinks = policy.sinks.rows(per_head);
        one.in.n_recent = policy.recent.rows(per_head);
        n_equal += eviction::expect_oracle_agrees(one, *compute_) ? 1 : 0;
        ++n_cases;
        EXPECT_FALSE(HasFailure()) << GetParam() << " layer " << layer << ", " << per_head << " rows a head";
      }
    }
  });
  must(timeline->prefill(std::span(tokens_).first(kTokens), {}));
  std::printf("%s: %d of %d choices equal, the others tie\n", GetParam().c_str(), n_equal, n_cases);
  EXPECT_EQ(n_cases, 16);
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
