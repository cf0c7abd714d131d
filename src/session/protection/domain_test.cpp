#include "session/protection/domain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "session/protection/bracket_scan.h"
#include "session/protection/line_scan.h"

namespace kedge::session {
namespace {

using Pieces = std::vector<std::string>;
using List = std::vector<int32_t>;

std::string refusal(const std::string& toml) {
  const Result<Domain> domain = parse_domain(toml, "d.toml");
  if (domain.ok())
    return "accepted";
  EXPECT_EQ(domain.error().code, ErrorCode::usage);
  return domain.error().message;
}

TEST(Domain, ThePresetsAreValidAndNamedAsTheirFiles) {
  std::set<std::string> names;
  for (const DomainText& text : domain_texts()) {
    const Result<Domain> domain = parse_domain(text.toml, text.name);
    ASSERT_TRUE(domain.ok()) << domain.error().message;
    EXPECT_EQ(domain->name, text.name);
    double shares = 0;
    for (const DomainClass& entry : domain->classes)
      shares += entry.share;
    EXPECT_LE(shares, 0.5) << text.name << " leaves scores something to choose";
    names.insert(text.name);
  }
  EXPECT_EQ(names, (std::set<std::string>{"code", "dialogue", "tables"}));
}

TEST(Domain, EveryKeyIsRead) {
  const Result<Domain> domain = parse_domain(R"toml(
name = "mine"
summary = "all there is"
[[class]]
name = "a"
share = 0.2
match-case = true
words = ["alpha", "beta gamma"]
line-start = ["Q:"]
[[class]]
name = "b"
share = 1
pairs = ["()", "<>"]
indentation = true
speaker-labels = true
table-columns = ["|", "\t"]
)toml",
                                             "d.toml");
  ASSERT_TRUE(domain.ok()) << domain.error().message;
  ASSERT_EQ(domain->classes.size(), 2U);
  const DomainClass& a = domain->classes[0];
  ASSERT_EQ(a.phrases.size(), 3U);
  EXPECT_TRUE(a.phrases[0].match_case);
  EXPECT_FALSE(a.phrases[1].at_line_start);
  EXPECT_TRUE(a.phrases[2].at_line_start);
  EXPECT_DOUBLE_EQ(a.share, 0.2);
  const DomainClass& b = domain->classes[1];
  EXPECT_EQ(b.pairs, (std::vector<std::pair<char, char>>{{'(', ')'}, {'<', '>'}}));
  EXPECT_TRUE(b.indentation && b.speaker_labels);
  EXPECT_EQ(b.table_columns, "|\t");
}

TEST(Domain, FaultsNameTheLine) {
  const std::string head = "name = \"x\"\nsummary = \"y\"\n";
  const std::string entry = head + "[[class]]\nname = \"c\"\n";
  EXPECT_EQ(refusal(head), "d.toml, line 1: found no [[class]], or more than 16");
  EXPECT_NE(refusal("name = ").find("d.toml, line 1: "), std::string::npos);
  EXPECT_NE(refusal("nmae = \"x\"\n" + head).find("unknown key 'nmae'; allowed: name, summary, class"),
            std::string::npos);
  EXPECT_NE(refusal(entry + "words = [\"a\"]\n").find("'share' must be a number above 0 and at most 1"),
            std::string::npos);
  EXPECT_NE(refusal(entry + "share = 1.5\nwords = [\"a\"]\n").find("'share'"), std::string::npos);
  EXPECT_NE(refusal(entry + "share = 0.1\n").find("class 'c' names nothing"), std::string::npos);
  EXPECT_EQ(refusal(entry + "share = 0.1\nwords = [\"a\", 3]\n"),
            "d.toml, line 6: 'words' must hold strings of 1 to 200 bytes");
  EXPECT_EQ(refusal(entry + "share = 0.1\npairs = [\"(\"]\n"),
            "d.toml, line 6: 'pairs': '(' must be two different ASCII characters");
  EXPECT_EQ(refusal(entry + "share = 0.1\nindentation = 1\n"), "d.toml, line 6: 'indentation' must be true or false");
  EXPECT_EQ(refusal(entry + "share = 0.1\nwords = [\" a\"]\n"),
            "d.toml, line 6: 'words': ' a' has white space at its ends");
}

TEST(BracketScan, KnowsWhichBracketsAreOpen) {
  BracketScan scan({{'(', ')'}, {'[', ']'}, {'{', '}'}});
  const Pieces pieces = {"f", "(", "x[", "0", "]", ", {", "y", ")("};
  for (size_t i = 0; i < pieces.size(); ++i) {
    scan.read(pieces[i], static_cast<int32_t>(i));
    if (i == 5) {
      EXPECT_EQ(scan.open(), (List{1, 5}));
    }
  }
  EXPECT_EQ(scan.tokens(), (List{1, 2, 4, 5, 7}));
  EXPECT_EQ(scan.open(), (List{7})) << "')' closed what was opened in it too";
  scan.read("]", 8);
  EXPECT_EQ(scan.open(), (List{7})) << "nothing waits for it";
}

List lines(const LineScan::Wanted& wanted, const Pieces& pieces) {
  LineScan scan(wanted);
  for (size_t i = 0; i < pieces.size(); ++i)
    scan.read(pieces[i], static_cast<int32_t>(i));
  return scan.tokens();
}

TEST(LineScan, IndentationIsWhiteSpaceThatBeginsALine) {
  const Pieces pieces = {"def f():", "\n", "   ", " return", " ", " 1", "\n    ", "x", "\n\n", "y", "  ", "\t"};
  EXPECT_EQ(lines({.indentation = true}, pieces), (List{2, 6}));
  EXPECT_EQ(lines({.indentation = true}, {"  ", "x"}), (List{0}));
}

TEST(LineScan, SpeakersAreNamesBeforeAColonAtTheStartOfALine) {
  const Pieces pieces = {"Anna", " Berg", ":", " so ", "it: is\n", "the", ": x\n", " Bob", ":\n", "12:30\nA:", "b\n"};
  EXPECT_EQ(lines({.speaker_labels = true}, pieces), (List{0, 1, 2, 7, 8}));
  EXPECT_EQ(lines({.speaker_labels = true}, {std::string("A") + std::string(40, 'a'), ": x"}), List{});
}

TEST(LineScan, TheFirstOfLinesWithTheSameColumnsIsAHeader) {
  const LineScan::Wanted wanted{.table_columns = "|,"};
  EXPECT_EQ(lines(wanted, {"text\n", "| a ", "| b |\n", "|--", "-|--|\n", "| 1 | 2 |\n", "end\n"}), (List{1, 2}));
  EXPECT_EQ(lines(wanted, {"x,y,z\n", "1,2,3\n", "4,5,6\n", "\n", "p,q,r\n", "7,8,9\n"}), (List{0, 4}));
  EXPECT_EQ(lines(wanted, {"one, two\n", "three, four\n"}), List{}) << "one comma is no table";
  EXPECT_EQ(lines(wanted, {"a, b, c\n", "no\n", "d, e, f\n"}), List{}) << "not neighbours";
}

}  // namespace
}  // namespace kedge::session
