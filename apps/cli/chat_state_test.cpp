#include "chat_state.h"

#include <gtest/gtest.h>

namespace kedge::cli {
namespace {

TEST(ChatState, ComesBackWithEveryByte) {
  ChatState state;
  state.messages = {{.role = "system", .content = "Be \"brief\".\n"},
                    {.role = "user", .content = "\xC3\xA9t\xC3\xA9"},
                    {.role = "assistant", .content = "cut \xE2\x82"}};  // the first two bytes of a character
  state.held = "\x7F\x80\xFF and the rest";
  const Result<ChatState> again = chat_from_json(chat_to_json(state));
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->held, state.held);
  ASSERT_EQ(again->messages.size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(again->messages[i].role, state.messages[i].role);
    EXPECT_EQ(again->messages[i].content, state.messages[i].content);
  }
  EXPECT_TRUE(chat_from_json(chat_to_json({})).ok());
}

TEST(ChatState, WhatIsNoConversationIsRefused) {
  for (const char* text :
       {"", "[]", "{}", "nonsense", R"({"chat":2,"messages":[],"held":""})", R"({"chat":1,"messages":[]})",
        R"({"chat":1,"messages":{},"held":""})", R"({"chat":1,"messages":[],"held":"x"})",
        R"({"chat":1,"messages":[{"role":"user","content":"a"}],"held":"x"})",
        R"({"chat":1,"messages":[{"role":"user"}],"held":""})",
        "{\"chat\":1,\"messages\":[],\"held\":\"\xE2\x82\xAC\"}"}) {
    const Result<ChatState> state = chat_from_json(text);
    ASSERT_FALSE(state.ok()) << text;
    EXPECT_EQ(state.error().code, ErrorCode::usage);
    EXPECT_NE(state.error().message.find("no conversation"), std::string::npos);
  }
}

}  // namespace
}  // namespace kedge::cli
