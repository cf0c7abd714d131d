#include "eval/grid.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "cli/text_input.h"

namespace kedge::eval {
namespace {

// 0.25 -> "25", 0.125 -> "12.5".
std::string percent(double depth) {
  char text[32];
  std::snprintf(text, sizeof text, "%.8g", depth * 100);
  return text;
}

}  // namespace

Grid::Grid(std::string task, const TaskRequest& request, bool with_depths)
    : task_(std::move(task)),
      lengths_(request.lengths),
      depths_(with_depths ? request.depths : std::vector<double>{-1}),
      samples_(request.samples) {}

int64_t Grid::size() const {
  return static_cast<int64_t>(lengths_.size()) * static_cast<int64_t>(depths_.size()) * samples_;
}

Place Grid::at(int64_t index) const {
  const auto n_depths = static_cast<int64_t>(depths_.size());
  Place place;
  place.seed = index % samples_;
  place.depth = depths_[static_cast<size_t>(index / samples_ % n_depths)];
  place.length = lengths_[static_cast<size_t>(index / samples_ / n_depths)];
  place.id = task_ + "-" + std::to_string(place.length);
  if (place.depth >= 0)
    place.id.append("-d").append(percent(place.depth));
  place.id.append("-").append(std::to_string(place.seed));
  return place;
}

Sample Grid::sample(const Place& place) {
  Sample sample;
  sample.id = place.id;
  sample.length = place.length;
  sample.depth = place.depth;
  sample.seed = place.seed;
  return sample;
}

int64_t number(const TaskRequest& request, const std::string& option) { return std::stoll(request.options.at(option)); }

const std::string& word(const TaskRequest& request, const std::string& option) { return request.options.at(option); }

Error usage(std::string message) { return {.code = ErrorCode::usage, .message = std::move(message)}; }

int64_t room(const Tokenizer& tokenizer, int64_t length, std::span<const Question> questions) {
  size_t longest = 0;
  for (const Question& question : questions)
    longest = std::max(longest, tokenizer.tokenize(question.text).size());
  return length - static_cast<int64_t>(longest);
}

Result<std::string> read_task_text(const TaskRequest& request, const std::string& task) {
  if (request.file.empty())
    return usage(task + ": no text: give -f FILE, plain or gzip");
  Result<std::string> text = cli::read_text(request.file);
  if (text && text->find_first_not_of(" \t\r\n\v\f") == std::string::npos)
    return usage(task + ": '" + request.file + "' is empty");
  return text;
}

}  // namespace kedge::eval
