// libllama as the oracle: the same file, the same tokens, its own attention.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kedge::test {

struct OracleConfig {
  bool flash_attention = false;
  bool kv_f16 = false;  // else f32
  int n_threads = 1;    // tiny models are slower on more
};

class Oracle {
 public:
  // Aborts the test program when libllama refuses the file.
  explicit Oracle(const std::string& path);
  ~Oracle();

  int n_vocab() const;
  std::vector<int32_t> tokenize(std::string_view text) const;  // no BOS, markers are plain text

  // Logits f32 [n_vocab] of every position from `first` on, in order, after a forward pass over the tokens.
  using EachLogits = std::function<void(int64_t position, std::span<const float> logits)>;
  void logits(std::span<const int32_t> tokens, int64_t first, const OracleConfig& config, const EachLogits& each) const;
  // The same as a matrix f32 [tokens.size() - first][n_vocab].
  std::vector<std::vector<float>> logits(std::span<const int32_t> tokens, int64_t first,
                                         const OracleConfig& config) const;

  // n tokens after the prompt, the most likely one each time (ties: the lower id).
  std::vector<int32_t> greedy(std::span<const int32_t> prompt, int n, const OracleConfig& config) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kedge::test
