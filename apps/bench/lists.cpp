#include "bench/lists.h"

#include <algorithm>
#include <charconv>

#include "kedge/policy.h"

namespace kedge::bench {
namespace {

constexpr size_t kMostValues = 1000;  // of one list: more is a slip of the keyboard

Error usage(std::string message) { return {.code = ErrorCode::usage, .message = std::move(message)}; }

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    pieces.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return pieces;
}

// Takes a whole number off the front of `text`.
bool take_number(std::string_view& text, int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || text.front() == '-')
    return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

struct Series {  // first, first (+ or *) by, ... up to last
  int64_t first = 0;
  int64_t last = 0;
  int64_t by = 1;
  bool multiplied = false;
};

Result<Series> parse_series(std::string_view piece, std::string_view flag) {
  const auto bad = [&](const std::string& why) {
    return usage(std::string(flag) + ": '" + std::string(piece) + "' " + why);
  };
  const std::string forms = "is no whole number and no range (first-last, first-last+step or first-last*factor)";
  Series out;
  std::string_view rest = piece;
  if (!take_number(rest, out.first))
    return bad(forms);
  out.last = out.first;
  if (rest.empty())
    return out;
  if (rest.front() != '-')
    return bad(forms);
  rest.remove_prefix(1);
  if (!take_number(rest, out.last))
    return bad(forms);
  if (out.last < out.first)
    return bad("ends before it begins");
  if (rest.empty())
    return out;
  if (rest.front() != '+' && rest.front() != '*')
    return bad(forms);
  out.multiplied = rest.front() == '*';
  rest.remove_prefix(1);
  if (!take_number(rest, out.by) || !rest.empty())
    return bad(forms);
  if (out.multiplied ? out.by < 2 || out.first < 1 : out.by < 1)
    return bad(out.multiplied ? "never ends: a factor is at least 2 and the first value at least 1"
                              : "never ends: a step is at least 1");
  return out;
}

}  // namespace

Result<std::vector<int>> parse_ints(std::string_view text, const ListRange& range) {
  std::vector<int> out;
  for (const std::string_view piece : split(text, ',')) {
    const Result<Series> series = parse_series(piece, range.flag);
    if (!series)
      return series.error();
    const auto bad = [&](const std::string& why) {
      return usage(std::string(range.flag) + ": '" + std::string(piece) + "' " + why);
    };
    if (series->first < range.least || series->last > range.most)
      return bad("is outside " + std::to_string(range.least) + ".." + std::to_string(range.most));
    for (int64_t value = series->first; value <= series->last;) {
      if (out.size() == kMostValues)
        return bad("makes a list of more than " + std::to_string(kMostValues) + " values");
      out.push_back(static_cast<int>(value));
      value = series->multiplied ? value * series->by : value + series->by;
    }
  }
  return out;
}

Result<std::vector<std::pair<int, int>>> parse_pairs(std::string_view text, const ListRange& range) {
  std::vector<std::pair<int, int>> out;
  if (text.empty())
    return out;
  for (const std::string_view piece : split(text, ';')) {
    const Result<std::vector<int>> numbers = parse_ints(piece, range);
    if (!numbers)
      return numbers.error();
    if (numbers->size() != 2) {
      return usage(std::string(range.flag) + ": '" + std::string(piece) +
                   "' is no pair PROMPT,GENERATED of two whole numbers");
    }
    out.emplace_back(numbers->front(), numbers->back());
  }
  return out;
}

Result<std::vector<std::string>> parse_policies(std::string_view text) {
  std::vector<std::string> out;
  for (const std::string_view piece : split(text, ',')) {
    const size_t equals = piece.find('=');
    const bool goes_on = equals != std::string_view::npos && piece.substr(0, equals).find_first_of(":/") == piece.npos;
    if (!goes_on) {
      out.emplace_back(piece);
    } else if (out.empty()) {
      return usage("--kv-policy: '" + std::string(piece) + "' is an option, and no policy stands before it");
    } else {
      out.back().append(",").append(piece);
    }
  }
  for (const std::string& policy : out) {
    if (policy.empty())
      return usage("--kv-policy: a policy of '" + std::string(text) + "' is empty");
    if (const Result<std::string> resolved = resolve_policy(policy); !resolved)
      return resolved.error();
  }
  return out;
}

Result<std::vector<Budget>> parse_budgets(std::string_view text) {
  std::vector<Budget> out;
  for (const std::string_view piece : split(text, ',')) {
    if (piece == "none" || piece == "full") {
      out.emplace_back();
      continue;
    }
    Result<Budget> budget = parse_budget(piece);
    if (!budget)
      return budget.error();
    out.push_back(*std::move(budget));
  }
  return out;
}

Result<std::vector<std::string>> parse_words(std::string_view text, std::string_view flag,
                                             const std::vector<std::string>& allowed) {
  std::vector<std::string> out;
  for (const std::string_view piece : split(text, ',')) {
    if (std::find(allowed.begin(), allowed.end(), piece) == allowed.end()) {
      std::string names;
      for (const std::string& name : allowed)
        names += (names.empty() ? "" : ", ") + name;
      return usage(std::string(flag) + ": '" + std::string(piece) + "' is not one of " + names);
    }
    out.emplace_back(piece);
  }
  return out;
}

}  // namespace kedge::bench
