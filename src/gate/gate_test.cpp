// The sidecar and both forms of the network.
#include "gate/gate.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>

#include "tensor/gguf_writer.h"

namespace kedge::gate {
namespace {

const GateModel kModel{
    .architecture = "llama", .sha256 = "ab12", .n_layers = 3, .n_embd = 64, .n_kv_heads = 2, .head_dim = 16};

// ages: with an ageing stage, linear where the gate is.
Gate random_gate(int width, uint32_t seed, const std::string& input = "hidden", bool ages = false) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 0.2F);
  const auto draw = [&](int n) {
    std::vector<float> out(static_cast<size_t>(n));
    for (float& one : out)
      one = normal(random);
    return out;
  };
  Gate gate{.info = {.name = "tiny",
                     .model = kModel,
                     .input = input,
                     .width = width,
                     .window = 32,
                     .sinks = 4,
                     .training_data = "a, b",
                     .training_data_sha256 = "cd34",
                     .training_loss = "labels"},
            .layers = {},
            .thresholds = {{0.1F, 0.9F}, {0.5F, 0.25F}}};
  const int n_inputs = input_size(gate.info);
  const int n_heads = kModel.n_kv_heads;
  for (int layer = 0; n_inputs > 0 && layer < kModel.n_layers; ++layer) {
    gate.layers.push_back({.w1 = draw(width * n_inputs),
                           .b1 = draw(width),
                           .w2 = draw(n_heads * (width > 0 ? width : n_inputs)),
                           .b2 = draw(n_heads)});
  }
  if (!ages)
    return gate;
  AgeingInfo& ageing = gate.ageing.info;
  ageing = {
      .features = {Feature::window_max, Feature::age, Feature::attention}, .width = width > 0 ? 5 : 0, .window = 16};
  if (input != "none")
    ageing.features.push_back(Feature::logit);
  for (int layer = 0; layer < kModel.n_layers; ++layer) {
    gate.ageing.layers.push_back({.w1 = draw(n_heads * ageing.width * ageing.n_features()),
                                  .b1 = draw(n_heads * ageing.width),
                                  .w2 = draw(n_heads * ageing.n_hidden()),
                                  .b2 = draw(n_heads)});
  }
  return gate;
}

class Gates : public testing::TestWithParam<int> {  // width
 protected:
  ~Gates() override { std::filesystem::remove(path_); }
  const std::string path_ = testing::TempDir() + "kedge_gate_" + std::to_string(getpid()) + ".gguf";
};

TEST_P(Gates, ComeBackFromTheirFile) {
  const Gate gate = random_gate(GetParam(), 1);
  ASSERT_TRUE(save_gate(gate, path_).ok());
  const auto file = tensor::GgufFile::open(path_);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const Result<Gate> read = read_gate(**file);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->info.name, "tiny");
  EXPECT_EQ(read->info.model.sha256, "ab12");
  EXPECT_EQ(read->info.width, GetParam());
  EXPECT_EQ(read->info.window, 32);
  EXPECT_EQ(read->info.training_data_sha256, "cd34");
  ASSERT_EQ(read->thresholds.size(), 2U);
  EXPECT_EQ(read->thresholds[1].threshold, 0.25F);
  ASSERT_EQ(read->layers.size(), 3U);
  for (size_t layer = 0; layer < 3; ++layer) {
    EXPECT_EQ(read->layers[layer].b2, gate.layers[layer].b2);
    ASSERT_EQ(read->layers[layer].w2.size(), gate.layers[layer].w2.size());
    for (size_t i = 0; i < gate.layers[layer].w2.size(); ++i)
      EXPECT_NEAR(read->layers[layer].w2[i], gate.layers[layer].w2[i], 0.006) << "8 bits";
  }
}

TEST_P(Gates, AreTheSameInAGraph) {
  ASSERT_TRUE(save_gate(random_gate(GetParam(), 2), path_).ok());
  const auto file = tensor::GgufFile::open(path_);
  const Result<Gate> read = read_gate(**file);
  auto compute = tensor::Compute::create({.n_threads = 2, .pin = false});
  const auto net = GateNet::load(**compute, path_, kModel);
  ASSERT_TRUE(net.ok()) << net.error().message;
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 1);
  for (const int n : {1, 5, 70}) {
    std::vector<float> x(static_cast<size_t>(n * kModel.n_embd));
    for (float& one : x)
      one = normal(random);
    for (int layer = 0; layer < kModel.n_layers; ++layer) {
      tensor::Graph graph(**compute, (*net)->weights());
      const tensor::Tensor input = graph.input_f32(n, kModel.n_embd);
      const tensor::Tensor logits = (*net)->logits(graph, layer, input);
      graph.output(logits);
      ASSERT_TRUE(graph.finish().ok());
      graph.set(input, x);
      graph.run();
      const std::vector<float> expected = gate_logits(read->info, read->layers[static_cast<size_t>(layer)], x);
      const std::span<const float> found = graph.read(logits);
      ASSERT_EQ(found.size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_NEAR(found[i], expected[i], 0.05) << "rows are rounded to 8 bits: " << n << " " << layer << " " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Widths, Gates, testing::Values(0, 32, 48));

Result<Gate> read_bytes(std::span<const std::byte> data) {
  const auto file = tensor::GgufFile::open_bytes(data, "g");
  if (!file)
    return file.error();
  return read_gate(**file);
}

// Every input, with and without an ageing stage, linear and not.
TEST(Gate, StagesComeBackFromTheirFile) {
  for (const int width : {0, 32}) {
    for (const std::string input : kInputs) {
      for (const bool ages : {false, true}) {
        if (input == "none" && !ages)
          continue;
        SCOPED_TRACE(input + (ages ? ", ages" : "") + ", width " + std::to_string(width));
        Gate gate = random_gate(width, 7, input, ages);
        if (input == "none")
          gate.info.width = 0;
        const std::vector<std::byte> bytes = gate_bytes(gate);
        const Result<Gate> read = read_bytes(bytes);
        ASSERT_TRUE(read.ok()) << read.error().message;
        EXPECT_EQ(gate_version(gate), input == "hidden" && !ages ? 1U : 2U);
        EXPECT_EQ(read->info.input, input);
        EXPECT_EQ(input_size(read->info), input == "hidden" ? 64 : input == "none" ? 0 : 2 * 2 * 16);
        EXPECT_EQ(read->layers.size(), gate.layers.size());
        EXPECT_EQ(read->ageing.info.features, gate.ageing.info.features);
        EXPECT_EQ(read->ageing.info.width, gate.ageing.info.width);
        EXPECT_EQ(read->ageing.info.window, gate.ageing.info.window);
        ASSERT_EQ(read->ageing.layers.size(), gate.ageing.layers.size());
        for (size_t layer = 0; layer < gate.ageing.layers.size(); ++layer) {
          EXPECT_EQ(read->ageing.layers[layer].w1, gate.ageing.layers[layer].w1) << "exactly";
          EXPECT_EQ(read->ageing.layers[layer].b1, gate.ageing.layers[layer].b1);
          EXPECT_EQ(read->ageing.layers[layer].w2, gate.ageing.layers[layer].w2);
          EXPECT_EQ(read->ageing.layers[layer].b2, gate.ageing.layers[layer].b2);
        }
      }
    }
  }
}

TEST(Gate, SaysWhichRowsItRanks) {
  for (const char* ranks : kRanks) {
    Gate gate = random_gate(32, 8, "hidden", false);
    gate.info.ranks = ranks;
    EXPECT_EQ(read_bytes(gate_bytes(gate))->info.ranks, ranks);
  }
}

TEST(Gate, WhatAFileCannotSayIsNamedWithWhatItCould) {
  const auto refused = [](const Gate& gate) { return read_bytes(gate_bytes(gate)).error().message; };
  Gate gate = random_gate(32, 8, "hidden", true);
  gate.info.input = "querys";
  EXPECT_EQ(refused(gate), "g: key 'kedge_gate.input': found 'querys', allowed 'hidden', 'key_value', 'none'");
  gate = random_gate(32, 8, "hidden", true);
  gate.ageing.info.features[1] = Feature::window_max;
  EXPECT_EQ(refused(gate),
            "g: key 'kedge_gate.ageing.features': found 'window_max,window_max,attention,logit', allowed each feature "
            "once");
  gate = random_gate(32, 8, "hidden", true);
  gate.info.ranks = "layer";
  EXPECT_EQ(refused(gate), "g: key 'kedge_gate.ranks': found 'layer', allowed 'head', 'model'");
  gate = random_gate(32, 8, "hidden", true);
  gate.ageing.info.window = 4096;
  EXPECT_EQ(refused(gate), "g: key 'kedge_gate.ageing.window': found 4096, allowed 0..1024");
  gate = random_gate(0, 8, "none", true);
  gate.ageing.info.features[0] = Feature::logit;
  EXPECT_NE(refused(gate).find("found 'logit', allowed with the input 'none' all others"), std::string::npos);
  gate = random_gate(0, 8, "none", false);
  EXPECT_NE(refused(gate).find("with the input 'none' at least one: logit, attention"), std::string::npos);
  GateModel other = kModel;
  other.head_dim = 32;
  EXPECT_EQ(same_model(kModel, other, "g").error().message,
            "g: a gate for another model: dimensions of a head: found 16, the model has 32");
  // By hand: a name that is none of ours, and a width that the tensors do not have.
  const std::vector<std::byte> whole = gate_bytes(random_gate(32, 8, "hidden", true));
  const auto changed = [&whole](std::string_view text, size_t offset, char to) {
    std::vector<std::byte> bytes = whole;
    const auto at = std::search(bytes.begin(), bytes.end(), text.begin(), text.end(),
                                [](std::byte a, char b) { return a == static_cast<std::byte>(b); });
    EXPECT_NE(at, bytes.end());
    at[static_cast<std::ptrdiff_t>(offset)] = static_cast<std::byte>(to);
    return read_bytes(bytes).error().message;
  };
  EXPECT_NE(changed("window_max", 0, 'x').find("found 'xindow_max', allowed logit, attention, window_max"),
            std::string::npos);
  const std::string_view width = "kedge_gate.ageing.width";
  const std::string message = changed(width, width.size() + 4, 6);  // behind the type of the key's value
  EXPECT_NE(message.find("'gate.0.age_w1': found shape"), std::string::npos) << message;
}

// Keys and values beside each other are what a gate of theirs sees.
TEST(Gate, AKeyValueGateIsTheSameInAGraph) {
  const std::string path = testing::TempDir() + "kedge_kv_gate_" + std::to_string(getpid()) + ".gguf";
  ASSERT_TRUE(save_gate(random_gate(32, 9, "key_value"), path).ok());
  auto compute = tensor::Compute::create({.n_threads = 1, .pin = false});
  const auto net = GateNet::load(**compute, path, kModel);
  ASSERT_TRUE(net.ok()) << net.error().message;
  EXPECT_TRUE((*net)->has_append_stage());
  EXPECT_EQ((*net)->ageing(), nullptr);
  const auto file = tensor::GgufFile::open(path);
  const Result<Gate> read = read_gate(**file);
  std::filesystem::remove(path);
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 1);
  const int n = 7;
  const int n_kv = kModel.n_kv_heads * kModel.head_dim;
  std::vector<float> key(static_cast<size_t>(n * n_kv)), value(key.size()), both;
  std::ranges::generate(key, [&] { return normal(random); });
  std::ranges::generate(value, [&] { return normal(random); });
  for (int row = 0; row < n; ++row) {
    both.insert(both.end(), key.begin() + row * n_kv, key.begin() + (row + 1) * n_kv);
    both.insert(both.end(), value.begin() + row * n_kv, value.begin() + (row + 1) * n_kv);
  }
  tensor::Graph graph(**compute, (*net)->weights());
  const tensor::Tensor k = graph.input_f32(n, n_kv);
  const tensor::Tensor v = graph.input_f32(n, n_kv);
  const tensor::Tensor logits = (*net)->logits(graph, 1, {.hidden = nullptr, .key = k, .value = v});
  graph.output(logits);
  ASSERT_TRUE(graph.finish().ok());
  graph.set(k, key);
  graph.set(v, value);
  graph.run();
  const std::vector<float> expected = gate_logits(read->info, read->layers[1], both);
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(graph.read(logits)[i], expected[i], 0.05) << i;
}

TEST(Gate, ByHand) {
  const GateInfo info{.model = {.n_layers = 1, .n_embd = 2, .n_kv_heads = 1}, .width = 1};
  const LayerGate gate{.w1 = {1, 2}, .b1 = {-1}, .w2 = {3}, .b2 = {0.5F}};
  const float x[] = {0, 1};  // hidden 1: gelu(1) = 0.8413447
  EXPECT_NEAR(gate_logits(info, gate, x)[0], 0.5 + 3 * 0.8413447, 1e-6);
}

TEST(Gate, OfAnotherModelIsRefusedWithBothValues) {
  GateModel other = kModel;
  other.n_embd = 96;
  EXPECT_EQ(same_model(kModel, other, "g").error().message,
            "g: a gate for another model: embedding length: found 64, the model has 96");
  other = kModel;
  other.sha256 = "ff";
  const Status refused = same_model(kModel, other, "g");
  EXPECT_EQ(refused.error().code, ErrorCode::model_unreadable);
  EXPECT_NE(refused.error().message.find("found ab12, the model has ff"), std::string::npos);
  EXPECT_TRUE(same_model(kModel, kModel, "g").ok());
}

TEST(Gate, DamagedFilesAreRefusedWithAReason) {
  std::vector<std::byte> bytes = gate_bytes(random_gate(32, 4));
  const auto read = [](std::span<const std::byte> data) -> Result<Gate> {
    const auto file = tensor::GgufFile::open_bytes(data, "g");
    if (!file)
      return file.error();
    return read_gate(**file);
  };
  ASSERT_TRUE(read(bytes).ok());
  std::mt19937 random(5);
  int n_refused = 0;
  for (int i = 0; i < 500; ++i) {
    std::vector<std::byte> damaged = bytes;
    if (i % 2 == 0)
      damaged.resize(random() % damaged.size());
    else
      damaged[random() % 1500] ^= static_cast<std::byte>(1 + random() % 255);
    const Result<Gate> result = read(damaged);
    if (result.ok())
      continue;
    ++n_refused;
    EXPECT_EQ(result.error().code, ErrorCode::model_unreadable);
    EXPECT_FALSE(result.error().message.empty());
  }
  EXPECT_GT(n_refused, 300);
}

TEST(Gate, TensorsOfAnotherShapeAreNamed) {
  Gate gate = random_gate(32, 6);
  gate.info.model.n_kv_heads = 4;
  for (LayerGate& layer : gate.layers) {
    layer.w2.resize(4 * 32);
    layer.b2.resize(4);
  }
  std::vector<std::byte> bytes = gate_bytes(gate);
  const auto file = tensor::GgufFile::open_bytes(bytes, "g");
  ASSERT_TRUE(read_gate(**file).ok());
  tensor::GgufWriter other;
  other.text("general.architecture", "llama");
  const std::vector<std::byte> model = other.bytes();
  const auto no_gate = tensor::GgufFile::open_bytes(model, "m");
  ASSERT_TRUE(no_gate.ok());
  EXPECT_EQ(read_gate(**no_gate).error().message, "m: key 'general.architecture': found 'llama', allowed 'kedge-gate'");
}

}  // namespace
}  // namespace kedge::gate
