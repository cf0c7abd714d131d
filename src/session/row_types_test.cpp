#include "session/row_types.h"

#include <gtest/gtest.h>

namespace kedge::session {
namespace {

TEST(RowTypeNames, AreLlamaCppsAndShorter) {
  EXPECT_EQ(*parse_row_types("f16", "bf16"), RowTypes(RowType::f16, RowType::bf16));
  EXPECT_EQ(*parse_row_types("q8_0", "q4_0"), RowTypes(RowType::q8, RowType::q4));
  EXPECT_EQ(*parse_row_types("q4", "q8"), RowTypes(RowType::q4, RowType::q8));
}

TEST(RowTypeNames, AnErrorNamesTheWordAndWhatIsAllowed) {
  const Result<RowTypes> keys = parse_row_types("q5_0", "f16");
  ASSERT_FALSE(keys.ok());
  EXPECT_EQ(keys.error().code, ErrorCode::usage);
  EXPECT_EQ(keys.error().message, "cache type 'q5_0' of the keys is not known; allowed: f16, bf16, q8_0, q4_0");
  const Result<RowTypes> values = parse_row_types("q8", "");
  ASSERT_FALSE(values.ok());
  EXPECT_EQ(values.error().message, "cache type '' of the values is not known; allowed: f16, bf16, q8_0, q4_0");
}

}  // namespace
}  // namespace kedge::session
