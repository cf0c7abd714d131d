#include "eval/line_formats.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/nearest.h"
#include "eval/metrics.h"
#include "eval/metrics/words.h"

namespace kedge::eval {
namespace {

using Json = nlohmann::json;

Error bad(std::string message) { return {.code = ErrorCode::failed, .message = std::move(message)}; }

Error bad_field(const std::string& field, const std::string& what) { return bad("field '" + field + "': " + what); }

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 40)
    text = text.substr(0, 40) + "...";
  return text;
}

// Byte at which the text stops being UTF-8; npos: it never does.
size_t first_invalid(std::string_view text) {
  size_t at = 0;
  for (const char32_t c : code_points(text)) {
    if (c >= kInvalidByte)
      return at;
    at += c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
  }
  return std::string_view::npos;
}

// Deepest nesting of brackets outside of strings. A parser that builds values must not be asked this first.
int depth_of(std::string_view text) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      i += c == '\\' ? 1 : 0;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return deepest;
}

Result<Json> parse_object(std::string_view line) {
  if (line.size() > kMaxLineBytes) {
    return bad("the line has " + std::to_string(line.size()) + " bytes, at most " + std::to_string(kMaxLineBytes) +
               " are read");
  }
  if (const size_t at = first_invalid(line); at != std::string_view::npos)
    return bad("invalid UTF-8 at byte " + std::to_string(at + 1));
  if (const int depth = depth_of(line); depth > kMaxDepth)
    return bad("nested " + std::to_string(depth) + " deep, at most " + std::to_string(kMaxDepth) + " are allowed");
  try {
    Json object = Json::parse(line);
    if (!object.is_object())
      return bad("not a JSON object but " + shown(object));
    return object;
  } catch (const Json::parse_error& error) {
    return bad("not JSON: wrong at byte " + std::to_string(error.byte) + " of " + std::to_string(line.size()));
  }
}

Result<std::string> text_field(const Json& object, const std::string& name, bool may_be_empty) {
  const auto field = object.find(name);
  if (field == object.end())
    return bad_field(name, "is missing");
  if (!field->is_string())
    return bad_field(name, "must be a text, not " + shown(*field));
  std::string text = field->get<std::string>();
  if (text.empty() && !may_be_empty)
    return bad_field(name, "is empty");
  return text;
}

// A list of texts, or one text. None and empty ones are errors: nothing could be scored against them.
Result<std::vector<std::string>> answers_field(const Json& object, const std::string& name) {
  const auto field = object.find(name);
  if (field == object.end())
    return bad_field(name, "is missing");
  const Json list = field->is_string() ? Json::array({*field}) : *field;
  if (!list.is_array())
    return bad_field(name, "must be a list of texts, not " + shown(*field));
  std::vector<std::string> answers;
  for (const Json& answer : list) {
    if (!answer.is_string())
      return bad_field(name, "must hold texts only, not " + shown(answer));
    answers.push_back(answer.get<std::string>());
    if (trimmed(answers.back()).empty())
      return bad_field(name, "holds an empty answer");
  }
  if (answers.empty())
    return bad_field(name, "is empty");
  return answers;
}

Status optional_fields(const Json& object, Question& question) {
  if (const auto metric = object.find("metric"); metric != object.end()) {
    if (!metric->is_string())
      return bad_field("metric", "must be a text, not " + shown(*metric));
    question.metric = metric->get<std::string>();
    std::vector<std::string> names;
    for (const MetricInfo& info : metrics())
      names.emplace_back(info.name);
    if (find_metric(question.metric) == nullptr) {
      return bad_field("metric", "there is no " + shown(*metric) + ": did you mean '" +
                                     cli::nearest(question.metric.substr(0, 64), names) + "'?");
    }
  }
  if (const auto tokens = object.find("max_tokens"); tokens != object.end()) {
    const bool whole = tokens->is_number_integer();
    if (!whole || *tokens < 1 || *tokens > 4096)
      return bad_field("max_tokens", "must be a whole number from 1 to 4096, not " + shown(*tokens));
    question.max_tokens = tokens->get<int>();
    question.stop_at_newline = question.max_tokens <= 64;
  }
  return {};
}

Result<LineSample> parse_kedge(const Json& object, bool wrap) {
  Result<std::string> context = text_field(object, "context", false);
  if (!context)
    return context.error();
  Result<std::string> asked = text_field(object, "question", false);
  if (!asked)
    return asked.error();
  Result<std::vector<std::string>> answers = answers_field(object, "answers");
  if (!answers)
    return answers.error();
  Question question{.text = wrap ? "\n\nQuestion: " + *asked + "\nAnswer:" : *asked, .answers = *std::move(answers)};
  if (Status status = optional_fields(object, question); !status)
    return status.error();
  return LineSample{.context = *std::move(context), .question = std::move(question)};
}

// How LongBench scores its data sets and how much it lets them answer (its config), with our metrics: where it scores
// classes, retrieval and counts, ours asks whether the answer is contained.
struct DataSet {
  std::string_view name;
  std::string_view metric;
  int max_tokens;
};
constexpr DataSet kDataSets[] = {{"narrativeqa", "f1", 128},
                                 {"qasper", "f1", 128},
                                 {"multifieldqa_en", "f1", 64},
                                 {"multifieldqa_zh", "f1", 64},
                                 {"hotpotqa", "f1", 32},
                                 {"2wikimqa", "f1", 32},
                                 {"musique", "f1", 32},
                                 {"triviaqa", "f1", 32},
                                 {"dureader", "rouge_l", 128},
                                 {"gov_report", "rouge_l", 512},
                                 {"qmsum", "rouge_l", 512},
                                 {"multi_news", "rouge_l", 512},
                                 {"vcsum", "rouge_l", 512},
                                 {"samsum", "rouge_l", 128},
                                 {"trec", "contains", 64},
                                 {"lsht", "contains", 64},
                                 {"passage_count", "exact", 32},
                                 {"passage_retrieval_en", "contains", 32},
                                 {"lcc", "edit", 64},
                                 {"passage_retrieval_zh", "contains", 32},
                                 {"repobench-p", "edit", 64}};

Result<LineSample> parse_longbench(const Json& object) {
  Result<std::string> context = text_field(object, "context", false);
  if (!context)
    return context.error();
  Result<std::string> input = text_field(object, "input", true);
  if (!input)
    return input.error();
  Result<std::vector<std::string>> answers = answers_field(object, "answers");
  if (!answers)
    return answers.error();
  Result<std::string> dataset = text_field(object, "dataset", false);
  if (!dataset)
    return dataset.error();
  std::string_view name = *dataset;
  if (name.ends_with("_e"))  // LongBench-E: the same sets, even in length
    name.remove_suffix(2);
  const DataSet* set = std::ranges::find(kDataSets, name, &DataSet::name);
  if (set == std::end(kDataSets))
    return bad_field("dataset", "'" + dataset->substr(0, 64) + "' is none of LongBench's");
  Question question{.answers = *std::move(answers),
                    .metric = std::string(set->metric),
                    .max_tokens = set->max_tokens,
                    .stop_at_newline = set->max_tokens <= 64};
  if (set->metric == "edit")
    question.text = input->empty() ? "\n" : *input;
  else if (input->empty())
    question.text = "\n\nSummary:";
  else
    question.text = "\n\n" + *input + "\nAnswer:";
  return LineSample{.context = *std::move(context), .question = std::move(question)};
}

// RULER's lines hold context and question in one text: the question begins at the last of its templates' beginnings.
size_t question_begins(std::string_view input) {
  size_t last = std::string_view::npos;
  for (const std::string_view mark :
       {"\nQuestion:", "\nWhat are all the special magic ", "\nWhat is the special magic "}) {
    const size_t at = input.rfind(mark);
    if (at != std::string_view::npos && (last == std::string_view::npos || at > last))
      last = at;
  }
  return last == std::string_view::npos ? input.find_last_of('\n', input.find_last_not_of(" \n")) : last;
}

Result<LineSample> parse_ruler(const Json& object) {
  Result<std::string> input = text_field(object, "input", false);
  if (!input)
    return input.error();
  Result<std::vector<std::string>> answers = answers_field(object, "outputs");
  if (!answers)
    return answers.error();
  std::string prefix;
  if (object.contains("answer_prefix")) {
    Result<std::string> given = text_field(object, "answer_prefix", true);
    if (!given)
      return given.error();
    prefix = *std::move(given);
  }
  const size_t at = question_begins(*input);
  if (at == std::string::npos || at == 0)
    return bad_field("input", "has no line of its own for the question");
  // Question answering counts any of the answers, all other tasks their share.
  const bool any = input->find("Answer the question based on the given documents") != std::string::npos;
  Question question{.text = input->substr(at) + prefix,
                    .answers = *std::move(answers),
                    .metric = any ? "contains" : "contains_all",
                    .max_tokens = any ? 32 : 128,
                    .stop_at_newline = any};
  return LineSample{.context = input->substr(0, at), .question = std::move(question)};
}

}  // namespace

LineFormat line_format(std::string_view name) {
  if (name == "kedge")
    return LineFormat::kedge;
  if (name == "longbench")
    return LineFormat::longbench;
  return name == "ruler" ? LineFormat::ruler : LineFormat::automatic;
}

Result<LineSample> parse_line(std::string_view line, const LineOptions& options) {
  const Result<Json> object = parse_object(line);
  if (!object)
    return object.error();
  LineFormat format = options.format;
  if (format == LineFormat::automatic) {
    if (object->contains("outputs"))
      format = LineFormat::ruler;
    else if (object->contains("input"))
      format = LineFormat::longbench;
    else
      format = LineFormat::kedge;
  }
  if (format == LineFormat::ruler)
    return parse_ruler(*object);
  return format == LineFormat::longbench ? parse_longbench(*object) : parse_kedge(*object, options.wrap);
}

}  // namespace kedge::eval
