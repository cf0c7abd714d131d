#include "eval/progress.h"

#include <gtest/gtest.h>

namespace kedge::eval {
namespace {

TEST(Progress, SaysWhatTheLastCellGaveAndWhatIsLeft) {
  CellRecord record{.cell = "c"};
  Row row{.sample = "needle-512-d25-0", .policy = "andpro", .budget = "25%", .score = 1.0};
  record.rows = {row, row};
  record.rows[1].score = 0.0;
  EXPECT_EQ(progress_text(record, 3, 9, 200), "3/9 needle-512-d25-0 andpro 25%: score 0.50; 3 min 20 s left");
  EXPECT_EQ(progress_text(record, 9, 9, 0), "9/9 needle-512-d25-0 andpro 25%: score 0.50");
  record.rows[0].error = "no room";
  EXPECT_EQ(progress_text(record, 9, 9, 0), "9/9 needle-512-d25-0 andpro 25%: error");
}

TEST(Durations, AreInTheUnitThatFits) {
  EXPECT_EQ(duration_text(0.2), "1 s");
  EXPECT_EQ(duration_text(59.5), "1 min 0 s");
  EXPECT_EQ(duration_text(3700), "1 h 1 min");
}

}  // namespace
}  // namespace kedge::eval
