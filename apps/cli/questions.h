// kedge run --question: several questions about one text, which is read once.
#pragma once

#include <string>
#include <vector>

#include "kedge/error.h"
#include "kedge/session.h"
#include "settings.h"

namespace kedge::cli {

bool asks_questions(const Settings& settings);

// Those of --question, then the lines of --questions that are not blank. Errors: those of read_text; usage: none.
Result<std::vector<std::string>> read_questions(const Settings& settings);

// A user message of the text and a question, rendered by the template, cut where the question's part begins: the text's
// part is the same for all of them. Error usage: the template does not keep the text in one piece.
struct SplitPrompt {
  std::string context;
  std::string question;
};
Result<SplitPrompt> split_rendered(const std::string& rendered, const std::string& text);

// Runs it all; returns the exit code.
Result<int> ask_questions(const Settings& settings, SessionOptions options);

}  // namespace kedge::cli
