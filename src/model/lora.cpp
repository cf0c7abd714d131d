#include "model/lora.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/check.h"
#include "base/sha256.h"
#include "tensor/types.h"

namespace kedge::model {
namespace {

Error refused(const std::string& path, const std::string& what, const std::string& found, const std::string& allowed) {
  return {ErrorCode::model_unreadable, path + ": " + what + ": found " + found + ", allowed " + allowed};
}

// The matrix is one of the model's, of these sizes.
Status check_target(const tensor::LoraPair& pair, const std::string& path, const LoraHost& host) {
  const tensor::TensorInfo* own = host.file.find(pair.matrix);
  if (own == nullptr || std::ranges::find(host.matrices, pair.matrix) == host.matrices.end())
    return refused(
        path, "tensor '" + pair.a->name + "'", "an adapter of '" + pair.matrix + "'",
        "those of matrices of attention and feed-forward, " + host.matrices.front() + " to " + host.matrices.back());
  if (pair.n_in() != own->ne[0])
    return refused(path, "tensor '" + pair.a->name + "'", std::to_string(pair.n_in()) + " columns",
                   std::to_string(own->ne[0]) + ", as its matrix has");
  if (pair.n_out() != own->ne[1])
    return refused(path, "tensor '" + pair.b->name + "'", std::to_string(pair.n_out()) + " rows",
                   std::to_string(own->ne[1]) + ", as its matrix has");
  return {};
}

std::vector<float> rows_of(const tensor::TensorInfo& info) {
  std::vector<float> rows(static_cast<size_t>(info.ne[0] * info.ne[1]));
  tensor::rows_to_f32(info.type, info.ne[0], info.data, rows);
  return rows;
}

}  // namespace

Result<std::unique_ptr<Lora>> Lora::load(tensor::Compute& compute, const LoraOptions& options, const LoraHost& host) {
  if (!std::isfinite(options.scale))
    return Error{ErrorCode::usage, options.path + ": found a scale that is not finite, allowed finite ones"};
  Result<std::unique_ptr<tensor::GgufFile>> file = tensor::GgufFile::open(options.path);
  if (!file)
    return file.error();
  Result<tensor::LoraFile> read = tensor::read_lora(**file);
  if (!read)
    return read.error();
  if (read->info.architecture != host.architecture)
    return refused(options.path, "key 'general.architecture'", "'" + read->info.architecture + "'",
                   "'" + host.architecture + "', the model's");
  auto lora = std::make_unique<Lora>();
  lora->file_ = *std::move(file);
  lora->info_ = read->info;
  lora->pairs_ = std::move(read->pairs);
  lora->sha256_ = sha256_hex(lora->file_->bytes());
  lora->scale_ = options.scale;
  Result<std::unique_ptr<tensor::Weights>> weights = tensor::Weights::create(
      compute, *lora->file_, {.prompt_weights = tensor::PromptWeights::native, .repack = false});
  if (!weights)
    return weights.error();
  lora->weights_ = *std::move(weights);
  for (const tensor::LoraPair& pair : lora->pairs_) {
    if (Status fits = check_target(pair, options.path, host); !fits)
      return fits.error();
    const float factor = lora->info_.factor(pair.rank(), options.scale);
    if (factor != 0)
      lora->parts_[host.weights.find(pair.matrix)] = {
          .a = lora->weights_->find(pair.a->name), .b = lora->weights_->find(pair.b->name), .factor = factor};
  }
  return lora;
}

std::string Lora::words() const {
  char scale[32];
  std::snprintf(scale, sizeof scale, "%.6g", static_cast<double>(scale_));
  return (info_.name.empty() ? "adapter" : info_.name) + " (sha256 " + sha256_.substr(0, 16) + ") at " + scale;
}

tensor::Tensor Lora::added(tensor::Graph& graph, tensor::Tensor weight, tensor::Tensor x,
                           tensor::Tensor product) const {
  const auto found = parts_.find(weight);
  if (found == parts_.end())
    return product;
  const Part& part = found->second;
  tensor::Tensor low = graph.matmul(part.a, x);  // [n, rank]
  if (part.factor != 1)
    low = graph.scale(low, part.factor);
  return graph.add(product, graph.matmul(part.b, low));
}

void Lora::add_transposed(std::string_view matrix, std::span<float> transposed) const {
  const auto pair = std::ranges::find(pairs_, matrix, &tensor::LoraPair::matrix);
  const float factor = pair == pairs_.end() ? 0 : info_.factor(pair->rank(), scale_);
  if (factor == 0)
    return;
  const std::vector<float> a = rows_of(*pair->a), b = rows_of(*pair->b);
  const auto n_in = static_cast<size_t>(pair->n_in()), n_out = static_cast<size_t>(pair->n_out());
  const auto rank = static_cast<size_t>(pair->rank());
  check(transposed.size() == n_in * n_out, "the matrix has the sizes that were checked");
  for (size_t i = 0; i < n_in; ++i) {
    for (size_t o = 0; o < n_out; ++o) {
      float sum = 0;
      for (size_t r = 0; r < rank; ++r)
        sum += b[o * rank + r] * a[r * n_in + i];
      transposed[i * n_out + o] += factor * sum;
    }
  }
}

}  // namespace kedge::model
