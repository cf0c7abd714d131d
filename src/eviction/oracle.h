// Every scorer once more for tests: plain, slow, in double, straight from the formulas, sharing no code with scorers,
// allocators or select(). One function each in oracle_*_test.cpp, found by the scorer's name.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "eviction/select.h"

namespace kedge::eviction {

// What a scorer sees of a head, read out and in double.
struct PlainHead {
  int layer = 0, head = 0, n_rows = 0, dim = 0, group = 1, n_window = 0, n_embd = 0, n_keep = 0, n_tokens = 0;
  double scale = 1;
  uint64_t seed = 0;
  std::vector<int> position;        // [n_rows]
  std::vector<double> k, v;         // [n_rows][dim]
  std::vector<double> q, y;         // [n_window][group][dim], the scorer's own window only
  std::vector<int> query_position;  // [n_window]
  std::vector<double> a;            // softmax weights [n_window][group][n_rows]
  std::vector<double> w_o;          // [group][dim][n_embd]
  std::vector<bool> is_protected;   // [n_rows]
  const HeadInput* in = nullptr;    // what only few ask for

  double weight(int t, int g, int i) const { return a[static_cast<size_t>((t * group + g) * n_rows + i)]; }
  const double* key(int i) const { return k.data() + static_cast<size_t>(i) * dim; }
  const double* value(int i) const { return v.data() + static_cast<size_t>(i) * dim; }
  const double* query(int t, int g) const { return q.data() + static_cast<size_t>(t * group + g) * dim; }
  const double* output(int t, int g) const { return y.data() + static_cast<size_t>(t * group + g) * dim; }
  int n_before_window() const;  // rows whose position is below the window's first query
};
// `window`: queries that the scorer observes.
PlainHead plain_head(const HeadInput& in, int window);

double dot(const double* a, const double* b, int n);
double l1_norm(const double* x, int n);
double l2_norm(const double* x, int n);
std::vector<double> softmax_of(std::vector<double> x);
// Centred windows; the maximum of what is there, or the sum of what is there over `width`.
std::vector<double> max_pooled(const std::vector<double>& x, int width);
std::vector<double> average_pooled(const std::vector<double>& x, int width);

using Oracle = std::vector<double> (*)(const PlainHead& head, const OptionValues& options);
std::map<std::string, Oracle>& oracles();
struct AddOracle {
  AddOracle(const std::string& name, Oracle oracle) { oracles()[name] = oracle; }
};
std::vector<double> oracle_scores_of_base(const PlainHead& head, const OptionValues& options);

using Scores = std::vector<std::vector<double>>;  // [head][row]
using Flags = std::vector<std::vector<bool>>;     // [head][row]

struct OracleCase {
  std::string scorer;  // with options, no allocator
  LayerInput in;       // with rows_total
  bool is_pooled = false;
  double floor = 0;
};
// Which rows both keep. False where they differ in rows whose competing sums tie; a test failure where they differ
// more.
bool expect_oracle_agrees(const OracleCase& one, Executor& executor);

}  // namespace kedge::eviction
