// Where a run begins: a new session, or one from --session with what of the prompt it lacks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kedge/model.h"
#include "kedge/session.h"
#include "settings.h"

namespace kedge::cli {

struct Opened {
  std::unique_ptr<Session> session;
  std::vector<Token> unread;  // of the prompt
  int64_t reused_tokens = 0;  // that came from the file
  bool restored = false;
};

// --kv-pin-system: the span becomes part of the options. Errors: those of system_span().
Status pin_system(const Model& model, const Settings& settings, SessionOptions& options);

// Whether --session names a file that is there. Error failed: it is something else than a file.
Result<bool> session_exists(const Settings& settings);

// The prompt's tokens: all of it, or with --append what follows the session. Empty text is fine where a session is
// there.
Result<std::vector<Token>> session_prompt(const Model& model, const Settings& settings, const std::string& text);

// Creates the session, or restores it and finds what is left to read. Errors: those of Session::create() and restore();
// usage: flags that contradict the file (both values), a prompt that leaves the session where it cannot go back because
// rows were evicted.
Result<Opened> open_session(const Model& model, const Settings& settings, const SessionOptions& options,
                            const std::vector<Token>& prompt);

// Flags that were given and say something else than the session was saved with. Error usage, with both values.
Status check_same_options(const Model& model, const Settings& settings, const SessionOptions& saved,
                          const std::string& file);

// The saved sampler goes on where the flags ask for the same sampling, and no other seed; else one as they say.
void choose_sampler(Session& session, const Settings& settings, uint32_t seed, bool restored);

// Before the long work: can --session be written? And at the end: is. Nothing with --session-ro. Error failed.
Status check_session_writable(const Settings& settings);
Status save_session(const Settings& settings, const Session& session, std::string_view app_data = {});

// What was done between two moments of a session: counts and times are differences, the rest is `now`.
Stats since(const Stats& now, const Stats& before);

}  // namespace kedge::cli
