// What the oracles share, and the comparison: both must keep the same rows.
#include "eviction/oracle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "eviction/options.h"
#include "eviction/registry.h"
#include "eviction/synthetic_heads.h"

namespace kedge::eviction {

// ---- plain heads -------------------------------------------------------------------------------------------------
double dot(const double* a, const double* b, int n) { return std::inner_product(a, a + n, b, 0.0); }

double l1_norm(const double* x, int n) {
  double sum = 0;
  for (int j = 0; j < n; ++j)
    sum += std::abs(x[j]);
  return sum;
}

double l2_norm(const double* x, int n) { return std::sqrt(dot(x, x, n)); }

std::vector<double> softmax_of(std::vector<double> x) {
  const double most = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (double& value : x) {
    value = std::exp(value - most);
    sum += value;
  }
  for (double& value : x)
    value /= sum;
  return x;
}

std::vector<double> max_pooled(const std::vector<double>& x, int width) {
  const int n = static_cast<int>(x.size());
  std::vector<double> out;
  for (int i = 0; i < n; ++i) {
    double best = x[i];
    for (int j = std::max(i - width / 2, 0); j <= std::min(i + width / 2, n - 1); ++j)
      best = std::max(best, x[j]);
    out.push_back(best);
  }
  return out;
}

std::vector<double> average_pooled(const std::vector<double>& x, int width) {
  const int n = static_cast<int>(x.size());
  std::vector<double> out;
  for (int i = 0; i < n; ++i) {
    double sum = 0;
    for (int j = std::max(i - width / 2, 0); j <= std::min(i + width / 2, n - 1); ++j)
      sum += x[j];
    out.push_back(sum / width);
  }
  return out;
}

int PlainHead::n_before_window() const {
  int n = 0;
  while (n < n_rows && position[n] < query_position[0])
    ++n;
  return n;
}

PlainHead plain_head(const HeadInput& in, int window) {
  PlainHead out;
  out.layer = in.layer;
  out.head = in.head;
  out.n_rows = in.rows.n_rows;
  out.dim = in.rows.head_dim;
  out.group = in.group;
  out.n_window = std::min(window, in.n_window);
  out.n_embd = in.n_embd;
  out.n_keep = in.n_keep;
  out.n_tokens = in.n_tokens;
  out.scale = in.scale;
  out.seed = in.seed;
  out.in = &in;
  std::vector<float> k(static_cast<size_t>(out.n_rows) * out.dim);
  std::vector<float> v(k.size());
  read_rows(in.rows, 0, out.n_rows, k.data(), v.data());
  out.k.assign(k.begin(), k.end());
  out.v.assign(v.begin(), v.end());
  for (int i = 0; i < out.n_rows; ++i) {
    out.position.push_back(in.rows.position(i));
    out.is_protected.push_back(in.is_protected[i] != 0);
  }
  const int first = in.n_window - out.n_window;
  const ptrdiff_t begin = ptrdiff_t{first} * in.group * out.dim;
  const ptrdiff_t end = ptrdiff_t{in.n_window} * in.group * out.dim;
  if (out.n_window > 0) {
    out.q.assign(in.q + begin, in.q + end);
    out.y.assign(in.y + begin, in.y + end);
    out.query_position.assign(in.query_positions + first, in.query_positions + in.n_window);
  }
  if (in.w_o != nullptr)
    out.w_o.assign(in.w_o, in.w_o + static_cast<size_t>(in.group) * out.dim * in.n_embd);
  for (int t = 0; t < out.n_window; ++t) {
    for (int g = 0; g < out.group; ++g) {
      std::vector<double> logit;
      for (int i = 0; i < out.n_rows && out.position[i] <= out.query_position[t]; ++i)
        logit.push_back(out.scale * dot(out.query(t, g), out.key(i), out.dim));
      if (!logit.empty())
        logit = softmax_of(logit);
      logit.resize(out.n_rows, 0.0);
      out.a.insert(out.a.end(), logit.begin(), logit.end());
    }
  }
  return out;
}

std::map<std::string, Oracle>& oracles() {
  static std::map<std::string, Oracle> table;
  return table;
}

namespace {

OptionValues values_of(const Method& method, const std::string& options) {
  const auto given = split_options(options, method.info.name);
  return resolve_options(method.info, *given)->values;
}

}  // namespace

std::vector<double> oracle_scores_of_base(const PlainHead& head, const OptionValues& options) {
  const Method* base = find_method(scorers(), options.choices.at("base"));
  return oracles().at(base->info.name)(head, values_of(*base, ""));
}

namespace {

// ---- selection ---------------------------------------------------------------------------------------------------
struct Candidate {
  double sum = 0;
  int head = 0;
  std::vector<int> rows;
};

std::vector<Candidate> candidates(const Scores& score, const Flags& flags, int head, int chunk) {
  std::vector<Candidate> out;
  const int n = static_cast<int>(score[head].size());
  for (int begin = 0; begin < n; begin += chunk) {
    Candidate one{.sum = 0, .head = head, .rows = {}};
    for (int i = begin; i < std::min(begin + chunk, n); ++i) {
      if (flags[head][i])
        continue;
      one.sum += score[head][i];
      one.rows.push_back(i);
    }
    if (!one.rows.empty())
      out.push_back(one);
  }
  std::stable_sort(out.begin(), out.end(), [](const Candidate& a, const Candidate& b) { return a.sum > b.sum; });
  return out;
}

// Moves rows of the sorted candidates into `kept` until it took `rows`; the cut chunk gives its best rows.
void take(std::vector<Candidate>& sorted, int rows, const Scores& score, Flags& kept) {
  for (Candidate& one : sorted) {
    std::stable_sort(one.rows.begin(), one.rows.end(),
                     [&](int a, int b) { return score[one.head][a] > score[one.head][b]; });
    while (rows > 0 && !one.rows.empty()) {
      kept[one.head][one.rows.front()] = true;
      one.rows.erase(one.rows.begin());
      --rows;
    }
  }
  std::erase_if(sorted, [](const Candidate& one) { return one.rows.empty(); });
}

int n_protected(const std::vector<bool>& flags) {
  return static_cast<int>(std::count(flags.begin(), flags.end(), true));
}

// One top-k over all heads, each sure of its protected rows, one row, and floor * total / heads.
Flags keep_pooled(const Scores& score, const Flags& flags, int total, double floor, int chunk) {
  Flags kept = flags;
  std::vector<Candidate> all;
  int left = total;
  for (int h = 0; h < static_cast<int>(score.size()); ++h) {
    const int n = static_cast<int>(score[h].size());
    const int share = static_cast<int>(floor * total / static_cast<double>(score.size()));
    const int sure = std::max({n_protected(flags[h]), 1, std::min(share, n)});
    std::vector<Candidate> own = candidates(score, flags, h, chunk);
    take(own, sure - n_protected(flags[h]), score, kept);
    left -= sure;
    all.insert(all.end(), own.begin(), own.end());
  }
  std::stable_sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    if (a.sum != b.sum)
      return a.sum > b.sum;
    return *std::min_element(a.rows.begin(), a.rows.end()) < *std::min_element(b.rows.begin(), b.rows.end());
  });
  take(all, left, score, kept);
  return kept;
}

Flags keep_uniform(const Scores& score, const Flags& flags, int per_head, int chunk) {
  Flags kept = flags;
  for (int h = 0; h < static_cast<int>(score.size()); ++h) {
    std::vector<Candidate> own = candidates(score, flags, h, chunk);
    take(own, per_head - n_protected(flags[h]), score, kept);
  }
  return kept;
}

// The mean over the heads that hold a row of the same position.
void share_one_list(const std::vector<PlainHead>& heads, Scores& score) {
  std::map<int, std::vector<double>> at;
  for (size_t h = 0; h < heads.size(); ++h) {
    for (int i = 0; i < heads[h].n_rows; ++i)
      at[heads[h].position[i]].push_back(score[h][i]);
  }
  for (size_t h = 0; h < heads.size(); ++h) {
    for (int i = 0; i < heads[h].n_rows; ++i) {
      const std::vector<double>& all = at[heads[h].position[i]];
      score[h][i] = std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
    }
  }
}

// ---- comparison --------------------------------------------------------------------------------------------------
// Equal sets, or sets that differ only in rows whose competing sums tie.
bool expect_same(const LayerDecision& decision, const Flags& kept, const Scores& score, const Flags& flags, int chunk) {
  std::vector<double> only_one;  // sums of the chunks of rows that only one side kept
  double scale = 0;
  bool is_equal = true;
  for (int h = 0; h < static_cast<int>(score.size()); ++h) {
    std::vector<bool> ours(score[h].size(), false);
    for (const int32_t row : decision.keep[h])
      ours[row] = true;
    for (const Candidate& one : candidates(score, flags, h, chunk)) {
      scale = std::max(scale, std::abs(one.sum));
      for (const int i : one.rows) {
        if (ours[i] != kept[h][i])
          only_one.push_back(one.sum);
      }
    }
    for (size_t i = 0; i < ours.size(); ++i) {
      is_equal = is_equal && ours[i] == kept[h][i];
      EXPECT_TRUE(ours[i] || !flags[h][i]);
    }
  }
  if (!only_one.empty()) {
    const auto [low, high] = std::minmax_element(only_one.begin(), only_one.end());
    EXPECT_LE(*high - *low, std::max(1e-5 * std::max(std::abs(*low), std::abs(*high)), 3e-7 * scale))
        << *low << " and " << *high << ", largest " << scale;
  }
  return is_equal;
}

}  // namespace

bool expect_oracle_agrees(const OracleCase& one, Executor& executor) {
  const std::string allocator = one.is_pooled ? "/pooled:floor=" + std::to_string(one.floor) : "/uniform";
  const Policy policy = std::move(parse_policy(one.scorer + allocator, {})).value();
  const size_t colon = std::min(one.scorer.find(':'), one.scorer.size());
  const std::string options = one.scorer.substr(std::min(colon + 1, one.scorer.size()));
  const OptionValues values = values_of(*policy.scorer_method, options);
  const int chunk = values.numbers.contains("chunk") ? static_cast<int>(values.numbers.at("chunk")) : 1;
  const bool has_one_list = values.choices.contains("heads") && values.choices.at("heads") == "layer";

  std::vector<PlainHead> heads;
  Scores score;
  Flags flags;
  const int n_heads = static_cast<int>(one.in.heads.size());
  for (HeadInput head : one.in.heads) {
    std::vector<uint8_t> is_protected;
    for (int i = 0; i < head.rows.n_rows; ++i) {
      const bool is_recent = i >= head.rows.n_rows - one.in.n_recent;
      is_protected.push_back(head.rows.position(i) < one.in.n_sinks || is_recent ? 1 : 0);
    }
    head.is_protected = is_protected;
    head.n_keep = static_cast<int32_t>(one.in.rows_total / n_heads);
    heads.push_back(plain_head(head, policy.scorer->needs().window));
    score.push_back(oracles().at(policy.scorer_method->info.name)(heads.back(), values));
    flags.push_back(heads.back().is_protected);
  }
  if (has_one_list)
    share_one_list(heads, score);
  const int total = static_cast<int>(one.in.rows_total);
  const Flags kept = one.is_pooled ? keep_pooled(score, flags, total, one.floor, chunk)
                                   : keep_uniform(score, flags, total / n_heads, chunk);
  return expect_same(decide_layer(policy, one.in, executor), kept, score, flags, chunk);
}

// ---- random cases ------------------------------------------------------------------------------------------------
namespace {

int draw(std::mt19937& random, int from, int to) { return from + static_cast<int>(random() % (to - from + 1)); }

SyntheticLayer random_layer(std::mt19937& random) {
  SyntheticLayer layer;
  SyntheticSpec spec;
  spec.group = draw(random, 1, 4);
  spec.head_dim = random() % 2 == 0 ? 64 : 128;
  spec.n_window = draw(random, 1, 40);
  spec.n_embd = draw(random, 1, 70);
  const int n_heads = draw(random, 1, 3);
  for (int h = 0; h < n_heads; ++h) {
    spec.n_rows = draw(random, 60, 259);
    spec.gap = 0.1 * draw(random, 0, 5);
    spec.tail = draw(random, 0, 49);
    spec.type = random() % 4 == 0 ? RowType::bf16 : RowType::f16;
    spec.seed = static_cast<uint32_t>(random());
    spec.head = h;
    layer.push_back(std::make_unique<SyntheticHead>(spec));
  }
  return layer;
}

// A value that matters at these sizes.
std::string random_value(const OptionInfo& option, std::mt19937& random) {
  switch (option.kind) {
    case OptionInfo::Kind::choice:
      return option.choices[random() % option.choices.size()];
    case OptionInfo::Kind::flag:
      return random() % 2 == 0 ? "on" : "off";
    case OptionInfo::Kind::real:
      return std::to_string(std::uniform_real_distribution<>(option.min, option.max)(random));
    case OptionInfo::Kind::integer:
      break;
    default:
      return option.fallback;
  }
  if (option.must_be_odd)
    return std::to_string(1 + 2 * draw(random, 0, 4));
  return std::to_string(std::clamp(draw(random, 1, 48), static_cast<int>(option.min), static_cast<int>(option.max)));
}

std::string random_options(const Method& method, std::mt19937& random) {
  std::string text;
  for (const OptionInfo& option : method.info.options) {
    if (option.to_allocator || option.kind == OptionInfo::Kind::percent_or_rows)
      continue;
    if (option.name == "refine")
      continue;  // exact_term_test.cpp: it looks at what the allocator gave
    std::string value = random_value(option, random);
    if (value == "running")
      value = option.fallback;  // running_anchor_test.cpp: it has a history
    if (option.name == "base") {
      const char* const bases[] = {"snapkv", "tova", "dropkv", "vatp", "keydiff", "andpro", "streaming"};
      value = bases[random() % std::size(bases)];
    }
    text += (text.empty() ? ":" : ",") + option.name + "=" + value;
  }
  return text;
}

class Oracles : public testing::TestWithParam<std::string> {};

TEST_P(Oracles, KeepTheSameRows) {
  const Method& method = *find_method(scorers(), GetParam());
  ASSERT_TRUE(oracles().contains(GetParam())) << "no oracle: add one to oracle_*_test.cpp";
  std::mt19937 random(static_cast<uint32_t>(std::hash<std::string>()(GetParam())));
  constexpr int kCases = 200;
  int n_equal = 0;
  SerialExecutor executor;
  for (int round = 0; round < kCases; ++round) {
    const SyntheticLayer layer = random_layer(random);
    OracleCase one{.scorer = GetParam() + random_options(method, random), .in = {.heads = inputs_of(layer)}};
    const int n_heads = static_cast<int>(layer.size());
    one.in.n_sinks = draw(random, 0, 5);
    one.in.n_recent = draw(random, 0, 29);
    one.is_pooled = random() % 2 == 0;
    one.floor = random() % 2 == 0 ? 0 : 0.2;
    int fewest = INT32_MAX;
    for (const auto& head : layer)
      fewest = std::min(fewest, head->view.n_rows);
    // Room for the protected rows and a little more, up to almost all; with a floor, that too.
    one.in.rows_total = n_heads * draw(random, 45, fewest - 1);
    n_equal += expect_oracle_agrees(one, executor) ? 1 : 0;
    ASSERT_FALSE(HasFailure()) << "case " << round << " " << one.scorer << (one.is_pooled ? " pooled " : " uniform ")
                               << one.floor << ", " << one.in.rows_total << " rows of " << n_heads << " heads";
  }
  EXPECT_GE(n_equal, kCases - 4);  // ties are rare
}

std::vector<std::string> scorer_names() {
  std::vector<std::string> names;
  for (const Method& method : scorers()) {
    if (method.evicts)
      names.push_back(method.info.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Scorers, Oracles, testing::ValuesIn(scorer_names()),
                         [](const testing::TestParamInfo<std::string>& i) { return i.param; });

}  // namespace
}  // namespace kedge::eviction
