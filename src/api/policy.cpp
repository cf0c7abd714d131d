#include "kedge/policy.h"

#include "api/model_impl.h"
#include "eviction/example.h"
#include "eviction/explain.h"
#include "eviction/gate_mode.h"
#include "eviction/options.h"
#include "eviction/policy.h"
#include "eviction/registry.h"

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

PolicyNeeds needs_of(const eviction::Needs& needs) {
  return {.window_queries = needs.window,
          .values = needs.values,
          .attention_sum = needs.attention_sum,
          .echo = needs.echo,
          .query_moments = needs.query_moments,
          .second_pass = needs.reconstruction,
          .gate = needs.gate,
          .output_weights = needs.output_weights,
          .tokens = needs.tokens,
          .running_anchor = needs.running_anchor};
}

PolicyExample example_of(const Method& method) {
  if (method.example.score.empty())
    return {};
  const std::string text = method.info.name + (method.example.options.empty() ? "" : ":" + method.example.options);
  Result<eviction::Policy> policy = eviction::parse_policy(text, {});
  if (!policy)
    return {};
  PolicyExample out{.policy = text, .score = eviction::example_scores(*policy->scorer), .kept = {}};
  for (const int32_t row : eviction::keep_order(out.score, policy->scorer->chunk()))
    out.kept.push_back(row);
  return out;
}

std::string layers_of(const eviction::Allocator& allocator) {
  switch (allocator.layers()) {
    case eviction::Allocator::Layers::equal:
      return "equal";
    case eviction::Allocator::Layers::weighted:
      return "weighted";
    case eviction::Allocator::Layers::shared:
      return "shared";
  }
  return "";
}

std::vector<std::pair<std::string, std::string>> properties_of(const eviction::Schedule& schedule) {
  const eviction::ScheduleInfo info = schedule.info();
  const auto yes_no = [](bool yes) { return std::string(yes ? "yes" : "no"); };
  std::vector<std::pair<std::string, std::string>> out = {
      {"after the prompt", yes_no(info.after_prompt)},
      {"between its chunks", yes_no(info.between_chunks)},
      {"while decoding", info.every_n > 0 ? "room for " + std::to_string(info.every_n) + " tokens after each"
                                          : std::string("when the next token would not fit")}};
  if (info.burst_steps > 0)
    out.emplace_back("a later text", "tightened in " + std::to_string(info.burst_steps) + " steps");
  if (schedule.measure() != eviction::Difficulty::none)
    out.emplace_back("share of the budget", "by the difficulty of the context");
  return out;
}

// What the method is with its default options.
void add_made(const Method& method, PolicyMethod& entry) {
  Result<eviction::ResolvedOptions> options = eviction::resolve_options(method.info, {});
  if (!options || (method.validate != nullptr && !method.validate(options->values)))
    return;
  if (method.make_scorer != nullptr) {
    entry.needs = needs_of(method.make_scorer(options->values)->needs());
    entry.example = example_of(method);
    if (Result<std::string> resolved = resolve_policy(method.info.name))
      entry.defaults = *resolved;
  }
  if (method.make_allocator != nullptr) {
    const auto allocator = method.make_allocator(options->values);
    entry.needs = needs_of(allocator->needs());
    entry.layers = layers_of(*allocator);
  }
  if (method.make_schedule != nullptr)
    entry.properties = properties_of(*method.make_schedule(options->values));
}

void add(std::vector<PolicyMethod>& out, const char* role, const std::vector<Method>& methods) {
  for (const Method& method : methods) {
    PolicyMethod entry{.role = role,
                       .name = method.info.name,
                       .summary = method.info.summary,
                       .source = method.info.source,
                       .aliases = method.aliases,
                       .cost = method.cost};
    for (const OptionInfo& option : method.info.options) {
      entry.options.push_back({.name = option.name,
                               .kind = kind_name(option.kind),
                               .fallback = option.fallback,
                               .range = eviction::range_text(option),
                               .help = option.help});
    }
    add_made(method, entry);
    out.push_back(std::move(entry));
  }
}

Result<eviction::Policy> parsed_for(std::string_view policy, const Model* model) {
  if (model == nullptr)
    return eviction::parse_policy(policy, {});
  return eviction::parse_policy(policy, session::gate_overrides(model->impl().engine()));
}

}  // namespace

std::string needs_text(const PolicyNeeds& needs) {
  std::vector<std::string> words;
  if (needs.window_queries > 0)
    words.push_back(needs.window_queries == 1 ? "the last query"
                                              : "last " + std::to_string(needs.window_queries) + " queries");
  if (needs.values)
    words.emplace_back("K and V rows");
  if (needs.attention_sum)
    words.emplace_back("attention sums");
  if (needs.echo)
    words.emplace_back("a sample of all queries and their echo");
  if (needs.query_moments)
    words.emplace_back("query moments");
  if (needs.second_pass)
    words.emplace_back("a second pass over the prompt");
  if (needs.gate)
    words.emplace_back("a learned gate");
  if (needs.output_weights)
    words.emplace_back("output weights");
  if (needs.tokens)
    words.emplace_back("tokens");
  if (needs.running_anchor)
    words.emplace_back("a running mean of outputs");
  return words.empty() ? "nothing" : eviction::joined(words, ", ");
}

std::vector<PolicyMethod> list_policies() {
  std::vector<PolicyMethod> out;
  add(out, "scorer", eviction::scorers());
  add(out, "allocator", eviction::allocators());
  add(out, "schedule", eviction::schedules());
  return out;
}

Result<std::string> resolve_policy(std::string_view text, const Model* model) {
  Result<eviction::Policy> policy = parsed_for(text, model);
  if (!policy)
    return policy.error();
  return policy->text;
}

Result<std::string> resolve_gate_mode(std::string_view text) {
  Result<eviction::GateMode> mode = eviction::parse_gate_mode(text);
  if (!mode)
    return mode.error();
  return mode->text;
}

Result<int> observed_rows(std::string_view policy, const Model* model) {
  Result<eviction::Policy> parsed = parsed_for(policy, model);
  if (!parsed)
    return parsed.error();
  return parsed->needs().window;
}

Result<Histories> observed_histories(std::string_view policy, const Model* model) {
  Result<eviction::Policy> parsed = parsed_for(policy, model);
  if (!parsed)
    return parsed.error();
  const eviction::Needs needs = parsed->needs();
  return Histories{.attention_sum = needs.attention_sum,
                   .echo = needs.echo,
                   .query_moments = needs.query_moments,
                   .reconstruction = needs.reconstruction,
                   .gate = needs.gate};
}

}  // namespace kedge
