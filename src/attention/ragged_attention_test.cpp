// The nodes against a dense attention with a mask: every head has its own rows, batches and single tokens, one and two
// threads.
#include "attention/ragged_attention.h"

#include <ggml.h>
#include <gguf.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace kedge::attention {
namespace {

constexpr int kLayers = 2;

// Rows in plain vectors, one block list per (layer, head); blocks are laid out as the store's are.
class PlainRows final : public KvRows {
 public:
  PlainRows(const AttentionShape& shape, int capacity_rows) : shape_(shape) {
    const int blocks_each = (capacity_rows + kBlockRows - 1) / kBlockRows;
    const KvHeadView empty{.head_dim = shape.head_dim, .type = RowType::f16};
    const auto n_heads = static_cast<size_t>(kLayers) * shape.n_kv_heads;
    arena_.resize(n_heads * blocks_each * empty.block_bytes() / sizeof(float));
    positions_.resize(n_heads * blocks_each * kBlockRows);
    for (size_t h = 0; h < n_heads; ++h) {
      heads_.push_back({});
      for (int b = 0; b < blocks_each; ++b)
        heads_.back().blocks.push_back(static_cast<uint32_t>(static_cast<size_t>(b) * n_heads + h));
    }
  }

  void append(int layer, int head, const NewRows& rows) override {
    Head& h = heads_[index(layer, head)];
    for (size_t i = 0; i < rows.positions.size(); ++i, ++h.n_rows) {
      const KvHeadView v = view(layer, head);
      const uint32_t block = h.blocks[static_cast<size_t>(h.n_rows / kBlockRows)];
      std::byte* at = reinterpret_cast<std::byte*>(arena_.data()) + block * v.block_bytes();
      write_row(at, h.n_rows % kBlockRows, shape_.head_dim, RowType::f16,
                rows.k + static_cast<long>(i) * rows.row_stride, rows.v + static_cast<long>(i) * rows.row_stride);
      positions_[block * static_cast<size_t>(kBlockRows) + static_cast<size_t>(h.n_rows % kBlockRows)] =
          rows.positions[i];
    }
  }
  KvHeadView view(int layer, int head) const override {
    const Head& h = heads_[index(layer, head)];
    return {.blocks = reinterpret_cast<const std::byte*>(arena_.data()),
            .positions = positions_.data(),
            .block_ids = h.blocks.data(),
            .n_rows = h.n_rows,
            .head_dim = shape_.head_dim,
            .type = RowType::f16};
  }

 private:
  struct Head {
    std::vector<uint32_t> blocks;
    int32_t n_rows = 0;
  };
  size_t index(int layer, int head) const { return static_cast<size_t>(layer) * shape_.n_kv_heads + head; }

  AttentionShape shape_;
  std::vector<float> arena_;
  std::vector<int32_t> positions_;
  std::vector<Head> heads_;
};

// A file with one small tensor: graphs want weights, these tests have none.
std::string tiny_file() {
  const std::string path = testing::TempDir() + "kedge_attention_test.gguf";
  ggml_context* context = ggml_init({.mem_size = 1 << 16, .mem_buffer = nullptr, .no_alloc = false});
  ggml_tensor* t = ggml_new_tensor_1d(context, GGML_TYPE_F32, 32);
  ggml_set_name(t, "unused");
  gguf_context* gguf = gguf_init_empty();
  gguf_add_tensor(gguf, t);
  gguf_write_to_file(gguf, path.c_str(), false);
  gguf_free(gguf);
  ggml_free(context);
  return path;
}

struct Case {
  AttentionShape shape;
  int history = 0;  // rows per head before the batch: head h drops every (h + 2)-th
  int batch = 1;
};

struct Fixture {
  explicit Fixture(const Case& c, int n_threads)
      : rows(c.shape, c.history + c.batch), taps({kLayers, 8, c.shape.n_heads, c.shape.head_dim}) {
    compute = tensor::Compute::create({.n_threads = n_threads}).value().release();
    file = tensor::GgufFile::open(tiny_file()).value().release();
    weights =
        tensor::Weights::create(*compute, *file, {.prompt_weights = tensor::PromptWeights::native}).value().release();
  }
  ~Fixture() {
    delete weights;
    delete file;
    delete compute;
  }
  PlainRows rows;
  Taps taps;
  tensor::Compute* compute = nullptr;
  tensor::GgufFile* file = nullptr;
  tensor::Weights* weights = nullptr;
};

std::vector<float> random_floats(size_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(n);
  for (float& x : out)
    x = ggml_fp16_to_fp32(ggml_fp32_to_fp16(normal(rng)));  // what f16 rows hold exactly
  return out;
}

bool kept(int position, int head) { return position % (head + 2) != 1; }

struct Inputs {  // f32 [n_tokens, heads * head_dim]
  std::vector<float> q, k, v;
};
Inputs inputs_of(const Case& c) {
  const auto n = static_cast<size_t>(c.history + c.batch);
  const auto d = static_cast<size_t>(c.shape.head_dim);
  return {random_floats(n * c.shape.n_heads * d, 1), random_floats(n * c.shape.n_kv_heads * d, 2),
          random_floats(n * c.shape.n_kv_heads * d, 3)};
}

// y of the batch's tokens in double, over the rows that `kept` leaves of the history and the batch up to each token.
std::vector<float> dense_reference(const Case& c, const Inputs& in) {
  const int d = c.shape.head_dim;
  std::vector<float> out(static_cast<size_t>(c.batch) * c.shape.n_heads * d);
  for (int t = 0; t < c.batch; ++t) {
    for (int h = 0; h < c.shape.n_heads; ++h) {
      const int kv = h / c.shape.group();
      std::vector<double> logits;
      std::vector<int> seen;
      for (int p = 0; p <= c.history + t; ++p) {
        if (p < c.history && !kept(p, kv))
          continue;
        double dot = 0;
        for (int i = 0; i < d; ++i) {
          dot += static_cast<double>(in.q[(static_cast<size_t>(c.history + t) * c.shape.n_heads + h) * d + i]) *
                 in.k[(static_cast<size_t>(p) * c.shape.n_kv_heads + kv) * d + i];
        }
        logits.push_back(dot * c.shape.scale);
        seen.push_back(p);
      }
      const double most = *std::max_element(logits.begin(), logits.end());
      double sum = 0;
      std::vector<double> y(static_cast<size_t>(d));
      for (size_t r = 0; r < seen.size(); ++r) {
        const double w = std::exp(logits[r] - most);
        sum += w;
        for (int i = 0; i < d; ++i)
          y[i] += w * in.v[(static_cast<size_t>(seen[r]) * c.shape.n_kv_heads + kv) * d + i];
      }
      for (int i = 0; i < d; ++i)
        out[(static_cast<size_t>(t) * c.shape.n_heads + h) * d + i] = static_cast<float>(y[i] / sum);
    }
  }
  return out;
}

std::vector<float> run_nodes(const Case& c, const Inputs& in, int n_threads, Fixture& fixture) {
  const int d = c.shape.head_dim;
  const long kv_width = static_cast<long>(c.shape.n_kv_heads) * d;
  for (int layer = 0; layer < kLayers; ++layer) {
    for (int head = 0; head < c.shape.n_kv_heads; ++head) {
      for (int32_t p = 0; p < c.history; ++p) {
        if (!kept(p, head))
          continue;
        const long at = p * kv_width + static_cast<long>(head) * d;
        fixture.rows.append(layer, head, {&in.k[at], &in.v[at], kv_width, std::span<const int32_t>(&p, 1)});
      }
    }
  }
  RaggedAttention port({.shape = c.shape,
                        .kernels = &best_attention_kernels(),
                        .rows = &fixture.rows,
                        .taps = &fixture.taps,
                        .n_threads = n_threads});
  tensor::Graph graph(*fixture.compute, *fixture.weights);
  tensor::Tensor q = graph.input_f32(c.batch, static_cast<int64_t>(c.shape.n_heads) * d);
  tensor::Tensor k = graph.input_f32(c.batch, kv_width);
  tensor::Tensor v = graph.input_f32(c.batch, kv_width);
  tensor::Tensor y0 = port.attend(graph, 0, q, k, v, {});
  tensor::Tensor y1 = port.attend(graph, 1, q, k, v, {});
  tensor::Tensor both = graph.add(y0, graph.scale(y1, -1.0F));
  graph.output(y0);
  graph.output(both);
  EXPECT_TRUE(graph.finish().ok());
  const auto from = static_cast<size_t>(c.history);
  graph.set(q, std::span<const float>(in.q).subspan(from * c.shape.n_heads * d));
  graph.set(k, std::span<const float>(in.k).subspan(from * kv_width));
  graph.set(v, std::span<const float>(in.v).subspan(from * kv_width));
  std::vector<int32_t> positions(static_cast<size_t>(c.batch));
  for (int t = 0; t < c.batch; ++t)
    positions[t] = c.history + t;
  port.prepare(positions, kLayers);
  graph.run();
  for (const float difference : graph.read(both))
    EXPECT_EQ(difference, 0.0F);  // layers hold the same rows
  const std::span<const float> y = graph.read(y0);
  return {y.begin(), y.end()};
}

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const int group : {1, 3, 4}) {
    for (const int history : {0, 1, 17, 300}) {
      for (const int batch : {1, 2, 64, 65, 130}) {
        out.push_back({{.n_heads = 2 * group, .n_kv_heads = 2, .head_dim = 64, .scale = 0.125F}, history, batch});
      }
    }
  }
  out.push_back({{.n_heads = 6, .n_kv_heads = 2, .head_dim = 64, .scale = 0.125F}, 1100, 1});
  out.push_back({{.n_heads = 5, .n_kv_heads = 5, .head_dim = 128, .scale = 0.09F}, 90, 20});
  return out;
}

TEST(RaggedAttention, EqualsMaskedDenseAttention) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(testing::Message() << "heads " << c.shape.n_heads << " history " << c.history << " batch " << c.batch);
    const Inputs in = inputs_of(c);
    const std::vector<float> expected = dense_reference(c, in);
    Fixture one(c, 1);
    const std::vector<float> y = run_nodes(c, in, 1, one);
    ASSERT_EQ(y.size(), expected.size());
    for (size_t i = 0; i < y.size(); ++i)
      ASSERT_NEAR(y[i], expected[i], 2e-5F) << i;
    Fixture two(c, 2);
    EXPECT_EQ(run_nodes(c, in, 2, two), y) << "two threads give other bits";
  }
}

TEST(RaggedAttention, RecordsTheNewestQueriesAndOutputs) {
  const Case c{{.n_heads = 6, .n_kv_heads = 2, .head_dim = 64, .scale = 0.125F}, 30, 20};
  const Inputs in = inputs_of(c);
  Fixture fixture(c, 2);
  const std::vector<float> y = run_nodes(c, in, 2, fixture);
  const ObservedWindow window = fixture.taps.gather({.layer = 1, .first_head = 3, .group = 3, .n_tokens = 50});
  ASSERT_EQ(window.positions, (std::vector<int32_t>{42, 43, 44, 45, 46, 47, 48, 49}));
  for (int t = 0; t < 8; ++t) {
    for (int g = 0; g < 3; ++g) {
      for (int i = 0; i < 64; ++i) {
        const size_t at = (static_cast<size_t>(t) * 3 + g) * 64 + i;
        ASSERT_EQ(window.q[at], in.q[(static_cast<size_t>(42 + t) * 6 + 3 + g) * 64 + i]);
        ASSERT_EQ(window.y[at], y[(static_cast<size_t>(12 + t) * 6 + 3 + g) * 64 + i]);
      }
    }
  }
  EXPECT_TRUE(fixture.taps.gather({.layer = 1, .first_head = 3, .group = 3, .n_tokens = 60}).positions.empty())
      << "a gap ends the window";
}

}  // namespace
}  // namespace kedge::attention
