#include "base/available_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string>

namespace kedge {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::optional<int64_t> number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0)
    return std::nullopt;
  return value;
}

// The number after `key` at the start of a line.
std::optional<int64_t> field(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (line.starts_with(key))
      return number(line.substr(key.size()));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return std::nullopt;
}

// The folder of this process's group: "0::/some/path" of cgroup v2.
std::string group_folder() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::"))
      return "/sys/fs/cgroup" + line.substr(3);
  }
  return "/sys/fs/cgroup";
}

}  // namespace

std::optional<int64_t> parse_mem_available(std::string_view meminfo) {
  const std::optional<int64_t> kib = field(meminfo, "MemAvailable:");
  return kib ? std::optional(*kib * 1024) : std::nullopt;
}

std::optional<int64_t> parse_group_memory(std::string_view max, std::string_view current, std::string_view stat) {
  const std::optional<int64_t> limit = number(max);  // "max": none
  const std::optional<int64_t> used = number(current);
  if (!limit || !used)
    return std::nullopt;
  const int64_t droppable = field(stat, "inactive_file ").value_or(0) + field(stat, "active_file ").value_or(0);
  return std::max<int64_t>(*limit - std::max<int64_t>(*used - droppable, 0), 0);
}

std::optional<int64_t> available_memory_bytes() {
  std::optional<int64_t> available = parse_mem_available(text_of("/proc/meminfo"));
  // Limits hold for a group and all above it.
  for (std::string folder = group_folder(); folder.size() >= std::string_view("/sys/fs/cgroup").size();
       folder.resize(folder.find_last_of('/'))) {
    const std::optional<int64_t> group = parse_group_memory(
        text_of(folder + "/memory.max"), text_of(folder + "/memory.current"), text_of(folder + "/memory.stat"));
    if (group)
      available = std::min(available.value_or(*group), *group);
  }
  return available;
}

}  // namespace kedge
