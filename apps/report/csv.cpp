#include "csv.h"

namespace kedge::report {
namespace {

class Parser {
 public:
  Parser(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  Result<std::vector<CsvRow>> rows() {
    if (text_.find('\0') != std::string_view::npos)
      return wrong("a zero byte: this is no text file");
    std::vector<CsvRow> rows;
    while (at_ < text_.size()) {
      if (skip_line_end())
        continue;
      CsvRow row{.line = line_, .fields = {}};
      if (Status status = read_row(row); !status)
        return status.error();
      if (!rows.empty() && row.fields.size() != rows.front().fields.size()) {
        line_ = row.line;
        return wrong(std::to_string(row.fields.size()) + " fields, the header has " +
                     std::to_string(rows.front().fields.size()));
      }
      rows.push_back(std::move(row));
    }
    return rows;
  }

 private:
  Error wrong(const std::string& what) const {
    return {.code = ErrorCode::failed, .message = file_ + ":" + std::to_string(line_) + ": " + what};
  }

  bool at_line_end() const { return at_ == text_.size() || text_[at_] == '\n' || text_.substr(at_, 2) == "\r\n"; }

  bool skip_line_end() {
    if (!at_line_end() || at_ == text_.size())
      return false;
    at_ += text_[at_] == '\n' ? 1 : 2;
    ++line_;
    return true;
  }

  Status read_row(CsvRow& row) {
    while (true) {
      std::string field;
      const bool quoted = at_ < text_.size() && text_[at_] == '"';
      if (Status status = quoted ? read_quoted(field) : read_bare(field); !status)
        return status;
      row.fields.push_back(std::move(field));
      if (at_ < text_.size() && text_[at_] == ',') {
        ++at_;
      } else {
        skip_line_end();
        return {};
      }
    }
  }

  Status read_bare(std::string& field) {
    const size_t begin = at_;
    while (!at_line_end() && text_[at_] != ',') {
      if (text_[at_] == '"')
        return wrong("a quote inside a field that does not begin with one");
      ++at_;
    }
    field = text_.substr(begin, at_ - begin);
    return {};
  }

  Status read_quoted(std::string& field) {
    const int64_t begin = line_;
    for (++at_; at_ < text_.size(); ++at_) {
      if (text_[at_] == '"') {
        ++at_;
        if (at_ == text_.size() || text_[at_] != '"') {
          if (at_line_end() || text_[at_] == ',')
            return {};
          return wrong("text after a closing quote");
        }
      } else if (text_[at_] == '\n') {
        ++line_;
      }
      field += text_[at_];
    }
    line_ = begin;
    return wrong("a quote that is never closed");
  }

  std::string_view text_;
  const std::string& file_;
  size_t at_ = 0;
  int64_t line_ = 1;
};

}  // namespace

Result<std::vector<CsvRow>> parse_csv(std::string_view text, const std::string& file) {
  return Parser(text, file).rows();
}

}  // namespace kedge::report
