// Pieces of tokens in, whole UTF-8 characters out.
#pragma once

#include <string>
#include <string_view>

namespace kedge::cli {

// A token may end inside a character. Holds at most three bytes back; bytes that belong to no character become U+FFFD.
class Utf8Buffer {
 public:
  // The whole characters there are now.
  std::string push(std::string_view bytes);
  // What is left at the end: nothing, or one U+FFFD for an unfinished character.
  std::string flush();

 private:
  std::string held_;
};

}  // namespace kedge::cli
