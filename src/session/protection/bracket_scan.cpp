#include "session/protection/bracket_scan.h"

#include <algorithm>

namespace kedge::session {

void BracketScan::read(std::string_view bytes, int32_t token) {
  bool found = false;
  for (const char c : bytes) {
    for (const auto& [opener, closer] : pairs_) {
      if (c == opener)
        stack_.push_back({.closer = closer, .token = token});
      else if (c == closer)
        close(closer);
      found |= c == opener || c == closer;
    }
  }
  if (found)
    tokens_.push_back(token);
}

// What was opened within a pair and is not closed when the pair is, was no bracket (an emoticon, a character in
// quotes). A closer that nothing waits for neither.
void BracketScan::close(char closer) {
  const auto partner = std::find_if(stack_.rbegin(), stack_.rend(), [&](const Open& o) { return o.closer == closer; });
  if (partner != stack_.rend())
    stack_.erase(std::prev(partner.base()), stack_.end());
}

std::vector<int32_t> BracketScan::open() const {
  std::vector<int32_t> tokens;
  for (const Open& open : stack_) {
    if (tokens.empty() || tokens.back() != open.token)
      tokens.push_back(open.token);
  }
  return tokens;
}

}  // namespace kedge::session
