#include "perplexity_report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine.h"
#include "kl.h"

namespace kedge::cli {
namespace {

using Json = nlohmann::ordered_json;

Json number_or_null(std::optional<double> value) { return value ? Json(*value) : Json(nullptr); }

std::string with_error(double value, std::optional<double> error, int decimals) {
  return format_real(value, decimals) + (error ? " +/- " + format_real(*error, decimals) : "");
}

}  // namespace

double WindowScore::same_top() const {
  return kld.empty() ? 1 : static_cast<double>(n_same_top) / static_cast<double>(kld.size());
}

void PerplexityReport::add(WindowScore score) {
  nll_.push_back(mean(score.nll));
  keep_.push_back(score.keep);
  kv_peak_bytes_ = std::max(kv_peak_bytes_, score.kv_peak_bytes);
  evicted_rows_ += score.evicted_rows;
  if (request_.with_full) {
    full_nll_.push_back(mean(score.full_nll));
    kld_.push_back(mean(score.kld));
    same_top_.push_back(score.same_top());
    all_kld_.insert(all_kld_.end(), score.kld.begin(), score.kld.end());
  }
  windows_.push_back(std::move(score));
}

double PerplexityReport::ppl() const { return std::exp(mean(nll_)); }

// Of exp(x), to first order: exp(x) times the error of x.
std::optional<double> PerplexityReport::ppl_error() const {
  const std::optional<double> error = standard_error(nll_);
  return error ? std::optional(ppl() * *error) : std::nullopt;
}

std::string PerplexityReport::running_line() const {
  const WindowScore& newest = windows_.back();
  std::string line = "window " + std::to_string(n_windows()) + "/" + std::to_string(request_.n_windows) + " at token " +
                     std::to_string(newest.offset) + ": PPL so far " + format_real(ppl(), 4);
  if (request_.with_full) {
    line += ", KLD " + format_real(kld_.back(), 4) + ", so far " + format_real(mean(kld_), 4) + ", same top " +
            format_percent(mean(same_top_));
  }
  return line + ", kept " + format_percent(mean(keep_));
}

std::string PerplexityReport::json() const {
  Json windows = Json::array();
  for (const WindowScore& window : windows_) {
    windows.push_back({{"offset", window.offset},
                       {"kld_mean", mean(window.kld)},
                       {"nll", mean(window.nll)},
                       {"full_nll", mean(window.full_nll)},
                       {"same_top", window.same_top()},
                       {"keep", window.keep}});
  }
  const Json json = {
      {"ppl", ppl()},
      {"full_ppl", std::exp(mean(full_nll_))},
      {"kld_mean", mean(kld_)},
      {"kld_p99", quantile(all_kld_, 0.99)},
      {"kld_max", quantile(all_kld_, 1)},
      {"same_top", mean(same_top_)},
      {"kv_peak_bytes", kv_peak_bytes_},
      {"keep", mean(keep_)},
      {"ppl_se", number_or_null(ppl_error())},
      {"kld_se", number_or_null(standard_error(kld_))},
      {"same_top_se", number_or_null(standard_error(same_top_))},
      {"windows", windows},
      {"kv_budget_bytes", windows_.front().kv_budget_bytes},
      {"evicted_rows", evicted_rows_},
      {"context", request_.context},
      {"continue", request_.continuation},
      {"samples", windows_.size()},
      {"seed", request_.seed},
      {"policy", windows_.front().policy},
  };
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::string PerplexityReport::text() const {
  std::string text;
  if (request_.with_full) {
    std::optional<double> same_top_error = standard_error(same_top_);
    if (same_top_error)
      *same_top_error *= 100;
    text += "full PPL = " + format_real(std::exp(mean(full_nll_)), 4) + "\n";
    text += "KLD mean = " + with_error(mean(kld_), standard_error(kld_), 6) +
            ", p99 = " + format_real(quantile(all_kld_, 0.99), 6) + ", max = " + format_real(quantile(all_kld_, 1), 6) +
            "\n";
    text += "same top token = " + with_error(100 * mean(same_top_), same_top_error, 2) + " %\n";
  }
  text += "KV peak = " + format_bytes(kv_peak_bytes_) + " of " + format_bytes(windows_.front().kv_budget_bytes) +
          ", kept " + format_percent(mean(keep_)) + ", policy " + windows_.front().policy + "\n";
  return text + "PPL = " + with_error(ppl(), ppl_error(), 4);
}

}  // namespace kedge::cli
