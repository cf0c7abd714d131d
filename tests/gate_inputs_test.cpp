// What a loaded gate asks for is what a session records and shows its scorer, for every input and set of features: the
// noted logits are those of the rows, the features those of the definitions, and no byte is taken for what is not read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "door.h"
#include "eviction/ageing.h"
#include "gate/gate.h"
#include "kedge/policy.h"
#include "session/model_identity.h"
#include "session/observations.h"
#include "session/rotation.h"
#include "session/timeline.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace kedge::test {
namespace {

using gate::Feature;
using testing::StartsWith;

constexpr int kPrompt = 120;

class GateInputs : public testing::Test {
 protected:
  void SetUp() override {
    write_tiny_model(make_tiny_weights({.n_layers = 3, .n_heads = 4, .n_kv_heads = 2, .qk_gain = 1.4F, .seed = 3}),
                     path_);
  }
  // One thread; `read` is what the gate's file says.
  struct Loaded {
    std::unique_ptr<tensor::Compute> compute;
    std::unique_ptr<model::Model> net;
    std::unique_ptr<gate::GateNet> gate;
    std::optional<gate::Gate> read;
    session::Engine engine() const {
      attention::RowNodes nodes;
      if (gate->has_append_stage()) {
        nodes = [this](tensor::Graph& graph, int layer, const attention::RowOrigin& row) {
          return gate->logits(graph, layer, {.hidden = row.hidden, .key = row.key, .value = row.value});
        };
      }
      return {.compute = compute.get(),
              .model = net.get(),
              .kernels = &best_attention_kernels(),
              .gate = std::move(nodes),
              .ageing = gate->ageing(),
              .gate_sha256 = gate->sha256()};
    }
  };
  void load(const RandomGate& what, Loaded& out) const {
    const std::string gate_path = dir_.file("random.gate");
    write_random_gate(path_, gate_path, what);
    out.compute = *tensor::Compute::create({.n_threads = 1});
    out.net = *model::load_model(*out.compute, path_, {});
    out.gate = *gate::GateNet::load(*out.compute, gate_path, session::gate_model(*out.net));
    const auto file = tensor::GgufFile::open(gate_path);
    out.read = *gate::read_gate(**file);
  }
  static SessionOptions options(const std::string& budget_text, const std::string& policy) {
    SessionOptions options = session_options({.budget = budget_text, .policy = policy, .prompt = kPrompt});
    options.expected_generated = 40;
    options.order = PrefillOrder::layer_major;
    options.seed = 5;
    return options;
  }

  TempDir dir_;
  std::string path_ = dir_.file("tiny.gguf");
  std::vector<Token> prompt_ = random_tokens(kPrompt, 31);
  std::vector<Token> more_ = random_tokens(40, 32);
};

// A key of the store before its rotation: pair (a, b) turned back by the row's position.
void turn_back(const eviction::Rotation& rotation, int position, std::span<float> key) {
  for (int pair = 0; pair < rotation.n_pairs(); ++pair) {
    const double angle = -static_cast<double>(rotation.frequency[pair]) * position;
    float& a = key[static_cast<size_t>(rotation.first(pair))];
    float& b = key[static_cast<size_t>(rotation.second(pair))];
    const double x = a;
    const double y = b;
    a = static_cast<float>(x * std::cos(angle) - y * std::sin(angle));
    b = static_cast<float>(x * std::sin(angle) + y * std::cos(angle));
  }
}

TEST_F(GateInputs, AKeyValueGateSeesTheRowsOfAllHeadsBeforeTheirRotation) {
  Loaded loaded;
  load({.input = "key_value", .ageing = {}}, loaded);
  const auto timeline = *session::Timeline::create(loaded.engine(), options("100%", "gate"));
  must(timeline->prefill(prompt_, {}));
  const model::HyperParams& hyper = loaded.net->hyper();
  const eviction::Rotation rotation = session::rotation_of(hyper.rope);
  const auto d = static_cast<size_t>(hyper.head_dim);
  const auto n_kv = d * static_cast<size_t>(hyper.n_kv_heads);
  double spread = 0;
  for (int layer = 0; layer < hyper.n_layers; ++layer) {
    std::vector<float> x(kPrompt * 2 * n_kv);
    for (int head = 0; head < hyper.n_kv_heads; ++head) {
      std::vector<float> k(kPrompt * d), v(k.size());
      read_rows(timeline->view(layer, head), 0, kPrompt, k.data(), v.data());
      for (size_t row = 0; row < kPrompt; ++row) {
        const std::span<float> key = std::span(k).subspan(row * d, d);
        turn_back(rotation, static_cast<int>(row), key);
        std::ranges::copy(key, x.begin() + static_cast<std::ptrdiff_t>(row * 2 * n_kv + head * d));
        std::copy_n(v.begin() + static_cast<std::ptrdiff_t>(row * d), d,
                    x.begin() + static_cast<std::ptrdiff_t>(row * 2 * n_kv + n_kv + head * d));
      }
    }
    const std::vector<float> expected = gate_logits(loaded.read->info, loaded.read->layers[layer], x);
    for (int head = 0; head < hyper.n_kv_heads; ++head) {
      const std::vector<float> found = timeline->observations().gate(layer, head);
      ASSERT_EQ(found.size(), size_t{kPrompt});
      for (size_t row = 0; row < kPrompt; ++row) {
        const float there = expected[row * hyper.n_kv_heads + head];
        EXPECT_NEAR(found[row], there, 0.15F)
            << "rows and activations are rounded: " << layer << " " << head << " " << row;
        spread += std::abs(found[row] - found[0]);
      }
    }
  }
  EXPECT_GT(spread / (6 * kPrompt), 1.5) << "rows differ by more than the tolerance";
}

// Noted bytes follow the features; an eviction's scores are the network over the features of what the session shows.
TEST_F(GateInputs, ASessionRecordsWhatTheFeaturesAskForAndNoMore) {
  struct Case {
    RandomGate gate;
    int n_notes;  // beside the score
    int window;
  };
  const Case cases[] = {
      {{.input = "hidden", .ageing = {}}, 1, 0},
      {{.input = "none", .ageing = {Feature::attention, Feature::last_access, Feature::age}}, 1, 16},
      {{.input = "none", .ageing = {Feature::window_max, Feature::window_mean}}, 0, 16},
      {{.input = "none", .ageing = {Feature::past, Feature::echo, Feature::age}}, 2, 0},
      {{.input = "hidden", .ageing = all_features()}, 4, 16},
      {{.input = "hidden", .ageing = {Feature::logit, Feature::age}}, 1, 0},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.gate.input + ": " + gate::feature_names(one.gate.ageing));
    Loaded loaded;
    load(one.gate, loaded);
    const session::Engine engine = loaded.engine();
    const SessionOptions asked = options("40%", "gate:recent=8,sinks=2/uniform");
    const eviction::Policy policy = std::move(session::session_policy(engine, asked)).value();
    EXPECT_EQ(policy.needs().window, one.window);
    EXPECT_EQ(session::note_columns(session::recorded_needs(asked, policy)).n_notes, 1 + one.n_notes);
    const auto timeline = *session::Timeline::create(engine, asked);
    int n_layers = 0;
    timeline->watch([&](const eviction::LayerInput& in) {
      for (const eviction::HeadInput& head : in.heads) {
        EXPECT_EQ(head.ageing, engine.ageing);
        std::vector<float> score(static_cast<size_t>(head.rows.n_rows));
        policy.scorer->score(head, score);
        std::vector<float> logit(head.gate.begin(), head.gate.end());
        if (engine.ageing != nullptr)
          logit = gate::ageing_logits(*engine.ageing, {.layer = head.layer, .head = head.head},
                                      eviction::ageing_features(head, engine.ageing->info));
        for (size_t i = 0; i < score.size(); ++i)
          EXPECT_FLOAT_EQ(score[i], 1 / (1 + std::exp(-logit[i])));
      }
      ++n_layers;
    });
    must(timeline->prefill(prompt_, {}));
    for (const Token token : more_)
      must(timeline->decode(token));
    EXPECT_GT(n_layers, 3) << "the prompt and the tokens after it evict";
  }
}

// Rows that were judged once at their writing stay in order; an ageing stage changes its mind.
TEST_F(GateInputs, AgeingScoresTheSameRowAnew) {
  Loaded loaded;
  load({.input = "hidden", .ageing = all_features()}, loaded);
  const auto timeline = *session::Timeline::create(loaded.engine(), options("60%", "gate:recent=8,sinks=2/uniform"));
  std::vector<float> first;
  int n_changed = 0;
  timeline->watch([&](const eviction::LayerInput& in) {
    if (in.heads[0].layer != 0)
      return;
    const float now = eviction::learned_logits(in.heads[0])[0];  // of the sink, which stays
    n_changed += !first.empty() && now != first.back() ? 1 : 0;
    first.push_back(now);
  });
  must(timeline->prefill(prompt_, {}));
  for (const Token token : more_)
    must(timeline->decode(token));
  EXPECT_GE(first.size(), 2U);
  EXPECT_GT(n_changed, 0);
}

TEST_F(GateInputs, PoliciesSayWhatTheLoadedGateReads) {
  const auto model = open_model(path_, 1, {.input = "none", .ageing = {Feature::attention, Feature::window_max}});
  EXPECT_EQ(*observed_rows("gate/uniform"), 0);
  EXPECT_EQ(*observed_rows("gate/uniform", model.get()), 16);
  EXPECT_FALSE(observed_histories("gate", model.get())->gate);
  EXPECT_TRUE(observed_histories("gate", model.get())->attention_sum);
  EXPECT_TRUE(observed_histories("hybrid:base=andpro", model.get())->attention_sum);
  EXPECT_FALSE(observed_histories("andpro", model.get())->attention_sum);
  EXPECT_TRUE(observed_histories("gate")->gate);
}

// A gate that ranks the rows of all heads is the default, and its rows compete as it ranks them; a session that was
// saved before it was loaded goes on as it was.
TEST_F(GateInputs, AGateThatRanksTheModelIsTheDefault) {
  const RandomGate wide{.input = "hidden", .ageing = {Feature::logit, Feature::window_max}, .ranks = "model"};
  const auto model = open_model(path_, 1, wide);
  const auto narrow = open_model(path_, 1, {.input = "hidden", .ageing = {Feature::logit, Feature::window_max}});
  EXPECT_THAT(*resolve_policy("gate", model.get()),
              StartsWith("gate:recent=25%,sinks=4/pooled-all:floor=0,norm=none/"));
  EXPECT_THAT(*resolve_policy("gate:recent=9/uniform", model.get()), StartsWith("gate:recent=9,sinks=4/uniform/"));
  EXPECT_EQ(*resolve_policy("gate", narrow.get()), *resolve_policy("gate"));
  EXPECT_EQ(*resolve_policy("andpro", model.get()), *resolve_policy("andpro"));
  EXPECT_THAT(*resolve_policy("hybrid", model.get()), StartsWith("hybrid:base=andpro,mix=product,"));

  const SessionOptions limited = options("40%", "");
  EXPECT_EQ(explain_budget(*model, limited)->policy, *resolve_policy("gate", model.get()));
  EXPECT_EQ(explain_budget(*narrow, limited)->policy, *resolve_policy("echo"));
  EXPECT_EQ(explain_budget(*model, options("", ""))->policy, *resolve_policy("none"));

  const auto run = open_session(*narrow, limited);
  must(run->prefill(prompt_));
  must(run->save(dir_.file("echo.kedge")));
  const auto again = Session::restore(*model, dir_.file("echo.kedge"));
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ((*again)->stats().policy, run->stats().policy);
  EXPECT_EQ((*again)->options().policy, "echo") << "what is protected is an option of its own";
  EXPECT_EQ(logits_of(**again), logits_of(*run));
}

}  // namespace
}  // namespace kedge::test
