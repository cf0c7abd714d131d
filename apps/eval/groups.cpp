#include "eval/groups.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

namespace kedge::eval {
namespace {

// One sample under one (policy, budget): its questions taken together.
struct Scored {
  std::string sample;
  Value score;
  std::vector<const Row*> rows;
};

struct Key {
  std::string task;
  std::string policy;
  std::string budget;
  Value length;
  Value depth;
};

// Order of first appearance of each part of the keys.
class Order {
 public:
  explicit Order(std::span<const CellRecord> records) {
    for (const CellRecord& record : records) {
      for (const Row& row : record.rows) {
        see("t" + row.task);
        see("p" + row.policy);
        see("b" + row.budget);
      }
    }
  }
  auto rank(const Key& key) const {
    const auto at = [this](const std::string& name) { return places_.at(name); };
    return std::tuple(at("t" + key.task), at("p" + key.policy), at("b" + key.budget), key.depth.has_value(),
                      key.length.value_or(-1), key.depth.value_or(-1));
  }

 private:
  void see(const std::string& name) { places_.emplace(name, static_cast<int>(places_.size())); }
  std::map<std::string, int> places_;
};

Value mean_of(const std::vector<const Row*>& rows, Value Row::*field) {
  double sum = 0;
  int64_t n = 0;
  for (const Row* row : rows) {
    if (row->*field) {
      sum += *(row->*field);
      ++n;
    }
  }
  return n == 0 ? Value() : Value(sum / static_cast<double>(n));
}

// exp of the mean negative log-likelihood over all scored tokens.
Value perplexity_of(const std::vector<const Row*>& rows, Value Row::*field) {
  double sum = 0;
  int64_t n = 0;
  for (const Row* row : rows) {
    if (row->*field) {
      sum += *(row->*field) * static_cast<double>(row->n_generated);
      n += row->n_generated;
    }
  }
  return n == 0 ? Value() : Value(std::exp(sum / static_cast<double>(n)));
}

template <typename T>
double mean_of(const std::vector<const Row*>& rows, T Row::*field) {
  double sum = 0;
  for (const Row* row : rows)
    sum += static_cast<double>(row->*field);
  return rows.empty() ? 0 : sum / static_cast<double>(rows.size());
}

void sum_up(Group& group, const std::vector<Scored>& samples, const std::map<std::string, double>& full,
            uint64_t seed) {
  std::vector<const Row*> rows;
  std::vector<double> scores;
  std::vector<double> differences;
  std::vector<double> divergences;
  for (const Scored& sample : samples) {
    rows.insert(rows.end(), sample.rows.begin(), sample.rows.end());
    group.n_errors += std::ranges::any_of(sample.rows, [](const Row* row) { return !row->error.empty(); }) ? 1 : 0;
    if (sample.score) {
      scores.push_back(*sample.score);
      if (const auto found = full.find(group.task + "|" + sample.sample); found != full.end())
        differences.push_back(*sample.score - found->second);
    }
    if (const Value kld = mean_of(sample.rows, &Row::kld_mean))
      divergences.push_back(*kld);
  }
  std::erase_if(rows, [](const Row* row) { return !row->error.empty(); });
  group.n = static_cast<int64_t>(std::max(scores.size(), divergences.size()));
  group.score = bootstrap_mean(scores, seed);
  group.difference = bootstrap_mean(differences, seed);
  group.kld = bootstrap_mean(divergences, seed);
  group.kld_p99 = mean_of(rows, &Row::kld_p99);
  for (const Row* row : rows) {
    if (row->kld_max)
      group.kld_max = std::max(group.kld_max.value_or(0), *row->kld_max);
    group.kv_peak_bytes = std::max(group.kv_peak_bytes, static_cast<double>(row->kv_peak_bytes));
  }
  group.same_top = mean_of(rows, &Row::same_top);
  group.ppl = perplexity_of(rows, &Row::nll);
  group.full_ppl = perplexity_of(rows, &Row::full_nll);
  group.keep = mean_of(rows, &Row::keep);
  group.kv_live_bytes = mean_of(rows, &Row::kv_live_bytes);
  group.kv_full_bytes = mean_of(rows, &Row::kv_full_bytes);
  group.evicted_rows = mean_of(rows, &Row::evicted_rows);
}

Json value_json(const Value& value) { return value ? Json(*value) : Json(); }

void put(Json& json, const std::string& name, const Estimate& estimate) {
  const bool known = estimate.n > 0;
  json[name] = known ? Json(estimate.mean) : Json();
  json[name + "_se"] = known ? Json(estimate.se) : Json();
  json[name + "_lo"] = known ? Json(estimate.lo) : Json();
  json[name + "_hi"] = known ? Json(estimate.hi) : Json();
}

}  // namespace

std::vector<Group> make_groups(std::span<const CellRecord> records, uint64_t seed) {
  const Order order(records);
  const auto less = [&order](const Key& a, const Key& b) { return order.rank(a) < order.rank(b); };
  std::map<Key, std::vector<Scored>, decltype(less)> groups(less);
  std::map<std::string, double> full;  // task|sample -> score of `none`
  for (const CellRecord& record : records) {
    if (record.rows.empty())
      continue;
    const Row& first = record.rows.front();
    Scored scored{.sample = first.sample};
    for (const Row& row : record.rows)
      scored.rows.push_back(&row);
    scored.score = mean_of(scored.rows, &Row::score);
    if (first.policy == "none" && scored.score)
      full[first.task + "|" + first.sample] = *scored.score;
    const auto length = static_cast<double>(first.length);
    groups[{first.task, first.policy, first.budget, {}, {}}].push_back(scored);
    groups[{first.task, first.policy, first.budget, length, {}}].push_back(scored);
    if (first.depth) {
      groups[{first.task, first.policy, first.budget, {}, first.depth}].push_back(scored);
      groups[{first.task, first.policy, first.budget, length, first.depth}].push_back(scored);
    }
  }
  std::vector<Group> out;
  for (const auto& [key, samples] : groups) {
    Group group{.task = key.task, .policy = key.policy, .budget = key.budget, .length = key.length, .depth = key.depth};
    sum_up(group, samples, full, seed);
    out.push_back(std::move(group));
  }
  return out;
}

Json to_json(const Group& group) {
  Json json = {{"task", group.task},
               {"policy", group.policy},
               {"budget", group.budget},
               {"length", value_json(group.length)},
               {"depth", value_json(group.depth)},
               {"n", group.n},
               {"n_errors", group.n_errors}};
  put(json, "score", group.score);
  json["keep"] = group.keep;
  json["kv_live_bytes"] = group.kv_live_bytes;
  json["kv_peak_bytes"] = group.kv_peak_bytes;
  json["kv_full_bytes"] = group.kv_full_bytes;
  json["evicted_rows"] = group.evicted_rows;
  json["ppl"] = value_json(group.ppl);
  json["full_ppl"] = value_json(group.full_ppl);
  json["kld_mean"] = group.kld.n > 0 ? Json(group.kld.mean) : Json();
  json["kld_se"] = group.kld.n > 0 ? Json(group.kld.se) : Json();
  json["kld_p99"] = value_json(group.kld_p99);
  json["kld_max"] = value_json(group.kld_max);
  json["same_top"] = value_json(group.same_top);
  json["difference"] = group.difference.n > 0 ? Json(group.difference.mean) : Json();
  json["difference_se"] = group.difference.n > 0 ? Json(group.difference.se) : Json();
  return json;
}

Json metrics_json(const Json& config, std::span<const CellRecord> records, const Json& noise_floor,
                  bool shared_prefix) {
  Json json = {{"schema", "kedge-eval-1"}, {"groups", Json::array()}, {"noise_floor", noise_floor}};
  for (const Group& group : make_groups(records, config.at("seed").get<uint64_t>()))
    json["groups"].push_back(to_json(group));
  json["switches"] = {{"question_aware", config.at("question_aware")},
                      {"decode_evicts", config.at("decode_evicts")},
                      {"shared_prefix", shared_prefix},
                      {"seed", config.at("seed")}};
  return json;
}

Json timings_json(std::span<const CellRecord> records) {
  struct Sum {
    int64_t n = 0;
    double prefill_s = 0;
    double decode_s = 0;
    double policy_ms = 0;
    int64_t rss_peak_bytes = 0;
  };
  std::vector<std::pair<std::string, std::string>> order;
  std::map<std::pair<std::string, std::string>, Sum> sums;
  double seconds_total = 0;
  for (const CellRecord& record : records) {
    seconds_total += record.seconds;
    for (const Row& row : record.rows) {
      const auto key = std::pair(row.policy, row.budget);
      if (!sums.contains(key))
        order.push_back(key);
      Sum& sum = sums[key];
      ++sum.n;
      sum.prefill_s += row.prefill_s;
      sum.decode_s += row.decode_s;
      sum.policy_ms += row.policy_ms;
      sum.rss_peak_bytes = std::max(sum.rss_peak_bytes, record.rss_peak_bytes);
    }
  }
  Json groups = Json::array();
  for (const auto& key : order) {
    const Sum& sum = sums[key];
    const auto n = static_cast<double>(sum.n);
    groups.push_back({{"policy", key.first},
                      {"budget", key.second},
                      {"n", sum.n},
                      {"prefill_s", sum.prefill_s / n},
                      {"decode_s", sum.decode_s / n},
                      {"policy_ms", sum.policy_ms / n},
                      {"rss_peak_bytes", sum.rss_peak_bytes}});
  }
  return {{"schema", "kedge-eval-1"}, {"groups", std::move(groups)}, {"seconds_total", seconds_total}};
}

}  // namespace kedge::eval
