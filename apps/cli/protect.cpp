#include "protect.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "nearest.h"
#include "text_input.h"

namespace kedge::cli {
namespace {

const std::string kMark = "\x01KEDGE\x01";

Error usage(std::string message) { return {.code = ErrorCode::usage, .message = std::move(message)}; }

// A preset by its name, else a file.
Result<std::string> domain_definition(const std::string& name) {
  std::vector<std::string> known;
  std::string list;
  for (const DomainInfo& info : list_domains()) {
    if (info.name == name)
      return info.definition;
    known.push_back(info.name);
    list += (list.empty() ? "" : ", ") + info.name;
  }
  if (!std::filesystem::exists(name)) {
    return usage("--kv-domain: '" + name + "' is neither a file nor one of " + list + "; the nearest is '" +
                 nearest(name, known) + "'");
  }
  Result<std::string> text = read_text(name);
  if (!text)
    return text;
  if (Result<DomainInfo> info = parse_domain(*text, "--kv-domain " + name); !info)
    return info.error();
  return text;
}

bool take_number(std::string_view& text, int64_t& number) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0 || number > INT32_MAX)
    return false;
  text.remove_prefix(static_cast<size_t>(stop - text.data()));
  return true;
}

}  // namespace

Result<std::vector<TokenSpan>> parse_spans(std::string_view list) {
  std::vector<TokenSpan> spans;
  while (!list.empty()) {
    const std::string_view piece = list.substr(0, list.find(','));
    list.remove_prefix(std::min(piece.size() + 1, list.size()));
    std::string_view rest = piece;
    TokenSpan span;
    bool good = take_number(rest, span.begin);
    span.end = span.begin;
    if (good && !rest.empty())
      good = rest.front() == '-' && (rest.remove_prefix(1), take_number(rest, span.end));
    if (!good || !rest.empty() || span.end < span.begin)
      return usage("--kv-pin: '" + std::string(piece) + "' is no range of tokens, as in 0-63 or 7");
    ++span.end;
    spans.push_back(span);
  }
  return spans;
}

Result<Protection> protection_of(const Settings& settings) {
  Protection protection;
  if (!settings.kv_protect.empty()) {
    Result<std::string> text = read_text(settings.kv_protect);
    if (!text)
      return text.error();
    Result<std::vector<ProtectedPhrase>> phrases = parse_phrases(*text, "--kv-protect " + settings.kv_protect);
    if (!phrases)
      return phrases.error();
    protection.phrases = *std::move(phrases);
  }
  if (!settings.kv_domain.empty()) {
    Result<std::string> domain = domain_definition(settings.kv_domain);
    if (!domain)
      return domain.error();
    protection.domain = *std::move(domain);
  }
  Result<std::vector<TokenSpan>> spans = parse_spans(settings.kv_pin);
  if (!spans)
    return spans.error();
  protection.spans = *std::move(spans);
  protection.special_quota = settings.kv_special_quota;
  protection.overflow = settings.kv_protect_overflow == "oldest" ? ProtectOverflow::oldest : ProtectOverflow::error;
  if (settings.kv_pin_system && !settings.chat && !settings.interactive)
    return usage("--kv-pin-system: there is no system message without --chat or --interactive");
  return protection;
}

Result<TokenSpan> system_span(const Model& model, const Settings& settings) {
  std::vector<ChatMessage> messages;
  if (!settings.system.empty())
    messages.push_back({.role = "system", .content = settings.system});
  messages.push_back({.role = "user", .content = kMark});
  Result<std::string> text = model.apply_chat_template(messages, true, settings.chat_template);
  if (!text)
    return text.error();
  const size_t at = text->find(kMark);
  if (at == std::string::npos)
    return usage("--kv-pin-system: the model's template drops or changes the message");
  const std::vector<Token> tokens = model.tokenize(text->substr(0, at), true, true);
  return TokenSpan{.begin = 0, .end = static_cast<int64_t>(tokens.size())};
}

}  // namespace kedge::cli
