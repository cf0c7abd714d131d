// What the probes share: programs that are given a model and texts and print measurements (bench/CMakeLists.txt).
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/check.h"
#include "kedge/session.h"

namespace kedge {

using Tokens = std::vector<Token>;
using Rows = std::vector<std::vector<float>>;

template <typename T>
T take(Result<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "error: %s\n", result.error().message.c_str());
    std::exit(1);
  }
  return std::move(result).value();
}
void must(const Status& status);

std::string setting(const char* name, const char* fallback);  // of the environment
std::string read_text(const std::string& path);               // plain or gzip
Tokens slice(const Tokens& tokens, size_t begin, size_t n);
// KL(p || q) of two rows of logits, in nats.
double divergence(const std::vector<float>& p, const std::vector<float>& q);

}  // namespace kedge
