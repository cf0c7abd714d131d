#include "eval/records.h"

#include <gtest/gtest.h>

namespace kedge::eval {
namespace {

CellRecord example() {
  Row row{.task = "needle",
          .sample = "needle-512-d25-0",
          .length = 512,
          .depth = 0.25,
          .policy = "andpro:window=16,pool=7",
          .budget = "25%",
          .metric = "contains",
          .score = 1.0,
          .prediction = "says \"48213\",\nand more",
          .answers = {"48213", "a,b"},
          .n_context = 512};
  row.prefill_s = 0.1;
  return {.cell = "c",
          .rows = {row},
          .rows_per_head = {{1, 2}, {3, 4}},
          .memory = {{10.5, 4096, 0}, {11, 2048, 7}},
          .rss_peak_bytes = 99,
          .seconds = 1.5};
}

TEST(Records, ComeBackFromTheirLine) {
  const CellRecord record = example();
  const Result<CellRecord> again = cell_record(Json::parse(to_line(to_json(record))));
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(to_json(*again), to_json(record));
  EXPECT_FALSE(again->rows[0].kld_mean.has_value());
  EXPECT_EQ(*again->rows[0].depth, 0.25);
}

TEST(Records, SayWhatIsMissing) {
  Json json = to_json(example());
  json["rows"][0].erase("score");
  const Result<CellRecord> none = cell_record(json);
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().message.find("score"), std::string::npos);
  json = to_json(example());
  json["rows"][0]["length"] = "long";
  EXPECT_FALSE(cell_record(json).ok());
}

TEST(Predictions, AreRfc4180) {
  const std::vector<CellRecord> records = {example()};
  const std::string csv = predictions_csv(records);
  EXPECT_TRUE(csv.starts_with("task,sample,length,depth,seed,policy,budget,question,metric,score,prediction,answers,"));
  EXPECT_NE(csv.find("needle,needle-512-d25-0,512,0.25,0,\"andpro:window=16,pool=7\",25%,0,contains,1.0,"
                     "\"says \"\"48213\"\",\nand more\",\"[\"\"48213\"\",\"\"a,b\"\"]\",512,0,,,"),
            std::string::npos)
      << csv;
}

}  // namespace
}  // namespace kedge::eval
