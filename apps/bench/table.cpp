#include "bench/table.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "bench/samples.h"
#include "cli/engine.h"

namespace kedge::bench {
namespace {

using cli::format_real;

constexpr double kMiB = 1024.0 * 1024.0;

struct Column {
  std::string title;
  size_t width;  // of the widest value to be expected
  bool left;
  std::function<std::string(const Row&)> cell;
};

// Columns on the screen: bytes that continue a UTF-8 character take none.
size_t shown_width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string padded(const std::string& text, size_t width, bool left) {
  const std::string blanks(width > shown_width(text) ? width - shown_width(text) : 0, ' ');
  return left ? text + blanks : blanks + text;
}

std::string with_spread(const std::vector<double>& rates) {
  return format_real(mean(rates), 2) + " ± " + format_real(stddev(rates), 2);
}

std::string escaped(std::string text) {  // a bar would end the cell
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2)
    text.insert(at, 1, '\\');
  return text;
}

std::string attention_cell(const Row& row) {
  return row.attention_seconds > 0 ? format_real(row.attention_gb_s(), 1) : "-";
}

std::string share_cell(const Row& row) {
  if (row.attention_seconds <= 0 || row.read_gb_s <= 0)
    return "-";
  return format_real(100 * row.attention_gb_s() / row.read_gb_s, 0) + " %";
}

void add_setup_columns(const Plan& plan, std::vector<Column>& columns) {
  const Setup plain;
  const auto differs = [&](auto member) {
    return std::any_of(plan.groups.begin(), plan.groups.end(),
                       [&](const Group& group) { return group.setup.*member != plain.*member; });
  };
  columns.push_back({"threads", 7, false, [](const Row& r) { return std::to_string(r.model.n_threads); }});
  if (differs(&Setup::n_batch))
    columns.push_back({"n_batch", 7, false, [](const Row& r) { return std::to_string(r.setup.n_batch); }});
  if (differs(&Setup::n_ubatch))
    columns.push_back({"n_ubatch", 8, false, [](const Row& r) { return std::to_string(r.setup.n_ubatch); }});
  if (differs(&Setup::cache_type_k) || differs(&Setup::cache_type_v)) {
    columns.push_back({"type_k", 6, false, [](const Row& r) { return r.setup.cache_type_k; }});
    columns.push_back({"type_v", 6, false, [](const Row& r) { return r.setup.cache_type_v; }});
  }
}

void add_llama_columns(std::vector<Column>& columns) {
  columns.push_back({"llama.cpp t/s", 17, false, [](const Row& r) { return with_spread(r.llama_rates()); }});
  columns.push_back({"ratio", 6, false, [](const Row& r) { return format_real(median(r.ratios()), 2); }});
  columns.push_back({"min .. max", 14, false, [](const Row& r) {
                       return format_real(smallest(r.ratios()), 2) + " .. " + format_real(largest(r.ratios()), 2);
                     }});
}

std::vector<Column> columns_of(const Plan& plan) {
  size_t budget_width = 9;
  size_t policy_width = 9;
  for (const Variant& variant : plan.variants) {
    budget_width = std::max(budget_width, variant.budget_text().size());
    policy_width = std::max(policy_width, variant.policy.size());
  }
  size_t test_width = 6;
  for (const Group& group : plan.groups)
    test_width = std::max(test_width, group.test.name().size());
  std::vector<Column> columns = {
      {"model", 16, true, [](const Row& r) { return r.model.type; }},
      {"size", 10, false, [](const Row& r) { return size_text(r.model.size_bytes); }},
      {"params", 8, false, [](const Row& r) { return params_text(r.model.n_params); }},
      {"backend", 14, true, [](const Row& r) { return "CPU " + r.model.kernels; }},
  };
  add_setup_columns(plan, columns);
  columns.push_back({"kv-budget", budget_width, false, [](const Row& r) { return r.variant.budget_text(); }});
  columns.push_back({"kv-policy", policy_width, true, [](const Row& r) { return r.variant.policy; }});
  columns.push_back({"test", test_width, false, [](const Row& r) { return r.test.name(); }});
  columns.push_back({"t/s", 17, false, [](const Row& r) { return with_spread(r.rates()); }});
  const auto mib = [](int64_t bytes) { return format_real(static_cast<double>(bytes) / kMiB, 2); };
  columns.push_back({"KV MiB", 7, false, [mib](const Row& r) { return mib(r.kv_peak_bytes); }});
  columns.push_back({"RSS MiB", 8, false, [mib](const Row& r) { return mib(r.rss_peak_bytes); }});
  columns.push_back({"policy ms", 9, false, [](const Row& r) { return format_real(r.policy_ms, 1); }});
  columns.push_back({"attn GB/s", 9, false, attention_cell});
  columns.push_back({"of read", 7, false, share_cell});
  if (plan.beside_llama)
    add_llama_columns(columns);
  return columns;
}

class TablePrinter final : public Printer {
 public:
  explicit TablePrinter(const Plan& plan) : columns_(columns_of(plan)) {}

  std::string header(const ModelFacts& model) override {
    columns_.front().width = std::max(columns_.front().width, shown_width(model.type));
    std::string titles = "|";
    std::string rule = "|";
    for (Column& column : columns_) {
      column.width = std::max(column.width, column.title.size());
      titles += ' ' + padded(column.title, column.width, column.left) + " |";
      rule += ' ' + std::string(column.width - (column.left ? 0 : 1), '-') + (column.left ? " |" : ": |");
    }
    return titles + "\n" + rule + "\n";
  }
  std::string row(const Row& row) override {
    std::string text = "|";
    for (const Column& column : columns_)
      text += ' ' + padded(escaped(column.cell(row)), column.width, column.left) + " |";
    return text + "\n";
  }
  std::string footer() override { return ""; }

 private:
  std::vector<Column> columns_;
};

}  // namespace

std::string size_text(int64_t bytes) {
  const double mib = static_cast<double>(bytes) / kMiB;
  return mib < 1024 ? format_real(mib, 2) + " MiB" : format_real(mib / 1024, 2) + " GiB";
}

std::string params_text(int64_t n_params) {
  const double millions = static_cast<double>(n_params) * 1e-6;
  return millions < 1000 ? format_real(millions, 2) + " M" : format_real(millions / 1000, 2) + " B";
}

std::unique_ptr<Printer> make_table_printer(const Plan& plan) { return std::make_unique<TablePrinter>(plan); }

}  // namespace kedge::bench
