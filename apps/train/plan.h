// Which windows of which documents a gate learns from, and which it is judged by.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kedge/error.h"

namespace kedge::train {

struct DocumentSize {
  std::string name;
  int64_t n_tokens = 0;
  bool held_out = false;
};

struct Window {
  size_t document = 0;
  int64_t begin = 0;  // tokens [begin, begin + n) of the document
  int64_t n = 0;
  bool held_out = false;
};

struct PlanOptions {
  int64_t n_tokens = 200'000;             // of all windows together, at most
  std::vector<int64_t> lengths = {1024};  // taken in turn
};

// Windows that do not overlap, as even over the documents as these are long: each document is cut into windows of the
// lengths in turn, and of all of them every so many are taken. Where no document is held out, every tenth window is.
// A document shorter than a length gives none of it.
std::vector<Window> plan_windows(std::span<const DocumentSize> documents, const PlanOptions& options);

// Error usage unless there is at least one window to learn from and one to be judged by.
Status both_kinds(std::span<const Window> windows);

}  // namespace kedge::train
