#include "eviction/policy.h"

#include <algorithm>

#include "eviction/difficulty.h"
#include "eviction/options.h"
#include "eviction/registry.h"

namespace kedge::eviction {
namespace {

constexpr size_t kLongestText = 4096;

Error usage(std::string message) { return {.code = ErrorCode::usage, .message = std::move(message)}; }

struct Piece {
  const Method* method = nullptr;
  std::vector<GivenOption> options;
};

// The three parts while they are being read.
struct Pieces {
  Piece scorer;
  Piece allocator;
  Piece schedule;
};

std::vector<std::string> names_of(const std::vector<Method>& methods, bool with_aliases) {
  std::vector<std::string> names;
  for (const Method& method : methods) {
    names.push_back(method.info.name);
    if (with_aliases)
      names.insert(names.end(), method.aliases.begin(), method.aliases.end());
  }
  return names;
}

// "unknown scorer 'andpor', did you mean 'andpro'? (scorers: ...)". An alias that is nearest is named by its method.
Error unknown_name(std::string_view role, std::string_view name, const std::vector<Method>& methods) {
  const std::string nearest = nearest_name(name, names_of(methods, true));
  const Method* method = find_method(methods, nearest);
  return usage("unknown " + std::string(role) + " " + quoted(name) + ", did you mean '" +
               (method != nullptr ? method->info.name : nearest) + "'? (" + std::string(role) +
               "s: " + joined(names_of(methods, false), ", ") + ")");
}

Status read_options(std::string_view piece, Piece& out) {
  const size_t colon = piece.find(':');
  if (colon == std::string_view::npos)
    return {};
  if (colon + 1 == piece.size())
    return usage("no options after '" + out.method->info.name + ":'");
  auto given = split_options(piece.substr(colon + 1), out.method->info.name);
  if (!given)
    return given.error();
  out.options = std::move(given).value();
  return {};
}

// The second or third piece: an allocator or a schedule, whichever has the name.
Status read_later_piece(std::string_view text, Pieces& pieces) {
  const std::string_view name = text.substr(0, text.find(':'));
  if (name.empty())
    return usage("empty part in the policy (SCORER[:k=v,...][/ALLOCATOR[:k=v,...]][/SCHEDULE[:k=v,...]])");
  const Method* allocator = find_method(allocators(), name);
  const Method* schedule = find_method(schedules(), name);
  if (allocator == nullptr && schedule == nullptr) {
    std::vector<Method> both = allocators();
    both.insert(both.end(), schedules().begin(), schedules().end());
    if (pieces.allocator.method != nullptr)
      return unknown_name("schedule", name, schedules());
    if (pieces.schedule.method != nullptr)
      return unknown_name("allocator", name, allocators());
    return unknown_name("allocator or schedule", name, both);
  }
  Piece& piece = allocator != nullptr ? pieces.allocator : pieces.schedule;
  if (piece.method != nullptr) {
    return usage("the policy names two " + std::string(allocator != nullptr ? "allocators" : "schedules") + ", '" +
                 piece.method->info.name + "' and " + quoted(name));
  }
  piece.method = allocator != nullptr ? allocator : schedule;
  return read_options(text, piece);
}

Status read_pieces(std::string_view text, bool gate_ranks_model, Pieces& pieces) {
  size_t slash = std::min(text.find('/'), text.size());
  const std::string_view first = text.substr(0, slash);
  const std::string_view name = first.substr(0, first.find(':'));
  if (name.empty())
    return usage("the policy names no scorer (scorers: " + joined(names_of(scorers(), false), ", ") + ")");
  pieces.scorer.method = find_method(scorers(), name);
  if (pieces.scorer.method == nullptr)
    return unknown_name("scorer", name, scorers());
  if (Status status = read_options(first, pieces.scorer); !status)
    return status;
  while (slash < text.size()) {
    text = text.substr(slash + 1);
    slash = std::min(text.find('/'), text.size());
    if (Status status = read_later_piece(text.substr(0, slash), pieces); !status)
      return status;
  }
  const Method& scorer = *pieces.scorer.method;
  if (pieces.allocator.method == nullptr) {
    const bool model_wide = gate_ranks_model && !scorer.model_wide.allocator.empty();
    if (Status status = read_later_piece(model_wide ? scorer.model_wide.allocator : scorer.default_allocator, pieces);
        !status)
      return status;
  }
  if (pieces.schedule.method == nullptr)
    return read_later_piece(scorer.default_schedule, pieces);
  return {};
}

// Options of the scorer that are another spelling of the allocator's move there.
Status forward_options(Pieces& pieces) {
  std::vector<GivenOption> own;
  for (const GivenOption& given : pieces.scorer.options) {
    const auto& table = pieces.scorer.method->info.options;
    const bool forwarded = std::any_of(table.begin(), table.end(), [&](const OptionInfo& option) {
      return option.name == given.key && option.to_allocator;
    });
    if (!forwarded) {
      own.push_back(given);
      continue;
    }
    const auto& target = pieces.allocator.method->info;
    if (std::none_of(target.options.begin(), target.options.end(),
                     [&](const OptionInfo& option) { return option.name == given.key; })) {
      return usage("option '" + given.key + "' of '" + pieces.scorer.method->info.name +
                   "' belongs to the allocator, and '" + target.name + "' has no such option");
    }
    for (const GivenOption& other : pieces.allocator.options) {
      if (other.key == given.key) {
        return usage("option '" + given.key + "' is given to both '" + pieces.scorer.method->info.name + "' and '" +
                     target.name + "'");
      }
    }
    pieces.allocator.options.push_back(given);
  }
  pieces.scorer.options = std::move(own);
  return {};
}

void apply_override(Piece& scorer, const std::string& key, const std::string& value) {
  if (value.empty())
    return;
  for (const GivenOption& given : scorer.options) {
    if (given.key == key)
      return;
  }
  scorer.options.push_back({.key = key, .value = value});
}

std::string piece_text(const Piece& piece, const ResolvedOptions& options) {
  return piece.method->info.name + (options.text.empty() ? "" : ":" + options.text);
}

}  // namespace

Needs operator|(const Needs& a, const Needs& b) {
  return {.window = std::max(a.window, b.window),
          .values = a.values || b.values,
          .attention_sum = a.attention_sum || b.attention_sum,
          .echo = a.echo || b.echo,
          .query_moments = a.query_moments || b.query_moments,
          .reconstruction = a.reconstruction || b.reconstruction,
          .gate = a.gate || b.gate,
          .ageing = a.ageing || b.ageing,
          .output_weights = a.output_weights || b.output_weights,
          .tokens = a.tokens || b.tokens,
          .running_anchor = a.running_anchor || b.running_anchor};
}

Needs Policy::needs() const {
  if (!evicts)
    return {};
  const bool measures = schedule->measure() != Difficulty::none;
  return scorer->needs() | allocator->needs() | Needs{.window = measures ? kDifficultyQueries : 0};
}

const char* default_scorer(bool limited, bool gate_ranks_model) {
  if (!limited)
    return "none";
  return gate_ranks_model ? "gate" : "echo";
}

Result<Policy> parse_policy(std::string_view text, const PolicyOverrides& overrides) {
  if (text.size() > kLongestText)
    return usage("the policy is longer than " + std::to_string(kLongestText) + " bytes");
  Pieces pieces;
  if (Status status = read_pieces(text, overrides.gate_ranks_model, pieces); !status)
    return status.error();
  if (Status status = forward_options(pieces); !status)
    return status.error();
  apply_override(pieces.scorer, "recent", overrides.recent);
  apply_override(pieces.scorer, "sinks", overrides.sinks);
  if (overrides.gate_ranks_model) {
    for (const auto& [key, value] : pieces.scorer.method->model_wide.options)
      apply_override(pieces.scorer, key, value);
  }

  auto scorer = resolve_options(pieces.scorer.method->info, pieces.scorer.options);
  if (!scorer)
    return scorer.error();
  scorer->values.gate = overrides.gate;
  auto allocator = resolve_options(pieces.allocator.method->info, pieces.allocator.options);
  if (!allocator)
    return allocator.error();
  auto schedule = resolve_options(pieces.schedule.method->info, pieces.schedule.options);
  if (!schedule)
    return schedule.error();

  const auto judge = [](const Piece& piece, const ResolvedOptions& options) {
    return piece.method->validate == nullptr ? Status() : piece.method->validate(options.values);
  };
  for (const Status& status :
       {judge(pieces.scorer, *scorer), judge(pieces.allocator, *allocator), judge(pieces.schedule, *schedule)}) {
    if (!status)
      return status.error();
  }

  const Method& method = *pieces.scorer.method;
  Policy policy;
  policy.text = piece_text(pieces.scorer, *scorer) + "/" + piece_text(pieces.allocator, *allocator) + "/" +
                piece_text(pieces.schedule, *schedule);
  policy.scorer_method = &method;
  policy.scorer = method.make_scorer(scorer->values);
  policy.allocator = pieces.allocator.method->make_allocator(allocator->values);
  policy.schedule = pieces.schedule.method->make_schedule(schedule->values);
  policy.evicts = method.evicts;
  policy.sinks = scorer->values.rows.at("sinks");
  policy.recent = scorer->values.rows.at("recent");
  if (const auto cold = scorer->values.numbers.find("cold"); cold != scorer->values.numbers.end())
    policy.cold_start_tokens = static_cast<int>(cold->second);
  return policy;
}

}  // namespace kedge::eviction
