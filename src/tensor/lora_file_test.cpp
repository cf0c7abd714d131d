#include "tensor/lora_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tensor/test_gguf.h"
#include "tensor/types.h"

namespace kedge::tensor {
namespace {

std::vector<float> ramp(int64_t n, float from) {
  std::vector<float> out(static_cast<size_t>(n));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = from + 0.25F * static_cast<float>(i % 7);
  return out;
}

// An adapter as it should be, of rank 2 over one matrix of 5 rows and 32 columns.
void put_keys(TestGguf& file) {
  file.text("general.architecture", "llama");
  file.text("general.type", "adapter");
  file.text("adapter.type", "lora");
  file.f32("adapter.lora.alpha", 4);
}
void put_pair(TestGguf& file) {
  file.tensor("blk.0.attn_q.weight.lora_a", GGML_TYPE_Q8_0, {32, 2}, ramp(64, -1));
  file.tensor("blk.0.attn_q.weight.lora_b", GGML_TYPE_F32, {2, 5}, ramp(10, 1));
}

std::string error_of(const std::vector<std::byte>& bytes) {
  const auto file = GgufFile::open_bytes(bytes, "adapter.gguf");
  if (!file)
    return file.error().message;
  const Result<LoraFile> read = read_lora(**file);
  if (read)
    return "none";
  EXPECT_EQ(read.error().code, ErrorCode::model_unreadable);
  return read.error().message;
}

TEST(LoraFile, ComesBackAsItWasWritten) {
  const LoraInfo info{.name = "tuned", .description = "on a text", .architecture = "llama", .alpha = 3};
  const LoraMatrices q{
      .matrix = "blk.1.attn_q.weight", .n_in = 6, .n_out = 5, .rank = 2, .a = ramp(12, 0), .b = ramp(10, 1)};
  const LoraMatrices k{
      .matrix = "blk.1.attn_k.weight", .n_in = 6, .n_out = 3, .rank = 1, .a = ramp(6, 2), .b = ramp(3, 3)};
  const std::vector<std::byte> bytes = lora_bytes(info, std::vector{q, k});
  const auto file = *GgufFile::open_bytes(bytes, "adapter.gguf");
  const Result<LoraFile> read = read_lora(*file);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->info.name, "tuned");
  EXPECT_EQ(read->info.description, "on a text");
  EXPECT_EQ(read->info.architecture, "llama");
  ASSERT_EQ(read->pairs.size(), 2U);
  const LoraPair& found = read->pairs[1];
  EXPECT_EQ(found.matrix, "blk.1.attn_q.weight");
  EXPECT_EQ(found.n_in(), 6);
  EXPECT_EQ(found.n_out(), 5);
  EXPECT_EQ(found.rank(), 2);
  std::vector<float> a(12);
  rows_to_f32(found.a->type, 6, found.a->data, a);
  EXPECT_EQ(a, q.a);
  EXPECT_FLOAT_EQ(read->info.factor(2, 0.5F), 0.75F);
  EXPECT_FLOAT_EQ(LoraInfo{.alpha = 0}.factor(2, 0.5F), 0.5F) << "the scale alone, as in llama.cpp";
}

TEST(LoraFile, TypesOfLlamaCppAreRead) {
  TestGguf file;
  put_keys(file);
  put_pair(file);
  file.tensor("blk.0.attn_v.weight.lora_a", GGML_TYPE_F16, {32, 4}, ramp(128, 0));
  file.tensor("blk.0.attn_v.weight.lora_b", GGML_TYPE_F16, {4, 5}, ramp(20, 0));
  EXPECT_EQ(error_of(file.bytes()), "none");
}

TEST(LoraFile, EveryMistakeIsNamed) {
  struct Mistake {
    std::function<void(TestGguf&)> make;
    std::vector<const char*> words;
  };
  const auto with = [](const char* key, const char* value) {
    return [=](TestGguf& file) {
      put_keys(file);
      file.text(key, value);
      put_pair(file);
    };
  };
  const auto and_tensor = [](const char* name, ggml_type type, std::vector<int64_t> ne, std::vector<float> values) {
    return [=](TestGguf& file) {
      put_keys(file);
      put_pair(file);
      file.tensor(name, type, ne, values);
    };
  };
  const char* const v_a = "blk.0.attn_v.weight.lora_a";
  const Mistake mistakes[] = {
      {with("general.type", "model"), {"general.type", "'model'", "'adapter'"}},
      {with("adapter.type", "control_vector"), {"adapter.type", "'control_vector'", "'lora'"}},
      {with("adapter.lora.alpha", "four"), {"adapter.lora.alpha", "f32"}},
      {with("adapter.alora.invocation_tokens", "x"), {"aLoRA", "all tokens"}},
      {[](TestGguf& file) { put_pair(file); }, {"general.type"}},
      {put_keys, {"tensors", "none", ".lora_a"}},
      {and_tensor(v_a, GGML_TYPE_F32, {32, 2}, ramp(64, 0)), {"attn_v.weight.lora_b", "none", ".lora_a"}},
      {and_tensor("output_norm.weight", GGML_TYPE_F32, {32}, ramp(32, 0)), {"output_norm.weight", ".lora_b"}},
      {and_tensor(v_a, GGML_TYPE_F32, {8, 2, 2}, ramp(32, 0)), {v_a, "3 dimensions", "2"}},
      {and_tensor(v_a, GGML_TYPE_F32, {32, 1}, std::vector<float>(32, NAN)), {v_a, "not finite"}},
      {[](TestGguf& file) {
         put_keys(file);
         file.tensor("blk.0.attn_q.weight.lora_a", GGML_TYPE_F32, {32, 2}, ramp(64, 0));
         file.tensor("blk.0.attn_q.weight.lora_b", GGML_TYPE_F32, {3, 5}, ramp(15, 0));
       },
       {"attn_q.weight.lora_b", "rank 3", "2"}},
  };
  for (const Mistake& mistake : mistakes) {
    TestGguf file;
    mistake.make(file);
    const std::string message = error_of(file.bytes());
    EXPECT_TRUE(message.starts_with("adapter.gguf: ")) << message;
    for (const char* word : mistake.words)
      EXPECT_NE(message.find(word), std::string::npos) << message << " without " << word;
  }
}

TEST(LoraFile, AnyBytesAreSafe) {
  TestGguf file;
  put_keys(file);
  put_pair(file);
  const std::vector<std::byte> whole = file.bytes();
  int n_read = 0, n_refused = 0;
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const int bit : {0, 3, 7}) {
      std::vector<std::byte> damaged = whole;
      damaged[at] ^= std::byte{1} << bit;
      (error_of(damaged) == "none" ? n_read : n_refused) += 1;
    }
  }
  EXPECT_GT(n_read, 100) << "numbers that are others";
  EXPECT_GT(n_refused, 500);
  for (size_t n = 0; n + 32 < whole.size(); n += 5)  // what pads the end is nobody's
    EXPECT_NE(error_of({whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n)}), "none") << n << " bytes";
}

}  // namespace
}  // namespace kedge::tensor
