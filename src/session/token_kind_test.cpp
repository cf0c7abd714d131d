#include "session/token_kind.h"

#include <gtest/gtest.h>

namespace kedge::session {
namespace {

TEST(TokenKind, MarksWithOrWithoutSpaceArePunctuation) {
  for (const char* text :
       {".", ",", " (", "\n---\n", "!?", "\xE2\x80\x94", " \xE2\x80\x9C", "\xE3\x80\x82", "\xC2\xBF"})
    EXPECT_TRUE(is_punctuation(text)) << text;
}

TEST(TokenKind, WordsSpacesAndBrokenCharactersAreNot) {
  for (const char* text : {"", " ", "\n\n", "a.", "3", "\xC3\xA9", "\xE2\x80", "\xE4\xBD\xA0", "\xFF"})
    EXPECT_FALSE(is_punctuation(text)) << text;
}

}  // namespace
}  // namespace kedge::session
