#include "session/protection/line_scan.h"

#include <algorithm>

#include "session/protection/utf8.h"

namespace kedge::session {
namespace {

constexpr int kLongestLabel = 32;     // bytes of a speaker's name
constexpr int32_t kLeastColumns = 2;  // delimiters of a line of a table

}  // namespace

void LineScan::add(int32_t first, int32_t last) {
  for (int32_t token = first; token <= last; ++token) {
    if (tokens_.empty() || tokens_.back() != token)
      tokens_.push_back(token);
  }
}

void LineScan::read(std::string_view bytes, int32_t token) {
  if (wanted_.indentation) {
    const bool blank = !bytes.empty() && std::ranges::all_of(bytes, is_blank);
    const size_t newline = bytes.rfind('\n');
    const bool indents = newline == std::string_view::npos ? at_start_ : newline + 1 < bytes.size();
    if (blank && indents)
      add(token, token);
  }
  for (const char c : bytes) {
    if (line_.is_empty)
      line_.first = token;
    line_.is_empty = false;
    line_.last = token;
    if (wanted_.speaker_labels)
      read_label(c, token);
    at_start_ = c == '\n' || (at_start_ && is_blank(c));
    for (size_t i = 0; i < std::min(wanted_.table_columns.size(), line_.columns.size()); ++i)
      line_.columns[i] += c == wanted_.table_columns[i] ? 1 : 0;
    if (c == '\n')
      end_line();
  }
}

// "Name:" and white space: a capital first, then letters, digits, spaces, dots, dashes or apostrophes.
void LineScan::read_label(char c, int32_t token) {
  if (label_colon_) {
    if (is_blank(c))
      add(label_begin_, label_end_);
    label_colon_ = false;
    n_label_ = -1;
  }
  if (c == '\n') {
    n_label_ = 0;
  } else if (n_label_ == 0) {
    if (is_blank(c))
      return;
    label_begin_ = token;
    n_label_ = (c >= 'A' && c <= 'Z') || (starts_word_character(c) && (c & 0x80) != 0) ? 1 : -1;
  } else if (n_label_ > 0) {
    const bool goes_on =
        starts_word_character(c) || is_continuation(c) || c == ' ' || c == '.' || c == '-' || c == '\'';
    label_colon_ = c == ':';
    label_end_ = token;
    n_label_ = goes_on && n_label_ < kLongestLabel ? n_label_ + 1 : -1;
  }
}

void LineScan::end_line() {
  if (table_ != std::string::npos && line_.columns[table_] != before_.columns[table_])
    table_ = std::string::npos;
  for (size_t i = 0; table_ == std::string::npos && i < wanted_.table_columns.size() && i < line_.columns.size(); ++i) {
    if (line_.columns[i] < kLeastColumns || line_.columns[i] != before_.columns[i])
      continue;
    table_ = i;
    add(before_.first, before_.last);
  }
  before_ = line_;
  line_ = {};
}

}  // namespace kedge::session
