#include "chat_state.h"

#include <nlohmann/json.hpp>

namespace kedge::cli {
namespace {

// Bytes of an answer that was cut may end within a character, which JSON text cannot: bytes are written as the
// characters of the same numbers.
std::string to_characters(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      out += c;
    } else {
      out += static_cast<char>(0xC0 | (byte >> 6U));
      out += static_cast<char>(0x80 | (byte & 0x3FU));
    }
  }
  return out;
}

// The bytes again; false where a character is no byte.
bool to_bytes(const std::string& characters, std::string& bytes) {
  for (size_t i = 0; i < characters.size(); ++i) {
    const auto first = static_cast<unsigned char>(characters[i]);
    if (first < 0x80) {
      bytes += characters[i];
      continue;
    }
    if ((first & 0xFCU) != 0xC0 || i + 1 == characters.size())
      return false;
    const auto second = static_cast<unsigned char>(characters[++i]);
    bytes += static_cast<char>((first & 3U) << 6U | (second & 0x3FU));
  }
  return true;
}

bool take(const nlohmann::json& object, const char* name, std::string& bytes) {
  const auto it = object.find(name);
  return it != object.end() && it->is_string() && to_bytes(it->get_ref<const std::string&>(), bytes);
}

Error no_conversation(const std::string& why) {
  return {.code = ErrorCode::usage,
          .message = "holds no conversation (" + why + "); one that --interactive or /save wrote is needed"};
}

}  // namespace

std::string chat_to_json(const ChatState& state) {
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  for (const ChatMessage& message : state.messages)
    messages.push_back({{"role", to_characters(message.role)}, {"content", to_characters(message.content)}});
  return nlohmann::ordered_json({{"chat", 1}, {"messages", messages}, {"held", to_characters(state.held)}}).dump();
}

Result<ChatState> chat_from_json(std::string_view text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || json.value("chat", nlohmann::json()) != 1)
    return no_conversation(text.empty() ? "nothing" : "something else");
  ChatState state;
  if (!take(json, "held", state.held))
    return no_conversation("'held' is no text");
  const auto messages = json.find("messages");
  if (messages == json.end() || !messages->is_array())
    return no_conversation("'messages' is no list");
  for (const auto& message : *messages) {
    ChatMessage said;
    if (!message.is_object() || !take(message, "role", said.role) || !take(message, "content", said.content))
      return no_conversation("a message without role or content");
    state.messages.push_back(std::move(said));
  }
  // The next turn looks at the answer before it.
  const bool begun = !state.held.empty();
  if (begun && (state.messages.empty() || state.messages.back().role != "assistant"))
    return no_conversation("its last message is no answer");
  return state;
}

}  // namespace kedge::cli
