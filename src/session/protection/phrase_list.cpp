#include "session/protection/phrase_list.h"

#include <algorithm>

#include "session/protection/utf8.h"

namespace kedge::session {
namespace {

constexpr std::string_view kCase = "case:";
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front()))
    text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back()))
    text.remove_suffix(1);
  return text;
}

// What is wrong with a phrase; empty: nothing.
std::string fault_of(std::string_view phrase) {
  if (phrase.empty())
    return "found no phrase";
  if (phrase.size() > kLongestPhrase)
    return "found " + std::to_string(phrase.size()) + " bytes, allowed are " + std::to_string(kLongestPhrase);
  if (const size_t bad = first_bad_utf8(phrase); bad != std::string_view::npos) {
    return "found byte " + std::to_string(static_cast<uint8_t>(phrase[bad])) + " in column " + std::to_string(bad + 1) +
           ", which is not UTF-8";
  }
  const auto control = std::ranges::find_if(
      phrase, [](char c) { return (static_cast<uint8_t>(c) < 0x20 && !is_blank(c)) || c == 0x7F; });
  if (control != phrase.end())
    return "found the control character " + std::to_string(static_cast<int>(*control)) + ", allowed is text";
  return {};
}

}  // namespace

Result<std::vector<ProtectedPhrase>> parse_phrase_list(std::string_view text, const std::string& name) {
  std::vector<ProtectedPhrase> phrases;
  if (text.starts_with(kByteOrderMark))
    text.remove_prefix(kByteOrderMark.size());
  for (int64_t line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view phrase = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (phrase.empty() || phrase.front() == '#')
      continue;
    const bool match_case = phrase.starts_with(kCase);
    if (match_case)
      phrase = trimmed(phrase.substr(kCase.size()));
    if (phrase.starts_with("\\#"))
      phrase.remove_prefix(1);
    std::string fault = fault_of(phrase);
    if (fault.empty() && phrases.size() == kMostPhrases)
      fault = "found more than " + std::to_string(kMostPhrases) + " phrases, which is the most that is allowed";
    if (!fault.empty())
      return Error{ErrorCode::usage, name + ", line " + std::to_string(line) + ": " + fault};
    phrases.push_back({.text = std::string(phrase), .match_case = match_case});
  }
  if (phrases.empty())
    return Error{ErrorCode::usage, name + ": found no phrase; one word or phrase a line is needed"};
  return phrases;
}

Status check_phrases(const std::vector<ProtectedPhrase>& phrases) {
  if (phrases.size() > kMostPhrases) {
    return Error{ErrorCode::usage, "protected phrases: found " + std::to_string(phrases.size()) + ", allowed are " +
                                       std::to_string(kMostPhrases)};
  }
  for (size_t i = 0; i < phrases.size(); ++i) {
    const std::string fault = fault_of(trimmed(phrases[i].text));
    if (!fault.empty())
      return Error{ErrorCode::usage, "protected phrase " + std::to_string(i + 1) + ": " + fault};
  }
  return {};
}

}  // namespace kedge::session
