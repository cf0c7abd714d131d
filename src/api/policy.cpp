#include "kedge/policy.h"

#include "eviction/policy.h"

namespace kedge {

namespace {

using eviction::Method;
using eviction::OptionInfo;

const char* kind_name(OptionInfo::Kind kind) {
  switch (kind) {
    case OptionInfo::Kind::integer:
      return "integer";
    case OptionInfo::Kind::real:
      return "real";
    case OptionInfo::Kind::percent_or_rows:
      return "rows";
    case OptionInfo::Kind::choice:
      return "choice";
    case OptionInfo::Kind::flag:
      return "flag";
    case OptionInfo::Kind::text:
      return "text";
  }
  return "";
}

void add(std::vector<PolicyMethod>& out, const char* role, const std::vector<Method>& methods) {
  for (const Method& method : methods) {
    PolicyMethod entry{
        .role = role, .name = method.info.name, .summary = method.info.summary, .source = method.info.source};
    for (const OptionInfo& option : method.info.options) {
      entry.options.push_back({.name = option.name,
                               .kind = kind_name(option.kind),
                               .fallback = option.fallback,
                               .range = eviction::range_text(option),
                               .help = option.help});
    }
    if (method.make_scorer != nullptr || !method.evicts) {
      if (Result<std::string> resolved = resolve_policy(method.info.name))
        entry.defaults = *resolved;
    }
    out.push_back(std::move(entry));
  }
}

}  // namespace

std::vector<PolicyMethod> list_policies() {
  std::vector<PolicyMethod> out;
  add(out, "scorer", eviction::scorers());
  add(out, "allocator", eviction::allocators());
  add(out, "schedule", eviction::schedules());
  return out;
}

Result<std::string> resolve_policy(std::string_view text) {
  Result<eviction::Policy> policy = eviction::parse_policy(text, {});
  if (!policy)
    return policy.error();
  return policy->text;
}

Result<int> observed_rows(std::string_view policy) {
  Result<eviction::Policy> parsed = eviction::parse_policy(policy, {});
  if (!parsed)
    return parsed.error();
  return parsed->needs().window;
}

Result<Histories> observed_histories(std::string_view policy) {
  Result<eviction::Policy> parsed = eviction::parse_policy(policy, {});
  if (!parsed)
    return parsed.error();
  const eviction::Needs needs = parsed->needs();
  return Histories{.attention_sum = needs.attention_sum,
                   .query_moments = needs.query_moments,
                   .reconstruction = needs.reconstruction};
}

}  // namespace kedge
