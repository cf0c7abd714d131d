#include "kedge/protection.h"

#include "session/protection/domain.h"
#include "session/protection/phrase_list.h"

namespace kedge {

Result<std::vector<ProtectedPhrase>> parse_phrases(std::string_view text, const std::string& name) {
  return session::parse_phrase_list(text, name);
}

Result<DomainInfo> parse_domain(std::string_view toml, const std::string& name) {
  Result<session::Domain> domain = session::parse_domain(toml, name);
  if (!domain)
    return domain.error();
  return DomainInfo{.name = domain->name, .summary = domain->summary, .definition = std::string(toml)};
}

std::vector<DomainInfo> list_domains() {
  std::vector<DomainInfo> out;
  for (const session::DomainText& text : session::domain_texts()) {
    if (Result<DomainInfo> info = parse_domain(text.toml, "domain " + text.name))
      out.push_back(*std::move(info));
  }
  return out;
}

}  // namespace kedge
