// A domain: classes of tokens that matter in one kind of text, each with a share of the budget. A TOML file, one of
// data/domains/ (they are part of the program) or the user's own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kedge/error.h"
#include "session/protection/phrase_matcher.h"

namespace kedge::session {

struct DomainClass {
  std::string name;
  double share = 0;             // of the budget's rows, at most
  std::vector<Phrase> phrases;  // `words` and `line-start`
  std::vector<std::pair<char, char>> pairs;
  bool indentation = false;     // tokens of white space that begin a line
  bool speaker_labels = false;  // "Name:" at the start of a line
  std::string table_columns;    // delimiters: the first of neighbouring lines with as many of one
};

struct Domain {
  std::string name;
  std::string summary;
  std::vector<DomainClass> classes;
};

// `origin` names the definition in messages: "domain code", "domain file x.toml". Error usage: not TOML, unknown keys,
// values out of range, with the line.
Result<Domain> parse_domain(std::string_view toml, const std::string& origin);

struct DomainText {
  std::string name;
  std::string toml;
};
const std::vector<DomainText>& domain_texts();  // those of data/domains/, by name

}  // namespace kedge::session
