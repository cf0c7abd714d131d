#include "train/fit_gate.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <random>

#include "base/executor.h"
#include "kernels/half.h"
#include "train/collect.h"

namespace kedge::train {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kEmbd = 32;
constexpr uint32_t kLayers = 2;

// Labels that are linear in x: head 0 looks at x[0] in layer 0 and at x[1] in layer 1, head 1 at -x[2].
Shard shard_of(uint64_t seed, uint32_t n_rows, uint32_t n_embd = kEmbd) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  Shard shard{.shape = {.n_rows = n_rows, .n_layers = kLayers, .n_embd = n_embd, .n_heads = 2},
              .made_from = "test",
              .layers = std::vector<LayerRows>(kLayers)};
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    for (uint32_t row = 0; row < n_rows; ++row) {
      std::vector<float> x(n_embd);
      std::ranges::generate(x, [&] { return normal(random); });
      for (const float value : x)
        shard.layers[layer].x.push_back(f32_to_f16(value));
      shard.layers[layer].y.insert(shard.layers[layer].y.end(), {-5 + x[layer], -7 - x[2]});
    }
  }
  return shard;
}

// Rows whose late labels follow x[0] and, as much, one thing that was seen at the cut: how much attention they have
// had. Of head 1 a curve that no line follows: the last access.
Shard aged_shard(uint64_t seed, uint32_t n_rows) {
  Shard shard = shard_of(seed, n_rows);
  const std::vector<gate::Feature> collected = features_of(measured_features());
  const auto column = [&](gate::Feature feature) {
    return static_cast<size_t>(std::ranges::find(collected, feature) - collected.begin());
  };
  shard.shape.n_aged = n_rows / 2;
  shard.shape.features = measured_features();
  std::mt19937_64 random(seed + 100);
  std::normal_distribution<float> normal;
  for (LayerRows& layer : shard.layers) {
    for (size_t row = 0; row < shard.shape.n_aged; ++row) {
      const float said = f16_to_f32(layer.x[row * kEmbd]);
      for (int head = 0; head < 2; ++head) {
        std::vector<float> features(collected.size());
        std::ranges::generate(features, [&] { return normal(random) - 3; });
        for (const float value : features)
          layer.features.push_back(f32_to_f16(value));
        const float access = features[column(gate::Feature::last_access)] + 3;
        layer.late.push_back(head == 0 ? said + features[column(gate::Feature::attention)] : access * access);
      }
    }
  }
  return shard;
}

class FitGate : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("kedge-fit-" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::vector<ShardFile> files(const std::vector<Shard>& shards) {
    std::vector<ShardFile> opened;
    for (const Shard& shard : shards) {
      const std::string path = (folder_ / std::to_string(n_files_++)).string();
      EXPECT_TRUE(save_shard(shard, path).ok());
      opened.push_back(std::move(ShardFile::open(path)).value());
    }
    return opened;
  }

  fs::path folder_;
  int n_files_ = 0;
  gate::GateInfo info_{.name = "test",
                       .model = {.architecture = "llama",
                                 .sha256 = "0",
                                 .n_layers = kLayers,
                                 .n_embd = kEmbd,
                                 .n_kv_heads = 2,
                                 .head_dim = 8}};
};

TEST_F(FitGate, LearnsEachLayerFromAllShards) {
  const auto learned = files({shard_of(1, 300), shard_of(2, 200)});
  const auto judged = files({shard_of(3, 250)});
  for (const int width : {0, 16}) {
    SerialExecutor executor;
    int n_told = 0;
    const auto fitted = fit_gate({learned, judged}, GateInput::hidden, info_, {.width = width, .epochs = 600}, executor,
                                 [&](const auto&) {
                                   ++n_told;
                                   return true;
                                 });
    ASSERT_TRUE(fitted.ok()) << fitted.error().message;
    EXPECT_EQ(n_told, 2);
    EXPECT_EQ(fitted->gate.info.width, width);
    for (const LayerReport& layer : fitted->layers) {
      EXPECT_GT(*std::ranges::min_element(layer.held_out.r2), width == 0 ? 0.99F : 0.9F) << width;
      EXPECT_GT(*std::ranges::min_element(layer.held_out.spearman), width == 0 ? 0.99F : 0.9F) << width;
    }
    // One number moves all logits: the labels' difference of 2 between the heads is still there.
    EXPECT_NEAR(fitted->gate.layers[0].b2[0] - fitted->gate.layers[0].b2[1], 2.0F, width == 0 ? 0.1F : 2.0F);
    EXPECT_EQ(report_csv("x", fitted->layers).substr(0, 13), "x,append,0,0,");
  }
}

TEST_F(FitGate, HalfOfTheHeldOutRowsLieAboveOneHalf) {
  const auto learned = files({shard_of(1, 400)});
  const auto judged = files({shard_of(3, 400)});
  SerialExecutor executor;
  const auto fitted = fit_gate({learned, judged}, GateInput::hidden, info_, {.width = 0}, executor, {});
  ASSERT_TRUE(fitted.ok());
  const std::vector<gate::KeepThreshold>& thresholds = fitted->gate.thresholds;
  ASSERT_EQ(thresholds.size(), 9u);
  for (size_t i = 1; i < thresholds.size(); ++i)
    EXPECT_LT(thresholds[i].threshold, thresholds[i - 1].threshold) << "a larger share lies above a lower threshold";
  EXPECT_NEAR(thresholds[4].keep, 0.5F, 1e-6F);
  EXPECT_NEAR(thresholds[4].threshold, 0.5F, 1e-6F);
}

float mean(const std::vector<LayerReport>& layers, size_t head) {
  float sum = 0;
  for (const LayerReport& layer : layers)
    sum += layer.late.r2[head] / static_cast<float>(layers.size());
  return sum;
}

// Features that say what comes late raise what is explained, and those that do not leave it.
TEST_F(FitGate, AnAgeingStageLearnsWhatItsFeaturesTell) {
  const auto learned = files({aged_shard(11, 1200), aged_shard(12, 1200)});
  const auto judged = files({aged_shard(13, 1000)});
  SerialExecutor executor;
  const auto fitted = [&](GateInput input, int width) {
    auto result = fit_gate({learned, judged}, input, info_, {.width = width, .epochs = 40}, executor, {});
    EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
    return std::move(result).value();
  };
  const FittedGate hidden = fitted(GateInput::hidden, 0);
  EXPECT_GT(hidden.layers[0].late.r2[0], 0.4F) << "layer 0's logit is x[0], half of the label";
  EXPECT_LT(hidden.layers[0].late.r2[0], 0.6F);
  EXPECT_TRUE(hidden.gate.ageing.layers.empty());
  const FittedGate attention = fitted(GateInput::attention, 16);
  EXPECT_LT(mean(attention.layers, 0), 0.05F) << "nothing of the window tells anything";
  EXPECT_EQ(attention.gate.info.input, "none");
  EXPECT_TRUE(attention.gate.layers.empty());
  EXPECT_TRUE(attention.layers[0].held_out.r2.empty());
  const FittedGate line = fitted(GateInput::access, 0);
  EXPECT_GT(mean(line.layers, 0), 0.4F);
  EXPECT_LT(mean(line.layers, 1), 0.1F) << "no line follows a square";
  const FittedGate curve = fitted(GateInput::access, 16);
  EXPECT_GT(mean(curve.layers, 1), 0.8F) << "hidden units do";
  const FittedGate all = fitted(GateInput::all, 16);
  EXPECT_GT(all.layers[0].late.r2[0], 0.9F) << "the logit and the features together";
  EXPECT_GT(all.layers[0].late.r2[0], hidden.layers[0].late.r2[0] + 0.3F);
  EXPECT_EQ(all.gate.ageing.info.features.front(), gate::Feature::logit);
  EXPECT_EQ(all.gate.thresholds.size(), 9U);
  EXPECT_NEAR(all.gate.thresholds[4].threshold, 0.5F, 1e-6F) << "of the append stage";
  // The file says the same, and the report has both stages.
  const auto bytes = gate::gate_bytes(all.gate);
  const auto file = tensor::GgufFile::open_bytes(bytes, "g");
  const Result<gate::Gate> read = gate::read_gate(**file);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->ageing.layers[1].w1, all.gate.ageing.layers[1].w1);
  const std::string csv = report_csv("all", all.layers);
  EXPECT_EQ(std::ranges::count(csv, '\n'), 2 * 2 * 2);
  EXPECT_NE(csv.find("all,late,1,1,"), std::string::npos);
}

TEST_F(FitGate, AnAppendStageThatIsGivenStays) {
  const auto learned = files({aged_shard(11, 1200), aged_shard(12, 1200)});
  const auto judged = files({aged_shard(13, 1000)});
  SerialExecutor executor;
  const auto given = fit_gate({learned, judged}, GateInput::hidden, info_, {.width = 16, .epochs = 40}, executor, {});
  ASSERT_TRUE(given.ok());
  const FitOptions options{.width = 8, .append = &given->gate, .epochs = 40};
  const auto aged = fit_gate({learned, judged}, GateInput::all, info_, options, executor, {});
  ASSERT_TRUE(aged.ok());
  EXPECT_EQ(aged->gate.info.width, 16) << "the given gate's";
  for (size_t layer = 0; layer < given->gate.layers.size(); ++layer) {
    EXPECT_EQ(aged->gate.layers[layer].w1, given->gate.layers[layer].w1);
    EXPECT_EQ(aged->gate.layers[layer].w2, given->gate.layers[layer].w2);
  }
  EXPECT_EQ(aged->gate.ageing.layers.size(), 2U);
  EXPECT_GT(aged->layers[0].late.r2[0], 0.85F) << "the given logit and the features together";
  EXPECT_TRUE(aged->layers[0].held_out.r2.empty()) << "it was judged where it was fitted";
}

TEST_F(FitGate, ShardsWithoutWhatAnInputNeedsAreRefused) {
  const auto some = files({shard_of(1, 100)});
  SerialExecutor executor;
  const auto aged = fit_gate({some, some}, GateInput::access, info_, {}, executor, {});
  ASSERT_FALSE(aged.ok());
  EXPECT_NE(aged.error().message.find("found without attention"), std::string::npos) << aged.error().message;
  const auto key_value = fit_gate({some, some}, GateInput::key_value, info_, {}, executor, {});
  ASSERT_FALSE(key_value.ok());
  EXPECT_NE(key_value.error().message.find("found 0 columns, allowed 32"), std::string::npos)
      << key_value.error().message;
}

TEST_F(FitGate, WhatCannotBeFittedIsNamed) {
  SerialExecutor executor;
  const auto some = files({shard_of(1, 100)});
  const auto none = fit_gate({some, {}}, GateInput::hidden, info_, {}, executor, {});
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().message.find("1 and 0 windows"), std::string::npos) << none.error().message;
  const auto other = files({shard_of(1, 100, 16)});
  EXPECT_FALSE(fit_gate({some, other}, GateInput::hidden, info_, {}, executor, {}).ok());
  Shard bad = shard_of(5, 100);
  bad.layers[1].y[7] = std::numeric_limits<float>::quiet_NaN();
  const auto bad_files = files({bad});
  const auto not_finite = fit_gate({bad_files, some}, GateInput::hidden, info_, {.width = 0}, executor, {});
  ASSERT_FALSE(not_finite.ok());
  EXPECT_NE(not_finite.error().message.find("layer 1"), std::string::npos) << not_finite.error().message;
  const auto stopped =
      fit_gate({some, some}, GateInput::hidden, info_, {.width = 0}, executor, [](const auto&) { return false; });
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code, ErrorCode::cancelled);
}

}  // namespace
}  // namespace kedge::train
