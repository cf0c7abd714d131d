#include <charconv>

#include "cli/nearest.h"
#include "eval/task.h"

namespace kedge::eval {
namespace {

Error usage(std::string message) { return {.code = ErrorCode::usage, .message = std::move(message)}; }

std::string quoted(std::string_view text) { return std::string("'").append(text).append("'"); }

std::string join(const std::vector<std::string>& words) {
  std::string joined;
  for (const std::string& word : words)
    joined += (joined.empty() ? "" : ", ") + word;
  return joined;
}

Error unknown(std::string_view what, std::string_view word, const std::vector<std::string>& known) {
  if (known.empty())
    return usage(std::string(what) + " " + quoted(word) + ": there are none");
  return usage(std::string(what) + " " + quoted(word) + ": did you mean " + quoted(cli::nearest(word, known)) +
               "? There are " + join(known));
}

// The value as the resolved text writes it: whole numbers without leading zeros.
Result<std::string> check_value(std::string_view task, const TaskOption& option, std::string_view value) {
  const std::string where = std::string(task) + ":" + option.name + "=" + std::string(value);
  if (!option.choices.empty()) {
    for (const std::string& choice : option.choices) {
      if (choice == value)
        return choice;
    }
    return usage(where + ": must be one of " + join(option.choices));
  }
  int64_t number = 0;
  const auto [stop, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || stop != value.data() + value.size() || number < option.min || number > option.max) {
    return usage(where + ": must be a whole number from " + std::to_string(option.min) + " to " +
                 std::to_string(option.max));
  }
  return std::to_string(number);
}

const TaskOption* find_option(const TaskInfo& info, std::string_view name) {
  for (const TaskOption& option : info.options) {
    if (option.name == name)
      return &option;
  }
  return nullptr;
}

// "key=value" into choice.options.
Status take_option(TaskChoice& choice, std::string_view text) {
  const TaskInfo& info = *choice.info;
  const size_t equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  const TaskOption* option = find_option(info, name);
  if (option == nullptr) {
    std::vector<std::string> names;
    for (const TaskOption& known : info.options)
      names.push_back(known.name);
    return unknown("task " + info.name + " has no option", name, names);
  }
  if (equals == std::string_view::npos)
    return usage(info.name + ":" + option->name + " needs a value, as in " + option->name + "=" + option->fallback);
  if (choice.options.contains(option->name))
    return usage(info.name + ":" + option->name + " is given twice");
  Result<std::string> value = check_value(info.name, *option, text.substr(equals + 1));
  if (!value)
    return value.error();
  choice.options[option->name] = std::move(*value);
  return {};
}

}  // namespace

Result<TaskChoice> parse_task(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  TaskChoice choice;
  choice.written = text;
  std::vector<std::string> names;
  for (const TaskInfo& info : tasks()) {
    names.push_back(info.name);
    if (info.name == name)
      choice.info = &info;
  }
  if (choice.info == nullptr)
    return unknown("unknown task", name, names);
  std::string_view rest = colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
  while (colon != std::string_view::npos) {
    const size_t comma = rest.find(',');
    if (Status taken = take_option(choice, rest.substr(0, comma)); !taken)
      return taken.error();
    if (comma == std::string_view::npos)
      break;
    rest.remove_prefix(comma + 1);
  }
  choice.text = choice.info->name;
  for (const TaskOption& option : choice.info->options) {
    const auto [entry, added] = choice.options.try_emplace(option.name, option.fallback);
    choice.text += (choice.text.size() == choice.info->name.size() ? ":" : ",") + option.name + "=" + entry->second;
  }
  return choice;
}

}  // namespace kedge::eval
