// Which tokens hold brackets, and which of them are still open.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace kedge::session {

class BracketScan {
 public:
  explicit BracketScan(std::vector<std::pair<char, char>> pairs) : pairs_(std::move(pairs)) {}

  void read(std::string_view bytes, int32_t token);

  const std::vector<int32_t>& tokens() const { return tokens_; }  // that hold any bracket, ascending
  std::vector<int32_t> open() const;                              // that hold one without its partner, ascending

 private:
  struct Open {
    char closer = 0;
    int32_t token = 0;
  };
  void close(char closer);

  std::vector<std::pair<char, char>> pairs_;
  std::vector<int32_t> tokens_;
  std::vector<Open> stack_;
};

}  // namespace kedge::session
