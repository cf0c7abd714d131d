// Next-line completion within a repository, after RepoBench-P (Liu et al. 2023, arXiv:2306.03091) and LongBench's LCC;
// the source files are the user's.
#include <algorithm>

#include "eval/grid.h"
#include "eval/random.h"
#include "eval/source_files.h"

namespace kedge::eval {
namespace {

// A line that is worth completing: a statement, neither a brace nor a table of data.
bool is_target(std::string_view line) {
  const auto letters = std::ranges::count_if(line, [](char c) { return (c | 32) >= 'a' && (c | 32) <= 'z'; });
  return letters >= 8 && line.size() <= 120;
}

struct Target {
  size_t question;  // bytes: where the lines asked with begin
  SourceLine answer;
};

std::vector<Target> find_targets(const SourceFiles& sources, size_t n_lines) {
  std::vector<Target> targets;
  for (const std::vector<SourceLine>& lines : sources.files) {
    for (size_t i = n_lines; i < lines.size(); ++i) {
      const SourceLine& line = lines[i];
      if (is_target(std::string_view(sources.text).substr(line.begin, line.end - line.begin)))
        targets.push_back({.question = lines[i - n_lines].begin, .answer = line});
    }
  }
  return targets;
}

class Code : public Task {
 public:
  Code(const TaskRequest& request, SourceFiles sources, std::vector<Target> targets)
      : request_(request), sources_(std::move(sources)), targets_(std::move(targets)), grid_("code", request, false) {}

  int64_t n_samples() const override { return grid_.size(); }

  Result<Sample> sample(int64_t index) override {
    const Place place = grid_.at(index);
    Random random(request_.seed, place.id);
    const Target& target = random.pick(targets_);
    const SourceLine& line = target.answer;
    Sample sample = Grid::sample(place);
    sample.questions.push_back({.text = sources_.text.substr(target.question, line.begin - target.question),
                                .answers = {sources_.text.substr(line.begin, line.end - line.begin)},
                                .metric = "edit",
                                .max_tokens = 64});
    const int64_t n_tokens = room(request_.tokenizer, place.length, sample.questions);
    if (n_tokens < 1) {
      return usage("code: length " + std::to_string(place.length) +
                   " leaves no room beside the lines asked with: raise --lengths or lower lines");
    }
    Result<std::vector<Token>> context = last_tokens(target.question, n_tokens);
    if (!context)
      return context.error();
    sample.context = *std::move(context);
    return sample;
  }

 private:
  // The n_tokens before byte `end`; before the first file comes the last one, what is asked about excepted.
  Result<std::vector<Token>> last_tokens(size_t end, int64_t n_tokens) const {
    const std::string& text = sources_.text;
    const size_t after = std::min(text.find("\n// File: ", end), text.size());  // no further back than this
    const size_t n_bytes = end + text.size() - after;
    for (size_t size = static_cast<size_t>(n_tokens) * 4;; size *= 2) {
      size = std::min(size, n_bytes);
      const std::string around = size > end ? text.substr(text.size() - (size - end)) : "";
      std::vector<Token> tokens =
          request_.tokenizer.tokenize(around + text.substr(end - std::min(size, end), std::min(size, end)));
      if (static_cast<int64_t>(tokens.size()) >= n_tokens) {
        tokens.erase(tokens.begin(), tokens.end() - n_tokens);
        return tokens;
      }
      if (size == n_bytes) {
        return usage("code: the files have " + std::to_string(tokens.size()) + " tokens around a line, " +
                     std::to_string(n_tokens) + " are needed: give a larger folder with -f");
      }
    }
  }

  TaskRequest request_;
  SourceFiles sources_;
  std::vector<Target> targets_;
  Grid grid_;
};

Result<std::unique_ptr<Task>> make(const TaskRequest& request) {
  Result<SourceFiles> sources = read_source_files(request.file, word(request, "ext"));
  if (!sources)
    return sources.error();
  std::vector<Target> targets = find_targets(*sources, static_cast<size_t>(number(request, "lines")));
  if (targets.empty()) {
    return usage("code: '" + request.file + "' has no line of 8 letters with lines=" + word(request, "lines") +
                 " before it");
  }
  return std::unique_ptr<Task>(std::make_unique<Code>(request, *std::move(sources), std::move(targets)));
}

}  // namespace

TaskInfo code_task() {
  return {.name = "code",
          .summary = "completes the next line of a source file, with its repository before it",
          .source = "after RepoBench-P, Liu et al. 2023, arXiv:2306.03091",
          .input = "folder",
          .options = {{.name = "ext",
                       .fallback = "auto",
                       .choices = source_extensions(),
                       .help = "extension of the source files; auto: any of these"},
                      {.name = "lines",
                       .fallback = "1",
                       .min = 1,
                       .max = 50,
                       .help = "lines before the completed one that are read with the question"}},
          .make = make};
}

}  // namespace kedge::eval
