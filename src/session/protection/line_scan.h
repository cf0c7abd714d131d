// What lines tell: indentation, speakers' labels, header rows of tables.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kedge::session {

class LineScan {
 public:
  struct Wanted {
    bool indentation = false;
    bool speaker_labels = false;
    std::string table_columns = {};
  };
  explicit LineScan(Wanted wanted) : wanted_(std::move(wanted)) {}

  void read(std::string_view bytes, int32_t token);

  // Tokens found, in the order in which they were recognised; none twice in a row.
  const std::vector<int32_t>& tokens() const { return tokens_; }

 private:
  struct Line {
    int32_t first = 0;  // tokens
    int32_t last = 0;
    bool is_empty = true;
    std::array<int32_t, 8> columns{};  // how many of each delimiter
  };
  void add(int32_t first, int32_t last);
  void read_label(char c, int32_t token);
  void end_line();

  Wanted wanted_;
  std::vector<int32_t> tokens_;
  bool at_start_ = true;     // nothing but white space in this line so far
  int32_t label_begin_ = 0;  // tokens of what may be a label
  int32_t label_end_ = 0;
  int n_label_ = 0;  // bytes of what may be a label; -1: it is none
  bool label_colon_ = false;
  Line line_;
  Line before_;
  size_t table_ = std::string::npos;  // the delimiter of the table that the lines are in
};

}  // namespace kedge::session
