#include "bench/row.h"

namespace kedge::bench {
namespace {

std::vector<double> rates_of(const std::vector<double>& seconds, int64_t n_tokens) {
  std::vector<double> out;
  for (const double s : seconds)
    out.push_back(s > 0 ? static_cast<double>(n_tokens) / s : 0);
  return out;
}

}  // namespace

std::vector<double> Row::rates() const { return rates_of(seconds, test.n_timed()); }
std::vector<double> Row::llama_rates() const { return rates_of(llama_seconds, test.n_timed()); }

std::vector<double> Row::ratios() const {
  std::vector<double> out;
  for (size_t i = 0; i < seconds.size() && i < llama_seconds.size(); ++i)
    out.push_back(seconds[i] > 0 ? llama_seconds[i] / seconds[i] : 0);
  return out;
}

double Row::attention_gb_s() const {
  return attention_seconds > 0 ? static_cast<double>(attention_row_bytes) / attention_seconds * 1e-9 : 0;
}

}  // namespace kedge::bench
