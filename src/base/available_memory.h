// How much memory a process can still take before others lose theirs.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kedge {

// Bytes: the system's estimate, or what a control group (a container) leaves of its limit when that is less.
// nullopt: the system does not say.
std::optional<int64_t> available_memory_bytes();

// The parts of it, of the files' texts.
std::optional<int64_t> parse_mem_available(std::string_view meminfo);
// memory.max, memory.current and memory.stat of cgroup v2: pages of files can be dropped, so they count as free.
std::optional<int64_t> parse_group_memory(std::string_view max, std::string_view current, std::string_view stat);

}  // namespace kedge
