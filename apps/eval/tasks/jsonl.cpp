// The user's own samples, one JSON object a line; also LongBench's and RULER's files as their projects publish them.
#include "cli/text_input.h"
#include "eval/grid.h"
#include "eval/line_formats.h"

namespace kedge::eval {
namespace {

struct Line {
  size_t begin;  // bytes
  size_t size;
  int64_t number;  // from 1
};

// All lines that are not blank. The last may lack its line break; a byte order mark is no part of the first.
std::vector<Line> split_lines(std::string_view text) {
  std::vector<Line> lines;
  size_t begin = text.starts_with("\xEF\xBB\xBF") ? 3 : 0;
  for (int64_t number = 1; begin < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    if (line.find_first_not_of(" \t\r") != std::string_view::npos)
      lines.push_back({.begin = begin, .size = line.size(), .number = number});
    begin = end + 1;
  }
  return lines;
}

// Holds the file once, as it is; a line is parsed when its sample is asked for.
class JsonLines : public Task {
 public:
  JsonLines(const TaskRequest& request, std::string text)
      : request_(request),
        options_({.format = line_format(word(request, "format")), .wrap = word(request, "wrap") == "yes"}),
        text_(std::move(text)) {}

  // Reads every line once, and keeps where the good ones are.
  Status check() {
    const int64_t limit = number(request_, "limit");
    for (const Line& line : split_lines(text_)) {
      if (limit > 0 && n_samples() == limit)
        break;
      if (const Result<LineSample> parsed = parse(line); parsed)
        lines_.push_back(line);
      else if (request_.skip_bad)
        ++n_skipped_;
      else
        return parsed.error();
    }
    if (lines_.empty()) {
      return Error{.code = ErrorCode::failed,
                   .message = "jsonl: '" + request_.file + "' has no line to ask" +
                              (n_skipped_ > 0 ? ": all " + std::to_string(n_skipped_) + " are bad" : "")};
    }
    return {};
  }

  int64_t n_samples() const override { return static_cast<int64_t>(lines_.size()); }
  int64_t n_skipped() const override { return n_skipped_; }

  Result<Sample> sample(int64_t index) override {
    const Line& line = lines_[static_cast<size_t>(index)];
    Result<LineSample> parsed = parse(line);
    if (!parsed)
      return parsed.error();
    Sample sample;
    sample.id = "jsonl-" + std::to_string(line.number);
    sample.context = request_.tokenizer.tokenize(parsed->context);
    sample.length =
        static_cast<int64_t>(sample.context.size() + request_.tokenizer.tokenize(parsed->question.text).size());
    sample.questions.push_back(std::move(parsed->question));
    return sample;
  }

 private:
  Result<LineSample> parse(const Line& line) const {
    Result<LineSample> parsed = parse_line(std::string_view(text_).substr(line.begin, line.size), options_);
    if (parsed)
      return parsed;
    return Error{.code = parsed.error().code,
                 .message = request_.file + ":" + std::to_string(line.number) + ": " + parsed.error().message};
  }

  TaskRequest request_;
  LineOptions options_;
  std::string text_;
  std::vector<Line> lines_;
  int64_t n_skipped_ = 0;
};

Result<std::unique_ptr<Task>> make(const TaskRequest& request) {
  Result<std::string> text = read_task_text(request, "jsonl");
  if (!text)
    return text.error();
  auto task = std::make_unique<JsonLines>(request, *std::move(text));
  if (Status status = task->check(); !status)
    return status.error();
  return std::unique_ptr<Task>(std::move(task));
}

}  // namespace

TaskInfo jsonl_task() {
  return {.name = "jsonl",
          .summary = "asks the questions of a file of JSON lines: your own, LongBench's or RULER's",
          .source = "LongBench, Bai et al. 2023, arXiv:2308.14508; RULER, Hsieh et al. 2024, arXiv:2404.06654",
          .input = "lines",
          .options = {{.name = "format",
                       .fallback = "auto",
                       .choices = {"auto", "kedge", "longbench", "ruler"},
                       .help = "what fields the lines have; auto: by each line's fields"},
                      {.name = "wrap",
                       .fallback = "yes",
                       .choices = {"yes", "no"},
                       .help = "kedge lines: put 'Question:' and 'Answer:' around the question"},
                      {.name = "limit", .fallback = "0", .min = 0, .max = 1'000'000'000, .help = "good lines; 0: all"}},
          .make = make};
}

}  // namespace kedge::eval
