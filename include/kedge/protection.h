// Rows that no eviction takes because of what their tokens are: spans, phrases, special tokens, a domain's classes. By
// index, whatever a scorer says. Sinks and recent rows come on top (SessionOptions).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kedge/error.h"

namespace kedge {

struct ProtectedPhrase {
  std::string text;         // a word or phrase; runs of white space are equal; words match as whole words
  bool match_case = false;  // false: ASCII letters match in either case
};

struct TokenSpan {  // positions [begin, end) of the sequence
  int64_t begin = 0;
  int64_t end = 0;
};

// When spans, phrases and sinks alone exceed what an eviction may keep.
enum class ProtectOverflow {
  error,   // budget_impossible, with the arithmetic; nothing is lost
  oldest,  // those of the lowest positions lose their protection
};

struct Protection {
  std::vector<TokenSpan> spans;
  std::vector<ProtectedPhrase> phrases;
  std::string domain;     // TOML text (docs/protection.md); find_domain() has that of a preset; empty: none
  int special_quota = 0;  // newest tokens of each special kind (chat markers, ...); 0: none
  ProtectOverflow overflow = ProtectOverflow::error;
  bool empty() const { return spans.empty() && phrases.empty() && domain.empty() && special_quota == 0; }
};

enum class ProtectedBy : uint8_t { nothing, span, phrase, special, domain };  // what protects a token

// A list of phrases, one a line: `#` begins a comment, `case: ` in front of a phrase makes case count. Error usage
// names `name` and the line.
Result<std::vector<ProtectedPhrase>> parse_phrases(std::string_view text, const std::string& name);

struct DomainInfo {
  std::string name;
  std::string summary;
  std::string definition;  // TOML
};
std::vector<DomainInfo> list_domains();  // the presets, by name
// Checks a definition. Error usage names `name` and the line.
Result<DomainInfo> parse_domain(std::string_view toml, const std::string& name);

}  // namespace kedge
