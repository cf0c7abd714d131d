// What perplexity found: windows, their totals, and both written out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kedge::cli {

struct WindowScore {
  int64_t offset = 0;
  std::vector<double> nll, full_nll, kld;  // [continue], nats; the last two empty without the full cache
  int64_t n_same_top = 0;
  double keep = 1;  // after the eviction that follows the prompt
  int64_t kv_peak_bytes = 0;
  int64_t kv_budget_bytes = 0;
  int64_t evicted_rows = 0;
  std::string policy;

  double same_top() const;
};

// Every window has the same number of tokens, so means over tokens are means over windows. Errors are those of the mean
// over windows: tokens of one window depend on each other.
class PerplexityReport {
 public:
  struct Request {
    int64_t context = 0;
    int64_t continuation = 0;
    int64_t n_windows = 0;
    uint64_t seed = 0;
    bool with_full = false;
  };
  explicit PerplexityReport(const Request& request) : request_(request) {}

  void add(WindowScore score);
  int64_t n_windows() const { return static_cast<int64_t>(windows_.size()); }

  // All of at least one window.
  std::string running_line() const;  // after the newest window
  std::string json() const;
  std::string text() const;  // ends with the line of the perplexity

 private:
  double ppl() const;
  std::optional<double> ppl_error() const;

  Request request_;
  std::vector<WindowScore> windows_;
  std::vector<double> nll_, full_nll_, kld_, same_top_, keep_;  // [window], means
  std::vector<double> all_kld_;                                 // [window * continue]
  int64_t kv_peak_bytes_ = 0;
  int64_t evicted_rows_ = 0;
};

}  // namespace kedge::cli
