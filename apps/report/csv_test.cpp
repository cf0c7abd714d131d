#include "csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kedge::report {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::vector<std::string>> fields_of(std::string_view text) {
  const Result<std::vector<CsvRow>> rows = parse_csv(text, "x.csv");
  EXPECT_TRUE(rows.ok()) << rows.error().message;
  std::vector<std::vector<std::string>> out;
  for (const CsvRow& row : rows.value())
    out.push_back(row.fields);
  return out;
}

TEST(Csv, QuotingOfRfc4180) {
  const auto rows = fields_of("a,b,c\r\n1,\"two, three\",\"say \"\"hi\"\"\"\n,\"\",\"line\r\nbreak\"");
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_THAT(rows[0], ElementsAre("a", "b", "c"));
  EXPECT_THAT(rows[1], ElementsAre("1", "two, three", "say \"hi\""));
  EXPECT_THAT(rows[2], ElementsAre("", "", "line\r\nbreak"));
}

TEST(Csv, EndsAndEmptyLines) {
  EXPECT_TRUE(fields_of("").empty());
  EXPECT_EQ(fields_of("a\n\n\r\nb\n").size(), 2U);
  EXPECT_THAT(fields_of("a,b\n,").at(1), ElementsAre("", ""));
  EXPECT_THAT(fields_of("a\rb").at(0), ElementsAre("a\rb"));  // a lone CR is text
}

TEST(Csv, LinesAreCountedThroughQuotedBreaks) {
  const Result<std::vector<CsvRow>> rows = parse_csv("a,b\n1,\"x\ny\nz\"\n2,w\n", "x.csv");
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ(rows.value()[1].line, 2);
  EXPECT_EQ(rows.value()[2].line, 5);
}

TEST(Csv, DamageIsNamedByFileAndLine) {
  const struct {
    std::string_view text;
    const char* message;
  } cases[] = {
      {"a,b\n1\n", "x.csv:2: 1 fields, the header has 2"},
      {"a,b\n1,\"x\n\n\n", "x.csv:2: a quote that is never closed"},
      {"a,b\n1,2\n\"x\"y,2\n", "x.csv:3: text after a closing quote"},
      {"a,b\n1,x\"y\n", "x.csv:2: a quote inside a field"},
      {std::string_view("a\0b", 3), "x.csv:1: a zero byte"},
  };
  for (const auto& c : cases) {
    const Result<std::vector<CsvRow>> rows = parse_csv(c.text, "x.csv");
    ASSERT_FALSE(rows.ok()) << c.text;
    EXPECT_THAT(rows.error().message, HasSubstr(c.message));
  }
}

}  // namespace
}  // namespace kedge::report
