#include "session/protection/domain.h"

#include <algorithm>

#include "session/protection/utf8.h"

#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

namespace kedge::session {
namespace {

constexpr size_t kMostClasses = 16;
constexpr size_t kMostWords = 10000;
constexpr size_t kLongestWord = 200;  // bytes

// Reads one definition; the first fault is kept.
class DomainReader {
 public:
  explicit DomainReader(std::string origin) : origin_(std::move(origin)) {}

  Result<Domain> read(std::string_view text) {
    const toml::parse_result parsed = toml::parse(text, origin_);
    if (!parsed)
      return at(parsed.error().source(), std::string(parsed.error().description()));
    const toml::table& table = parsed.table();
    allow(table, {"name", "summary", "class"});
    domain_.name = string_of(table, "name");
    domain_.summary = string_of(table, "summary");
    const toml::array* classes = table["class"].as_array();
    if (classes == nullptr || classes->empty() || classes->size() > kMostClasses)
      fault(table, "found no [[class]], or more than " + std::to_string(kMostClasses));
    for (size_t i = 0; classes != nullptr && fault_.empty() && i < classes->size(); ++i) {
      if (const toml::table* entry = classes->get(i)->as_table(); entry != nullptr)
        read_class(*entry);
      else
        fault(*classes->get(i), "'class' must be a table");
    }
    if (!fault_.empty())
      return Error{ErrorCode::usage, fault_};
    return std::move(domain_);
  }

 private:
  Error at(const toml::source_region& where, const std::string& what) const {
    return {ErrorCode::usage, origin_ + ", line " + std::to_string(where.begin.line) + ": " + what};
  }
  void fault(const toml::node& node, const std::string& what) {
    if (fault_.empty())
      fault_ = at(node.source(), what).message;
  }

  void allow(const toml::table& table, std::initializer_list<std::string_view> keys) {
    std::string known;
    for (const std::string_view key : keys)
      known += (known.empty() ? "" : ", ") + std::string(key);
    for (const auto& [key, node] : table) {
      if (std::ranges::find(keys, key.str()) == keys.end())
        fault(node, "unknown key '" + std::string(key.str()) + "'; allowed: " + known);
    }
  }

  std::string string_of(const toml::table& table, std::string_view key) {
    const auto* text = table[key].as_string();
    if (text != nullptr && !text->get().empty())
      return text->get();
    fault(table, "'" + std::string(key) + "' must be a string that is not empty");
    return {};
  }

  bool flag_of(const toml::table& table, std::string_view key) {
    const toml::node* node = table.get(key);
    if (node == nullptr)
      return false;
    if (const auto* value = node->as_boolean(); value != nullptr)
      return value->get();
    fault(*node, "'" + std::string(key) + "' must be true or false");
    return false;
  }

  std::vector<std::string> strings_of(const toml::table& table, std::string_view key) {
    std::vector<std::string> out;
    const toml::node* node = table.get(key);
    if (node == nullptr)
      return out;
    const toml::array* list = node->as_array();
    if (list == nullptr || list->empty() || list->size() > kMostWords) {
      fault(*node, "'" + std::string(key) + "' must be a list of 1 to " + std::to_string(kMostWords) + " strings");
      return out;
    }
    for (const toml::node& element : *list) {
      const auto* text = element.as_string();
      if (text == nullptr || text->get().empty() || text->get().size() > kLongestWord)
        fault(element,
              "'" + std::string(key) + "' must hold strings of 1 to " + std::to_string(kLongestWord) + " bytes");
      else
        out.push_back(text->get());
    }
    return out;
  }

  void add_phrases(const toml::table& table, DomainClass& entry, std::string_view key, bool at_line_start) {
    const bool match_case = flag_of(table, "match-case");
    for (const std::string& text : strings_of(table, key)) {
      if (is_blank(text.front()) || is_blank(text.back()))
        fault(*table.get(key), "'" + std::string(key) + "': '" + text + "' has white space at its ends");
      entry.phrases.push_back({.text = text, .match_case = match_case, .at_line_start = at_line_start});
    }
  }

  void read_class(const toml::table& table) {
    allow(table, {"name", "share", "words", "line-start", "match-case", "pairs", "indentation", "speaker-labels",
                  "table-columns"});
    DomainClass entry{.name = string_of(table, "name")};
    const std::optional<double> share = table["share"].value<double>();
    if (!share || !(*share > 0 && *share <= 1))
      fault(table, "'share' must be a number above 0 and at most 1: the part of the budget's rows");
    entry.share = share.value_or(0);
    add_phrases(table, entry, "words", false);
    add_phrases(table, entry, "line-start", true);
    for (const std::string& pair : strings_of(table, "pairs")) {
      if (pair.size() != 2 || pair[0] == pair[1])
        fault(*table.get("pairs"), "'pairs': '" + pair + "' must be two different ASCII characters");
      else
        entry.pairs.emplace_back(pair[0], pair[1]);
    }
    for (const std::string& column : strings_of(table, "table-columns")) {
      if (column.size() != 1 || column == "\n")
        fault(*table.get("table-columns"), "'table-columns': '" + column + "' must be one ASCII character");
      entry.table_columns += column;
    }
    entry.indentation = flag_of(table, "indentation");
    entry.speaker_labels = flag_of(table, "speaker-labels");
    const bool names_nothing = entry.phrases.empty() && entry.pairs.empty() && entry.table_columns.empty();
    if (names_nothing && !entry.indentation && !entry.speaker_labels)
      fault(table, "class '" + entry.name +
                       "' names nothing: give words, line-start, pairs, indentation, speaker-labels or table-columns");
    domain_.classes.push_back(std::move(entry));
  }

  std::string origin_;
  Domain domain_;
  std::string fault_;
};

}  // namespace

Result<Domain> parse_domain(std::string_view toml, const std::string& origin) {
  return DomainReader(origin).read(toml);
}

}  // namespace kedge::session
