#include "eviction/wrapper.h"

#include <vector>

#include "base/check.h"
#include "eviction/options.h"
#include "eviction/registry.h"

namespace kedge::eviction {

OptionInfo base_option(std::string fallback) {
  return text_option("base", std::move(fallback), "the scorer whose scores are used, with its defaults");
}

Status check_base(const OptionValues& options) {
  const std::string& name = options.choices.at("base");
  const Method* method = find_method(scorers(), name);
  if (method != nullptr && method->evicts)
    return {};
  std::vector<std::string> names;
  for (const Method& one : scorers()) {
    if (one.evicts)
      names.push_back(one.info.name);
  }
  return Error{ErrorCode::usage, "option 'base': no scorer " + quoted(name) + " that evicts, did you mean '" +
                                     nearest_name(name, names) + "'? (scorers: " + joined(names, ", ") + ")"};
}

std::unique_ptr<Scorer> make_base(const OptionValues& options) {
  const Method* method = find_method(scorers(), options.choices.at("base"));
  check(method != nullptr, "the base was checked");
  auto resolved = resolve_options(method->info, {});
  check(resolved.ok(), "defaults are in range");
  resolved->values.gate = options.gate;
  return method->make_scorer(resolved->values);
}

}  // namespace kedge::eviction
