#include "probe.h"

#include <zlib.h>

#include <algorithm>
#include <cmath>

namespace kedge {

void must(const Status& status) {
  if (status.ok())
    return;
  std::fprintf(stderr, "error: %s\n", status.error().message.c_str());
  std::exit(1);
}

std::string setting(const char* name, const char* fallback) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : fallback;
}

std::string read_text(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  check(file != nullptr, "the text can be opened");
  std::string text;
  char buffer[1 << 16];
  for (int n = 0; (n = gzread(file, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(n));
  gzclose(file);
  return text;
}

// KL(p || q) of two rows of logits, in nats.
double divergence(const std::vector<float>& p, const std::vector<float>& q) {
  const auto log_sum = [](const std::vector<float>& x) {
    double top = x[0];
    for (const float value : x)
      top = std::max(top, static_cast<double>(value));
    double sum = 0;
    for (const float value : x)
      sum += std::exp(value - top);
    return top + std::log(sum);
  };
  const double p_log = log_sum(p);
  const double q_log = log_sum(q);
  double kld = 0;
  for (size_t i = 0; i < p.size(); ++i)
    kld += std::exp(p[i] - p_log) * ((p[i] - p_log) - (q[i] - q_log));
  return kld;
}

Tokens slice(const Tokens& tokens, size_t begin, size_t n) {
  check(begin + n <= tokens.size(), "the text is long enough");
  return {tokens.begin() + static_cast<long>(begin), tokens.begin() + static_cast<long>(begin + n)};
}

}  // namespace kedge
