#include "bench/format.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/samples.h"
#include "bench/table.h"

namespace kedge::bench {
namespace {

// 100 tokens decoded in 1, 2 and 4 seconds; llama.cpp took 2, 6 and 4.
Row measured_row() {
  Row row;
  row.model = {.path = "a \"model\".gguf",
               .type = "llama 135M q4_1",
               .size_bytes = 96576768,
               .n_params = 134515008,
               .kernels = "avx2",
               .prompt_weights = "f32",
               .mmap = "off",
               .n_threads = 2};
  row.test = {.n_gen = 100, .depth = 4096};
  row.variant = {.budget = *parse_budget("10%"), .policy = "snapkv"};
  row.resolved_policy = "snapkv:window=32";
  row.test_time = "2026-11-29T12:00:00Z";
  row.seconds = {1, 2, 4};
  row.llama_seconds = {2, 6, 4};
  row.kv_budget_bytes = 12 << 20;
  row.kv_peak_bytes = 11 << 20;
  row.rss_peak_bytes = 200 << 20;
  row.rss_of_row = true;
  row.policy_ms = 12.5;
  row.attention_seconds = 0.5;
  row.attention_row_bytes = 4'000'000'000;
  row.read_gb_s = 16;
  return row;
}

Row prompt_row() {
  Row row = measured_row();
  row.test = {.n_prompt = 512};
  row.variant = Variant();
  row.variant.policy = "none";
  row.seconds = {2};
  row.llama_seconds.clear();
  row.attention_seconds = 0;
  row.attention_row_bytes = 0;
  row.rss_of_row = false;
  return row;
}

Plan plan_of(const Row& row, bool beside_llama) {
  return {.groups = {{.setup = row.setup, .test = row.test}}, .variants = {row.variant}, .beside_llama = beside_llama};
}

std::vector<std::string> cells(const std::string& line) {
  std::vector<std::string> out;
  std::istringstream in(line);
  for (std::string cell; std::getline(in, cell, '|');) {
    const size_t begin = cell.find_first_not_of(" \n");
    const size_t end = cell.find_last_not_of(" \n");
    out.push_back(begin == std::string::npos ? "" : cell.substr(begin, end - begin + 1));
  }
  return {out.begin() + 1, out.end()};
}

TEST(Samples, HandMadeValues) {
  const std::vector<double> values = {4, 1, 3, 2};
  EXPECT_DOUBLE_EQ(mean(values), 2.5);
  EXPECT_DOUBLE_EQ(median(values), 2.5);
  EXPECT_DOUBLE_EQ(stddev(values), std::sqrt(5.0 / 3.0));
  EXPECT_DOUBLE_EQ(smallest(values), 1);
  EXPECT_DOUBLE_EQ(largest(values), 4);
  const std::vector<double> odd = {9, 1, 2};
  EXPECT_DOUBLE_EQ(median(odd), 2);
  const std::vector<double> one = {7};
  EXPECT_DOUBLE_EQ(stddev(one), 0);
  EXPECT_DOUBLE_EQ(mean({}), 0);
  EXPECT_DOUBLE_EQ(median({}), 0);
}

TEST(Format, FieldsOfARow) {
  const nlohmann::ordered_json fields = row_fields(measured_row());
  EXPECT_EQ(fields["n_gen"], 100);
  EXPECT_EQ(fields["n_depth"], 4096);
  EXPECT_EQ(fields["kv_budget"], "10%");
  EXPECT_EQ(fields["kv_policy"], "snapkv");
  EXPECT_EQ(fields["avg_ns"], 2333333333);
  EXPECT_EQ(fields["samples_ns"], (std::vector<int64_t>{1000000000, 2000000000, 4000000000}));
  EXPECT_EQ(fields["samples_ts"], (std::vector<double>{100, 50, 25}));
  EXPECT_DOUBLE_EQ(fields["avg_ts"], 175.0 / 3);
  EXPECT_DOUBLE_EQ(fields["attention_gb_s"], 8);
  EXPECT_DOUBLE_EQ(fields["attention_share"], 0.5);
  EXPECT_EQ(fields["ratios"], (std::vector<double>{2, 3, 1}));
  EXPECT_DOUBLE_EQ(fields["ratio"], 2);
  EXPECT_DOUBLE_EQ(fields["ratio_min"], 1);
  EXPECT_DOUBLE_EQ(fields["ratio_max"], 3);
  EXPECT_EQ(fields["kv_peak_bytes"], 11 << 20);
  EXPECT_EQ(fields["rss_scope"], "row");
}

TEST(Format, WhatWasNotMeasuredIsNull) {
  const nlohmann::ordered_json fields = row_fields(prompt_row());
  EXPECT_TRUE(fields["attention_gb_s"].is_null());
  EXPECT_TRUE(fields["attention_share"].is_null());
  EXPECT_TRUE(fields["ratio"].is_null());
  EXPECT_TRUE(fields["llama_avg_ts"].is_null());
  EXPECT_EQ(fields["kv_budget"], "full");
  EXPECT_EQ(fields["rss_scope"], "process");
  EXPECT_DOUBLE_EQ(fields["avg_ts"], 256);
}

TEST(Format, Table) {
  const Row row = measured_row();
  const auto printer = make_printer("md", plan_of(row, true));
  std::istringstream lines(printer->header(row.model).append(printer->row(row)));
  std::string titles, rule, values;
  std::getline(lines, titles);
  std::getline(lines, rule);
  std::getline(lines, values);
  EXPECT_EQ(cells(titles), (std::vector<std::string>{"model", "size", "params", "backend", "threads", "kv-budget",
                                                     "kv-policy", "test", "t/s", "KV MiB", "RSS MiB", "policy ms",
                                                     "attn GB/s", "of read", "llama.cpp t/s", "ratio", "min .. max"}));
  EXPECT_EQ(cells(values), (std::vector<std::string>{"llama 135M q4_1", "92.10 MiB", "134.52 M", "CPU avx2", "2", "10%",
                                                     "snapkv", "tg100 @ d4096", "58.33 ± 38.19", "11.00", "200.00",
                                                     "12.5", "8.0", "50 %", "30.56 ± 17.35", "2.00", "1.00 .. 3.00"}));
  EXPECT_EQ(titles.size(), rule.size());
  EXPECT_EQ(values.size(), titles.size() + 2) << "two plus-minus signs of two bytes each";
  EXPECT_EQ(rule.find_first_not_of("|-: "), std::string::npos);
}

TEST(Format, TableColumnsFollowThePlan) {
  Row row = prompt_row();
  row.setup.n_ubatch = 128;
  const auto printer = make_printer("md", plan_of(row, false));
  const std::string header = printer->header(row.model);
  const std::vector<std::string> titles = cells(header.substr(0, header.find('\n')));
  EXPECT_NE(std::find(titles.begin(), titles.end(), "n_ubatch"), titles.end());
  EXPECT_EQ(std::find(titles.begin(), titles.end(), "n_batch"), titles.end());
  EXPECT_EQ(std::find(titles.begin(), titles.end(), "ratio"), titles.end());
  const std::string values = printer->row(row);
  EXPECT_NE(values.find("|         - |       - |"), std::string::npos) << "no attention without decoding: " << values;
}

TEST(Format, Csv) {
  const Row row = measured_row();
  const auto printer = make_printer("csv", plan_of(row, true));
  const std::string header = printer->header(row.model);
  const std::string values = printer->row(row);
  EXPECT_EQ(std::count(header.begin(), header.end(), ','), std::count(values.begin(), values.end(), ','));
  EXPECT_TRUE(header.starts_with("backends,kernels,prompt_weights,mmap,model_filename,")) << header;
  EXPECT_EQ(header.find("samples"), std::string::npos);
  EXPECT_TRUE(values.starts_with("\"CPU\",\"avx2\",\"f32\",\"off\",\"a \"\"model\"\".gguf\",")) << values;
  EXPECT_NE(values.find(",\"10%\",\"snapkv\","), std::string::npos);
  EXPECT_NE(printer->row(prompt_row()).find(",\"\",\"\",\"16.0\""), std::string::npos) << "null is empty";
}

TEST(Format, JsonIsOneDocumentAndJsonLinesAreOneEach) {
  const Row row = measured_row();
  const auto json = make_printer("json", plan_of(row, true));
  std::string text = json->header(row.model);
  text += json->row(row);
  text += json->row(prompt_row());
  text += json->footer();
  const auto document = nlohmann::json::parse(text, nullptr, false);
  ASSERT_TRUE(document.is_array()) << text;
  ASSERT_EQ(document.size(), 2U);
  EXPECT_EQ(document[0], nlohmann::json(row_fields(row)));
  EXPECT_EQ(document[1]["n_prompt"], 512);

  const auto lines = make_printer("jsonl", plan_of(row, true));
  EXPECT_EQ(lines->header(row.model), "");
  const std::string line = lines->row(row);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_EQ(nlohmann::json::parse(line), nlohmann::json(row_fields(row)));
}

TEST(Format, SizesAndParameters) {
  EXPECT_EQ(size_text(96576768), "92.10 MiB");
  EXPECT_EQ(size_text(int64_t{3} << 30), "3.00 GiB");
  EXPECT_EQ(params_text(134515008), "134.52 M");
  EXPECT_EQ(params_text(1235814432), "1.24 B");
}

}  // namespace
}  // namespace kedge::bench
