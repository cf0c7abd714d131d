#include "eviction/future_queries.h"

namespace kedge::eviction {
namespace {

// x of stride `step`, in place.
void turn(const Rotation& rotation, const Turns& turns, double* x, size_t step) {
  for (size_t j = 0; j < turns.size(); ++j) {
    double& a = x[static_cast<size_t>(rotation.first(static_cast<int>(j))) * step];
    double& b = x[static_cast<size_t>(rotation.second(static_cast<int>(j))) * step];
    const std::complex<double> turned = std::complex<double>(a, b) * turns[j];
    a = turned.real();
    b = turned.imag();
  }
}

}  // namespace

Turns mean_turns(const HeadInput& in, const std::vector<int64_t>& offsets) {
  Turns turns;
  for (const float frequency : in.rotation->frequency) {
    std::complex<double> sum = 0;
    for (const int64_t offset : offsets)
      sum += std::polar(1.0, double{frequency} * static_cast<double>(in.n_tokens + offset));
    turns.push_back(sum * double{in.rotation->magnitude} / static_cast<double>(offsets.size()));
  }
  return turns;
}

Turns mean_turns(const HeadInput& in, int n) {
  Turns turns;
  for (const float frequency : in.rotation->frequency) {
    const std::complex<double> step = std::polar(1.0, double{frequency});
    std::complex<double> at = std::polar(1.0, double{frequency} * in.n_tokens);
    std::complex<double> sum = 0;
    for (int p = 0; p < n; ++p, at *= step)
      sum += at;
    turns.push_back(sum * double{in.rotation->magnitude} / static_cast<double>(n));
  }
  return turns;
}

FutureQueries future_queries(const HeadInput& in, int member, const Turns& turns) {
  const size_t d = static_cast<size_t>(in.rows.head_dim);
  const size_t g = static_cast<size_t>(member);
  const auto n = static_cast<double>(in.moments->n_queries);
  FutureQueries out;
  for (size_t i = 0; i < d; ++i)
    out.mean.push_back(in.moments->sum[g * d + i] / n);
  for (size_t i = 0; i < d * d; ++i)
    out.covariance.push_back(in.moments->outer[g * d * d + i] / n - out.mean[i / d] * out.mean[i % d]);
  turn(*in.rotation, turns, out.mean.data(), 1);
  for (size_t i = 0; i < d; ++i)
    turn(*in.rotation, turns, &out.covariance[i], d);  // columns
  for (size_t i = 0; i < d; ++i)
    turn(*in.rotation, turns, &out.covariance[i * d], 1);  // rows
  return out;
}

}  // namespace kedge::eviction
