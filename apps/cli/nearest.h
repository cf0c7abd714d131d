// The candidate a mistyped word most likely meant.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace kedge::cli {

// Insertions, deletions, changes and swaps of neighbours that turn one word into the other.
int edit_distance(std::string_view a, std::string_view b);

// The candidate of the smallest edit distance (a shared beginning breaks ties); empty where there are no candidates.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace kedge::cli
