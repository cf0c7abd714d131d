#include "eval/text_tokens.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cli/signals.h"

namespace kedge::eval {

struct TextTokens::File {
  gzFile handle = nullptr;
  ~File() {
    if (handle != nullptr)
      ::gzclose(handle);
  }
};

namespace {

// Bytes of `text` that end with a line, or, in a line longer than the piece, with a whole character.
size_t whole_lines(std::string_view text) {
  const size_t newline = text.rfind('\n');
  if (newline != std::string_view::npos)
    return newline + 1;
  size_t end = text.size();
  while (end > 1 && (static_cast<unsigned char>(text[end - 1]) & 0xC0U) == 0x80U)
    --end;
  return end > 1 ? end - 1 : text.size();
}

}  // namespace

TextTokens::~TextTokens() = default;

Result<std::unique_ptr<TextTokens>> TextTokens::open(const std::string& path, const Tokenizer& tokenizer,
                                                     size_t piece_bytes) {
  std::unique_ptr<TextTokens> text(new TextTokens());
  text->file_ = std::make_unique<File>();
  text->file_->handle = ::gzopen(path.c_str(), "rb");
  text->path_ = path;
  text->tokenizer_ = tokenizer;
  if (text->file_->handle == nullptr)
    return Error{.code = ErrorCode::failed, .message = "cannot open '" + path + "': " + std::strerror(errno)};
  ::gzbuffer(text->file_->handle, 1U << 17U);
  std::string buffer;
  int64_t at = 0;
  for (bool ended = false; !ended || !buffer.empty();) {
    if (cli::stop_requested())
      return Error{.code = ErrorCode::cancelled, .message = "interrupted while reading '" + path + "'"};
    const size_t had = buffer.size();
    buffer.resize(piece_bytes);
    const int n = ::gzread(text->file_->handle, buffer.data() + had, static_cast<unsigned>(piece_bytes - had));
    int zlib_error = Z_OK;
    const char* why = ::gzerror(text->file_->handle, &zlib_error);
    if (n < 0 || zlib_error < 0) {
      return Error{.code = ErrorCode::failed,
                   .message = "cannot read '" + path + "': " + (zlib_error == Z_ERRNO ? std::strerror(errno) : why)};
    }
    buffer.resize(had + static_cast<size_t>(n));
    ended = buffer.size() < piece_bytes;
    const size_t taken = ended ? buffer.size() : whole_lines(buffer);
    if (taken == 0)
      break;
    const auto n_tokens = static_cast<int64_t>(tokenizer.tokenize(std::string_view(buffer).substr(0, taken)).size());
    text->pieces_.push_back({at, static_cast<int64_t>(taken), text->n_tokens_, n_tokens});
    text->n_tokens_ += n_tokens;
    at += static_cast<int64_t>(taken);
    buffer.erase(0, taken);
  }
  return text;
}

Result<std::string> TextTokens::read(const Piece& piece) {
  const Error lost{.code = ErrorCode::failed, .message = "'" + path_ + "' changed while it was read"};
  std::string bytes(static_cast<size_t>(piece.n_bytes), '\0');
  if (::gzseek(file_->handle, static_cast<z_off_t>(piece.byte_begin), SEEK_SET) < 0)
    return lost;
  if (::gzread(file_->handle, bytes.data(), static_cast<unsigned>(bytes.size())) != static_cast<int>(bytes.size()))
    return lost;
  return bytes;
}

Result<std::vector<Token>> TextTokens::slice(int64_t begin, int64_t n) {
  std::vector<Token> out;
  const auto after = [](int64_t token, const Piece& piece) { return token < piece.token_begin; };
  auto piece = std::upper_bound(pieces_.begin(), pieces_.end(), begin, after);
  for (piece = piece == pieces_.begin() ? piece : std::prev(piece);
       piece != pieces_.end() && static_cast<int64_t>(out.size()) < n; ++piece) {
    const auto index = static_cast<size_t>(piece - pieces_.begin());
    if (held_ != index) {
      Result<std::string> bytes = read(*piece);
      if (!bytes)
        return bytes.error();
      held_tokens_ = tokenizer_.tokenize(*bytes);
      held_ = index;
      if (static_cast<int64_t>(held_tokens_.size()) != piece->n_tokens)
        return Error{.code = ErrorCode::failed, .message = "'" + path_ + "' changed while it was read"};
    }
    const int64_t from = std::max<int64_t>(0, begin - piece->token_begin);
    const int64_t to = std::min<int64_t>(piece->n_tokens, begin + n - piece->token_begin);
    if (from < to)
      out.insert(out.end(), held_tokens_.begin() + from, held_tokens_.begin() + to);
  }
  return out;
}

}  // namespace kedge::eval
