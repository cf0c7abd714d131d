#include "help.h"

#include <algorithm>
#include <vector>

#include "kedge/policy.h"
#include "options.h"

namespace kedge::cli {
namespace {

constexpr size_t kHelpColumn = 30;
constexpr size_t kWidth = 110;

// Text wrapped between `indent` and kWidth; the first line goes on where the caller is.
std::string wrapped(const std::string& text, size_t indent) {
  std::string out;
  size_t column = indent;
  for (size_t at = 0; at < text.size();) {
    const size_t space = std::min(text.find(' ', at), text.size());
    const size_t length = space - at;
    if (column + length + 1 > kWidth && column > indent) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out += text.substr(at, length);
    column += length;
    at = space + 1;
  }
  return out;
}

std::string names(const OptionSpec& row) {
  std::string text = row.short_name.empty() ? "" : std::string(row.short_name) + ", ";
  text += row.name;
  if (!row.is_switch())
    text += " " + std::string(row.value);
  return text;
}

std::string full_help(const OptionSpec& row) {
  std::string text(row.help);
  if (!row.choices.empty())
    text += ": " + std::string(row.choices);
  const std::string fallback = default_text(row);
  return fallback.empty() ? text : text + " [" + fallback + "]";
}

std::vector<std::string_view> groups() {
  std::vector<std::string_view> out;
  for (const OptionSpec& row : option_table()) {
    if (std::find(out.begin(), out.end(), row.group) == out.end())
      out.push_back(row.group);
  }
  return out;
}

std::string usage_of(const VerbSpec& verb) {
  std::string text = "kedge " + std::string(verb.name);
  if (!verb.positional.empty())
    text += " " + std::string(verb.positional);
  return text + " [options]";
}

// In a table cell a bar would end the cell.
std::string cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2)
    text.insert(at, "\\");
  return text;
}

std::string code_cell(const std::string& text) { return text.empty() ? "" : "`" + cell(text) + "`"; }

std::string verbs_of(const OptionSpec& row) {
  std::string text;
  for (const VerbSpec& verb : verbs()) {
    if ((row.verbs & verb.bit) != 0)
      text += (text.empty() ? "" : ", ") + std::string(verb.name);
  }
  return text;
}

std::string markdown_options() {
  std::string text;
  for (const std::string_view group : groups()) {
    text += "\n### " + std::string(group) +
            "\n\n| flag | environment | default | verbs | what it does |\n|---|---|---|---|---|\n";
    for (const OptionSpec& row : option_table()) {
      if (row.group != group)
        continue;
      std::string help(row.help);
      if (!row.choices.empty())
        help += ": " + std::string(row.choices);
      const std::string env = row.key() == "help" ? "" : row.env_name();
      text += "| " + code_cell(names(row)) + " | " + code_cell(env) + " | " + code_cell(default_text(row)) + " | " +
              verbs_of(row) + " | " + cell(help) + " |\n";
    }
  }
  return text;
}

// What a method asks of a session, in one line.
std::string asks(const PolicyMethod& method) {
  if (method.role == "allocator")
    return "layers " + method.layers + "; needs " + needs_text(method.needs);
  if (method.role == "scorer")
    return "work " + method.cost + "; needs " + needs_text(method.needs);
  std::string text;
  for (const auto& [name, value] : method.properties)
    text += (text.empty() ? "" : "; ") + name + ": " + value;
  return text;
}

std::string markdown_policies() {
  std::string text = "\n| method | role | what it does | what it asks |\n|---|---|---|---|\n";
  for (const PolicyMethod& method : list_policies()) {
    text +=
        "| `" + method.name + "` | " + method.role + " | " + cell(method.summary) + " | " + cell(asks(method)) + " |\n";
  }
  for (const PolicyMethod& method : list_policies()) {
    text += "\n### " + method.name + " (" + method.role + ")\n\n" + method.summary + "\n";
    if (!method.source.empty())
      text += "\nSource: " + method.source + "\n";
    if (!method.defaults.empty())
      text += "\nThe bare name means `" + method.defaults + "`.\n";
    if (method.options.empty())
      continue;
    text += "\n| option | kind | default | range | what it does |\n|---|---|---|---|---|\n";
    for (const PolicyOption& option : method.options) {
      text += "| `" + option.name + "` | " + option.kind + " | " + code_cell(option.fallback) + " | " +
              cell(option.range) + " | " + cell(option.help) + " |\n";
    }
  }
  return text;
}

std::vector<VerbList> lists_of(const VerbSpec& verb) {
  return verb.lists == nullptr ? std::vector<VerbList>() : verb.lists();
}

std::string markdown_lists() {
  std::string text;
  for (const VerbSpec& verb : verbs()) {
    for (const VerbList& list : lists_of(verb)) {
      text += "\n## " + list.title + " of " + std::string(verb.name) +
              "\n\n| name | what it is | source |\n|---|---|---|\n";
      for (const VerbListEntry& entry : list.entries)
        text += "| " + code_cell(entry.name) + " | " + cell(entry.summary) + " | " + cell(entry.source) + " |\n";
    }
  }
  return text;
}

}  // namespace

std::string help_page() {
  std::string text =
      "Kedge runs a language model inside a fixed number of bytes of KV memory.\n\nusage: kedge VERB [options]\n\n";
  for (const VerbSpec& verb : verbs()) {
    std::string name = "  " + std::string(verb.name);
    name.resize(16, ' ');
    text += name + wrapped(std::string(verb.summary), 16) + "\n";
  }
  text += "  help [VERB]   this page, or that of a verb\n  --version     the version\n\n";
  return text + "`kedge VERB --help` lists the options of a verb.\n";
}

std::string help_page(const VerbSpec& verb) {
  std::string text = "usage: " + usage_of(verb) + "\n\n" + wrapped(std::string(verb.summary), 0) + "\n";
  for (const std::string_view group : groups()) {
    std::string rows;
    for (const OptionSpec& row : option_table()) {
      if (row.group != group || (row.verbs & verb.bit) == 0)
        continue;
      std::string left = (row.short_name.empty() ? "      " : "  ") + names(row);
      if (left.size() + 2 > kHelpColumn)
        left += "\n" + std::string(kHelpColumn, ' ');
      else
        left.resize(kHelpColumn, ' ');
      rows += left + wrapped(full_help(row), kHelpColumn) + "\n";
    }
    if (!rows.empty())
      text += "\n" + std::string(group) + "\n" + rows;
  }
  for (const VerbList& list : lists_of(verb)) {
    text += "\n" + list.title + "\n";
    for (const VerbListEntry& entry : list.entries) {
      std::string left = "  " + entry.name;
      if (left.size() + 2 > kHelpColumn)
        left += "\n" + std::string(kHelpColumn, ' ');
      else
        left.resize(kHelpColumn, ' ');
      text += left + wrapped(entry.summary, kHelpColumn) + "\n";
    }
  }
  return text + "\n" +
         wrapped(
             "Every option is also an environment variable (KEDGE_KV_BUDGET for --kv-budget) and a key of the TOML "
             "file "
             "named by --config or KEDGE_CONFIG (kv-budget). The command line wins over the environment, that over the "
             "file.",
             0) +
         "\n";
}

std::string markdown_page() {
  std::string text =
      "# Reference\n\nPrinted by `kedge --help-markdown`; do not edit.\n\n## Verbs\n\n| verb | what it does "
      "|\n|---|---|\n";
  for (const VerbSpec& verb : verbs())
    text += "| `" + usage_of(verb) + "` | " + cell(std::string(verb.summary)) + " |\n";
  text +=
      "\n## Options\n\nA value comes from the command line, else from the environment, else from the TOML file named "
      "by "
      "`--config` (its keys are the long names without dashes in front), else it is the default.\n";
  text += markdown_options();
  text += "\n## Policies\n\n`--kv-policy SCORER[:k=v,...][/ALLOCATOR[:k=v,...]][/SCHEDULE[:k=v,...]]`\n";
  text += markdown_policies();
  text += markdown_lists();
  text +=
      "\n## Exit codes\n\n| code | meaning |\n|---|---|\n| 0 | done |\n| 1 | failed: a file, memory, a prompt longer "
      "than the "
      "context |\n| 2 | usage: an unknown flag, policy, option or unit |\n| 3 | the model is missing, damaged or not "
      "supported |\n| 4 | the budget cannot hold what must be held; the message has the arithmetic |\n| 5 | a run "
      "folder that "
      "another process is writing |\n| 6 | the quality gate failed (`kedge eval --baseline`) |\n| 130 | "
      "interrupted "
      "(SIGINT) |\n| 143 | terminated (SIGTERM) |\n";
  return text;
}

}  // namespace kedge::cli
