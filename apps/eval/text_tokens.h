// The tokens of a text of any length, a window at a time: the text is tokenized in pieces that end at a line's end, and
// only the pieces a window touches are held. Texts up to kPieceBytes are one piece: the same tokens as tokenized whole.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "eval/task.h"
#include "kedge/error.h"

namespace kedge::eval {

class TextTokens {
 public:
  static constexpr size_t kPieceBytes = size_t{4} << 20;

  // One pass over the file (plain or gzip) counts its tokens. Errors failed name the file; cancelled.
  static Result<std::unique_ptr<TextTokens>> open(const std::string& path, const Tokenizer& tokenizer,
                                                  size_t piece_bytes = kPieceBytes);
  ~TextTokens();

  int64_t n_tokens() const { return n_tokens_; }
  // Tokens [begin, begin + n), which must lie inside. Error failed: the file changed or cannot be read any more.
  Result<std::vector<Token>> slice(int64_t begin, int64_t n);

 private:
  struct Piece {
    int64_t byte_begin = 0;
    int64_t n_bytes = 0;
    int64_t token_begin = 0;
    int64_t n_tokens = 0;
  };
  TextTokens() = default;
  Result<std::string> read(const Piece& piece);

  struct File;
  std::unique_ptr<File> file_;
  Tokenizer tokenizer_;
  std::string path_;
  std::vector<Piece> pieces_;
  int64_t n_tokens_ = 0;
  size_t held_ = SIZE_MAX;  // the piece whose tokens are in held_tokens_
  std::vector<Token> held_tokens_;
};

}  // namespace kedge::eval
