// The loop that draws tokens and streams their text.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "kedge/model.h"
#include "kedge/session.h"

namespace kedge::cli {

struct Answer {
  std::string text;           // raw bytes of all pieces
  int64_t n_tokens = 0;       // without the token that ended the generation
  std::string finish_reason;  // stop | length | context | budget | interrupted
};

struct GenerateOptions {
  int64_t n_predict = -1;    // -1: until end of generation or a full context
  bool append_last = false;  // chat: the last token of a cut answer must be in the session too
};

// `print` takes whole characters as they come. Errors: what print returns, and those of Session::decode but a full
// context.
using Print = std::function<Status(std::string_view text)>;
Result<Answer> generate(const Model& model, Session& session, const GenerateOptions& options, const Print& print);

}  // namespace kedge::cli
