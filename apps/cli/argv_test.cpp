#include "argv.h"

#include <gtest/gtest.h>

namespace kedge::cli {
namespace {

using Words = std::vector<std::string>;

Words translate(const Words& words) { return translate_argv(words, option_table()).words; }

TEST(Argv, ShortNamesOfSeveralLetters) {
  EXPECT_EQ(translate({"-ub", "64", "-ctk", "f16", "-ctv", "bf16"}),
            (Words{"--ubatch-size", "64", "--cache-type-k", "f16", "--cache-type-v", "bf16"}));
  EXPECT_EQ(translate({"-ub=64"}), (Words{"--ubatch-size", "64"}));
}

TEST(Argv, ValuesAreNotTranslated) {
  EXPECT_EQ(translate({"-n", "-1"}), (Words{"--predict", "-1"}));
  EXPECT_EQ(translate({"-p", "-ub", "-v"}), (Words{"--prompt", "-ub", "--verbose"}));
  EXPECT_EQ(translate({"-p", "--prompt", "-m", "--"}), (Words{"--prompt", "--prompt", "--model", "--"}));
}

TEST(Argv, EqualsSignAndEmptyValues) {
  EXPECT_EQ(translate({"--kv-budget=-1MiB"}), (Words{"--kv-budget", "-1MiB"}));
  EXPECT_EQ(translate({"--prompt="}), (Words{"--prompt", ""}));
  EXPECT_EQ(translate({"-p", "a=b"}), (Words{"--prompt", "a=b"}));
}

TEST(Argv, TheRestIsLeftAlone) {
  EXPECT_EQ(translate({"--nosuch", "-x", "word"}), (Words{"--nosuch", "-x", "word"}));
  EXPECT_EQ(translate_argv(Words{"-v", "--", "-ub", "-n"}, option_table()).positional, (Words{"-ub", "-n"}));
  EXPECT_EQ(translate({"-m"}), (Words{"--model"}));  // the missing value is reported by the parser
}

}  // namespace
}  // namespace kedge::cli
