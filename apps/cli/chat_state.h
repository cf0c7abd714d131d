// What a conversation is besides the session: what was said, and the text that the session holds.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kedge/error.h"
#include "kedge/model.h"

namespace kedge::cli {

struct ChatState {
  std::vector<ChatMessage> messages;
  std::string held;  // the text that is in the session
};

std::string chat_to_json(const ChatState& state);
// Error usage: the text is no conversation (a session that `run` saved without --interactive has none).
Result<ChatState> chat_from_json(std::string_view text);

}  // namespace kedge::cli
