#include "chat.h"

#include <gtest/gtest.h>

namespace kedge::cli {
namespace {

TEST(NewPart, FirstTurnIsEverything) { EXPECT_EQ(new_part("<user>hi<assistant>", "", ""), "<user>hi<assistant>"); }

TEST(NewPart, TheEndOfTheAnswerIsNewToo) {
  const std::string held = "<user>hi</s><assistant>hello";
  EXPECT_EQ(new_part("<user>hi</s><assistant>hello</s><user>more</s><assistant>", held, "hello"),
            "</s><user>more</s><assistant>");
}

TEST(NewPart, TemplatesMayTrimTheAnswer) {
  const std::string held = "<user>hi</s><assistant> hello \n";
  EXPECT_EQ(new_part("<user>hi</s><assistant>hello</s><user>more</s>", held, " hello \n"), "</s><user>more</s>");
}

TEST(NewPart, AnEmptyAnswer) {
  EXPECT_EQ(new_part("<user>hi</s><assistant></s><user>x", "<user>hi</s><assistant>", ""), "</s><user>x");
}

TEST(NewPart, RewrittenTurnsAreRefused) {
  EXPECT_EQ(new_part("<user>HI</s><assistant>hello</s>", "<user>hi</s><assistant> hello", " hello"), std::nullopt);
  EXPECT_EQ(new_part("<user>hi</s><assistant>other</s>", "<user>hi</s><assistant>hello", "hello"), std::nullopt);
}

}  // namespace
}  // namespace kedge::cli
