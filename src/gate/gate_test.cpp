// The sidecar and both forms of the network.
#include "gate/gate.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <random>

#include "tensor/gguf_writer.h"

namespace kedge::gate {
namespace {

const GateModel kModel{.architecture = "llama", .sha256 = "ab12", .n_layers = 3, .n_embd = 64, .n_kv_heads = 2};

Gate random_gate(int width, uint32_t seed) {
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
                     .width = width,
                     .window = 32,
                     .sinks = 4,
                     .training_data = "a, b",
                     .training_data_sha256 = "cd34",
                     .training_loss = "labels"},
            .layers = {},
            .thresholds = {{0.1F, 0.9F}, {0.5F, 0.25F}}};
  for (int layer = 0; layer < kModel.n_layers; ++layer) {
    gate.layers.push_back({.w1 = draw(width * kModel.n_embd),
                           .b1 = draw(width),
                           .w2 = draw(kModel.n_kv_heads * (width > 0 ? width : kModel.n_embd)),
                           .b2 = draw(kModel.n_kv_heads)});
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
