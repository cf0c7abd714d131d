// Oracles of the scorers that look at the last queries (eviction/oracle.h).
#include <algorithm>
#include <cmath>

#include "eviction/oracle.h"

namespace kedge::eviction {
namespace {

int number(const OptionValues& options, const char* name) { return static_cast<int>(options.numbers.at(name)); }

// Mean weight over the window and the group of the first n rows.
std::vector<double> mean_weights(const PlainHead& head, int n) {
  std::vector<double> mean(n, 0.0);
  for (int i = 0; i < n; ++i) {
    for (int t = 0; t < head.n_window; ++t) {
      for (int g = 0; g < head.group; ++g)
        mean[i] += head.weight(t, g, i);
    }
    mean[i] /= head.n_window * head.group;
  }
  return mean;
}

// Rows of the window behind the others, the newest first.
void append_window(const PlainHead& head, std::vector<double>& score) {
  const int n_before = static_cast<int>(score.size());
  for (int i = n_before; i < head.n_rows; ++i)
    score.push_back(2 + double(i - n_before) / head.n_rows);
}

double squared_distance(const double* a, const double* b, int n) {
  double sum = 0;
  for (int j = 0; j < n; ++j)
    sum += (a[j] - b[j]) * (a[j] - b[j]);
  return sum;
}

// ---- andpro ------------------------------------------------------------------------------------------------------
std::vector<double> andpro_anchor(const PlainHead& head, int t, int g, const std::string& kind) {
  std::vector<double> anchor(head.output(t, g), head.output(t, g) + head.dim);
  if (kind == "window") {
    for (int j = 0; j < head.dim; ++j) {
      anchor[j] = 0;
      for (int s = 0; s < head.n_window; ++s)
        anchor[j] += head.output(s, g)[j] / head.n_window;
    }
  }
  if (kind == "nonprotected") {
    for (int i = 0; i < head.n_rows; ++i) {
      for (int j = 0; j < head.dim && head.is_protected[i]; ++j)
        anchor[j] -= head.weight(t, g, i) * head.value(i)[j];
    }
  }
  return anchor;
}

std::vector<double> andpro(const PlainHead& head, const OptionValues& options) {
  std::vector<double> score(head.n_rows, 0.0);
  for (int t = 0; t < head.n_window; ++t) {
    for (int g = 0; g < head.group; ++g) {
      const std::vector<double> anchor = andpro_anchor(head, t, g, options.choices.at("anchor"));
      std::vector<double> a;
      for (int i = 0; i < head.n_rows; ++i)
        a.push_back(head.weight(t, g, i));
      a = max_pooled(a, number(options, "pool"));
      for (int i = 0; i < head.n_rows; ++i)
        score[i] += a[i] * dot(anchor.data(), head.value(i), head.dim);
    }
  }
  return score;
}
const AddOracle kAndPro("andpro", andpro);

// ---- snapkv, tova, vatp ------------------------------------------------------------------------------------------
std::vector<double> snapkv(const PlainHead& head, const OptionValues& options) {
  const std::vector<double> mean = mean_weights(head, head.n_before_window());
  const int pool = number(options, "pool");
  std::vector<double> score =
      options.choices.at("pool_kind") == "avg" ? average_pooled(mean, pool) : max_pooled(mean, pool);
  append_window(head, score);
  return score;
}
const AddOracle kSnapKv("snapkv", snapkv);

std::vector<double> tova(const PlainHead& head, const OptionValues&) { return mean_weights(head, head.n_rows); }
const AddOracle kTova("tova", tova);

std::vector<double> vatp(const PlainHead& head, const OptionValues& options) {
  std::vector<double> score;
  if (options.choices.at("attention") == "all") {
    for (int i = 0; i < head.n_rows; ++i)
      score.push_back(head.in->attention_sum[i]);
  } else {
    score = mean_weights(head, head.n_rows);
  }
  for (int i = 0; i < head.n_rows; ++i)
    score[i] *= l1_norm(head.value(i), head.dim);
  return score;
}
const AddOracle kVatp("vatp", vatp);

// ---- dropkv, obcache ---------------------------------------------------------------------------------------------
std::vector<double> dropkv(const PlainHead& head, const OptionValues& options) {
  std::vector<double> score(head.n_rows, 0.0);
  for (int i = 0; i < head.n_rows; ++i) {
    for (int t = 0; t < head.n_window; ++t) {
      for (int g = 0; g < head.group; ++g) {
        const double a = head.weight(t, g, i);
        const double ratio = a / (1 - a + 1e-6);
        score[i] += ratio * ratio * squared_distance(head.value(i), head.output(t, g), head.dim) / head.group;
      }
    }
  }
  return average_pooled(score, number(options, "pool"));
}
const AddOracle kDropKv("dropkv", dropkv);

// The published form, with its subtractions.
std::vector<double> obcache(const PlainHead& head, const OptionValues& options) {
  const std::string& term = options.choices.at("term");
  std::vector<double> score(head.n_rows, 0.0);
  for (int i = 0; i < head.n_rows; ++i) {
    const double* v = head.value(i);
    const double vv = dot(v, v, head.dim);
    for (int t = 0; t < head.n_window; ++t) {
      for (int g = 0; g < head.group; ++g) {
        const double a = head.weight(t, g, i);
        const double l = head.scale * dot(head.query(t, g), head.key(i), head.dim);
        const double vy = dot(v, head.output(t, g), head.dim);
        const double of_value = a * a * vv;
        const double of_key = a * l * a * l * squared_distance(v, head.output(t, g), head.dim);
        score[i] += term == "v" ? of_value : term == "k" ? of_key : of_value + of_key + 2 * a * a * l * (vv - vy);
      }
    }
  }
  return max_pooled(score, number(options, "pool"));
}
const AddOracle kObCache("obcache", obcache);

// ---- rkv ---------------------------------------------------------------------------------------------------------
std::vector<double> rkv_redundancy(const PlainHead& head, const OptionValues& options) {
  const int n = head.n_rows;
  std::vector<double> sum(n, 0.0);
  for (int m = 0; m < n; ++m) {
    std::vector<double> cosine;
    int last = -1;  // the newest row that is similar
    for (int i = 0; i < n; ++i) {
      const double norms = l2_norm(head.key(m), head.dim) * l2_norm(head.key(i), head.dim);
      cosine.push_back(i == m || norms == 0 ? 0 : dot(head.key(m), head.key(i), head.dim) / norms);
      if (cosine.back() > options.numbers.at("threshold"))
        last = i;
    }
    if (last >= 0 && options.choices.at("redundancy") == "pairs")
      cosine[last] = 0;
    for (int i = 0; i < n; ++i)
      sum[i] += cosine[i] / n;
  }
  return softmax_of(sum);
}

std::vector<double> rkv_attention(const PlainHead& head, const OptionValues& options, int n_before) {
  std::vector<double> mean(n_before, 0.0);
  for (int t = 0; t < head.n_window; ++t) {
    std::vector<std::vector<double>> logits;
    for (int g = 0; g < head.group; ++g) {
      logits.emplace_back();
      for (int i = 0; i < n_before; ++i)
        logits.back().push_back(head.scale * dot(head.query(t, g), head.key(i), head.dim));
    }
    if (options.choices.at("group") == "max") {
      for (int i = 0; i < n_before; ++i) {
        for (const auto& one : logits)
          logits[0][i] = std::max(logits[0][i], one[i]);
      }
      logits.resize(1);
    }
    for (const auto& one : logits) {
      const std::vector<double> weights = softmax_of(one);
      for (int i = 0; i < n_before; ++i)
        mean[i] += weights[i] / static_cast<double>(logits.size()) / head.n_window;
    }
  }
  return max_pooled(mean, number(options, "pool"));
}

std::vector<double> rkv(const PlainHead& head, const OptionValues& options) {
  const int n_before = head.n_before_window();
  const double lambda = options.numbers.at("lambda");
  std::vector<double> score;
  if (n_before > 0)
    score = rkv_attention(head, options, n_before);
  const std::vector<double> redundancy = rkv_redundancy(head, options);
  for (int i = 0; i < n_before; ++i)
    score[i] = lambda * score[i] - (1 - lambda) * redundancy[i];
  append_window(head, score);
  return score;
}
const AddOracle kRKv("rkv", rkv);

}  // namespace
}  // namespace kedge::eviction
