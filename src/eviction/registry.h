// The tables that the build writes from the folders' listings, and look-ups by name.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eviction/policy.h"

namespace kedge::eviction {

std::vector<Method> generated_scorers();
std::vector<Method> generated_allocators();
std::vector<Method> generated_schedules();

// By name or alias; nullptr: none.
const Method* find_method(const std::vector<Method>& methods, std::string_view name);

// The candidate with the smallest Levenshtein distance (the first of equals); empty without candidates.
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

// What a user wrote, safe to print on one line: at most 64 bytes, anything but printable ASCII as '?'.
std::string quoted(std::string_view text);

std::string joined(std::span<const std::string> words, std::string_view separator);

}  // namespace kedge::eviction
