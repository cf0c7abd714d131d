#include "run_session.h"

#include <algorithm>
#include <filesystem>

#include "base/output_file.h"
#include "console.h"
#include "engine.h"
#include "kedge/policy.h"
#include "prompt.h"
#include "protect.h"

namespace kedge::cli {
namespace {

Error usage(std::string message) { return {.code = ErrorCode::usage, .message = std::move(message)}; }

Error contradicts(const std::string& flag, const std::string& given, const std::string& file,
                  const std::string& saved) {
  return usage(flag + " is " + given + ", and '" + file + "' was saved with " + saved +
               ": leave the flag out, or name another --session");
}

bool same_protection(const Protection& a, const Protection& b) {
  const auto same_phrase = [](const ProtectedPhrase& x, const ProtectedPhrase& y) {
    return x.text == y.text && x.match_case == y.match_case;
  };
  return std::ranges::equal(a.phrases, b.phrases, same_phrase) && a.domain == b.domain &&
         a.special_quota == b.special_quota;
}

// Goes to where the prompt leaves the session, and returns what of the prompt comes after.
Result<std::vector<Token>> match_prompt(Session& session, const std::vector<Token>& prompt, const std::string& file) {
  const std::span<const Token> held = session.tokens();
  const auto n_same = std::ranges::mismatch(prompt, held).in1 - prompt.begin();
  const auto n_held = static_cast<int64_t>(held.size());
  if (prompt.empty() || n_same == n_held)
    return std::vector<Token>(prompt.begin() + (prompt.empty() ? 0 : n_same), prompt.end());
  // The logits of an earlier token are not there: the last one that is shared is read again.
  const auto n_prompt = static_cast<int64_t>(prompt.size());
  const int64_t keep = n_same == n_prompt ? n_same - 1 : n_same;
  if (Status status = session.rewind(keep); !status) {
    return usage("the prompt (" + grouped(n_prompt) + " tokens) leaves '" + file + "' (" + grouped(n_held) +
                 ") after token " + grouped(n_same) + ", and " + status.error().message +
                 "; --append reads it after what the session holds");
  }
  return std::vector<Token>(prompt.begin() + keep, prompt.end());
}

// A session that has lost nothing and still cannot go back (its policy has recorded what came after, too): the prompt
// is all that it was about, so a new one under the same options reads it.
Result<Opened> read_anew(const Model& model, const Settings& settings, Opened opened,
                         const std::vector<Token>& prompt) {
  note("'" + settings.session + "': its prompt has changed, and its policy cannot go back to what both share: all " +
       grouped(static_cast<int64_t>(prompt.size())) + " tokens are read anew");
  const SessionOptions saved = opened.session->options();
  opened.session.reset();
  Result<std::unique_ptr<Session>> session = Session::create(model, saved);
  if (!session)
    return session.error();
  return Opened{.session = *std::move(session), .unread = prompt};
}

}  // namespace

Status pin_system(const Model& model, const Settings& settings, SessionOptions& options) {
  if (!settings.kv_pin_system)
    return {};
  Result<TokenSpan> span = system_span(model, settings);
  if (!span)
    return span.error();
  options.protect.spans.push_back(*span);
  return {};
}

Result<bool> session_exists(const Settings& settings) {
  if (settings.session.empty()) {
    if (settings.session_ro || settings.append)
      return usage(std::string(settings.append ? "--append" : "--session-ro") + " needs --session FILE");
    return false;
  }
  std::error_code error;
  if (!std::filesystem::exists(settings.session, error)) {
    if (settings.session_ro || settings.append)
      return usage(std::string(settings.append ? "--append" : "--session-ro") + ": there is no session '" +
                   settings.session + "'");
    return false;
  }
  return true;
}

Result<std::vector<Token>> session_prompt(const Model& model, const Settings& settings, const std::string& text) {
  if (text.empty())
    return std::vector<Token>{};
  return prompt_tokens(model, settings, text);
}

Status check_same_options(const Model& model, const Settings& settings, const SessionOptions& saved,
                          const std::string& file) {
  const Settings defaults;
  if (!settings.kv_budget.empty() && settings.kv_budget != saved.budget.text)
    return contradicts("--kv-budget", settings.kv_budget, file, saved.budget.text);
  if (!settings.kv_policy.empty()) {
    const Result<std::string> given = resolve_policy(settings.kv_policy, &model);
    const Result<std::string> there = resolve_policy(saved.policy, &model);
    if (given.ok() && there.ok() && *given != *there)
      return contradicts("--kv-policy", *given, file, *there);
  }
  if (!settings.kv_sinks.empty() && settings.kv_sinks != saved.sinks)
    return contradicts("--kv-sinks", settings.kv_sinks, file, saved.sinks.empty() ? "the policy's own" : saved.sinks);
  if (!settings.kv_recent.empty() && settings.kv_recent != saved.recent)
    return contradicts("--kv-recent", settings.kv_recent, file,
                       saved.recent.empty() ? "the policy's own" : saved.recent);
  if (!settings.gate_mode.empty()) {
    const Result<std::string> given = resolve_gate_mode(settings.gate_mode);
    const Result<std::string> there = resolve_gate_mode(saved.gate_mode);
    if (given.ok() && there.ok() && *given != *there)
      return contradicts("--gate-mode", *given, file, *there);
  }
  if (settings.cache_type_k != defaults.cache_type_k && settings.cache_type_k != saved.cache_type_k)
    return contradicts("--cache-type-k", settings.cache_type_k, file, saved.cache_type_k);
  if (settings.cache_type_v != defaults.cache_type_v && settings.cache_type_v != saved.cache_type_v)
    return contradicts("--cache-type-v", settings.cache_type_v, file, saved.cache_type_v);
  const Result<Protection> protect = protection_of(settings);
  if (protect.ok() && !protect->empty() && !same_protection(*protect, saved.protect))
    return contradicts("--kv-protect or --kv-domain", "given", file, "other protection");
  if (settings.ctx_size != defaults.ctx_size && settings.ctx_size != saved.n_ctx)
    return contradicts("--ctx-size", std::to_string(settings.ctx_size), file, std::to_string(saved.n_ctx));
  return {};
}

Result<Opened> open_session(const Model& model, const Settings& settings, const SessionOptions& options,
                            const std::vector<Token>& prompt) {
  const Result<bool> exists = session_exists(settings);
  if (!exists)
    return exists.error();
  Opened opened{.unread = prompt, .restored = *exists};
  Result<std::unique_ptr<Session>> session =
      *exists ? Session::restore(model, settings.session) : Session::create(model, options);
  if (!session)
    return session.error();
  opened.session = *std::move(session);
  if (!*exists)
    return opened;
  if (Status status = check_same_options(model, settings, opened.session->options(), settings.session); !status)
    return status.error();
  if (!settings.append) {
    Result<std::vector<Token>> unread = match_prompt(*opened.session, prompt, settings.session);
    if (!unread && opened.session->stats().evicted_rows == 0)
      return read_anew(model, settings, std::move(opened), prompt);
    if (!unread)
      return unread.error();
    opened.unread = *std::move(unread);
  }
  opened.reused_tokens = opened.session->n_tokens();
  if (opened.unread.empty() && opened.session->logits().empty())
    return usage("'" + settings.session + "' holds no tokens to go on from, and there is no prompt");
  note("'" + settings.session + "': " + grouped(opened.reused_tokens) + " tokens restored, " +
       grouped(static_cast<int64_t>(opened.unread.size())) + " of the prompt to read");
  return opened;
}

void choose_sampler(Session& session, const Settings& settings, uint32_t seed, bool restored) {
  const SamplerOptions wanted = sampler_options(settings, seed);
  const SamplerOptions saved = session.sampler();
  const bool same = wanted.temperature == saved.temperature && wanted.top_k == saved.top_k &&
                    wanted.top_p == saved.top_p && wanted.min_p == saved.min_p &&
                    wanted.repeat_penalty == saved.repeat_penalty && wanted.repeat_last_n == saved.repeat_last_n &&
                    wanted.length_penalty == saved.length_penalty;
  const bool same_seed = !settings.seed || *settings.seed < 0 || wanted.seed == saved.seed;
  if (!restored || !same || !same_seed)
    session.set_sampler(wanted);
  detail("sampling: " + sampling_text(session.sampler()));
}

Status check_session_writable(const Settings& settings) {
  return settings.session_ro ? Status() : check_writable(settings.session);
}

Status save_session(const Settings& settings, const Session& session, std::string_view app_data) {
  if (settings.session.empty() || settings.session_ro)
    return {};
  return session.save(settings.session, app_data);
}

Stats since(const Stats& now, const Stats& before) {
  Stats out = now;
  out.prompt_tokens -= before.prompt_tokens;
  out.generated_tokens -= before.generated_tokens;
  out.prefill_seconds -= before.prefill_seconds;
  out.decode_seconds -= before.decode_seconds;
  out.policy_ms -= before.policy_ms;
  out.evicted_rows -= before.evicted_rows;
  out.discarded_rows -= before.discarded_rows;
  out.evictions -= before.evictions;
  out.policy_fallbacks -= before.policy_fallbacks;
  return out;
}

}  // namespace kedge::cli
