#include "text_input.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <vector>

#include "signals.h"

namespace kedge::cli {
namespace {

// Raw read() and not iostreams: a signal must end a wait for standard input.
Result<std::string> read_all(int fd, const std::string& name) {
  std::string bytes;
  std::vector<char> buffer(1 << 16);
  for (;;) {
    if (stop_requested())
      return Error{.code = ErrorCode::cancelled, .message = "interrupted while reading " + name};
    const ssize_t n = ::read(fd, buffer.data(), buffer.size());
    if (n == 0)
      return bytes;
    if (n > 0) {
      bytes.append(buffer.data(), static_cast<size_t>(n));
    } else if (errno != EINTR) {
      return Error{.code = ErrorCode::failed, .message = "cannot read " + name + ": " + std::strerror(errno)};
    }
  }
}

}  // namespace

bool is_gzip(std::string_view bytes) { return bytes.size() >= 2 && bytes[0] == '\x1f' && bytes[1] == '\x8b'; }

Result<std::string> gunzip(std::string_view bytes, const std::string& name) {
  const auto damaged = [&name](const char* why) {
    return Error{.code = ErrorCode::failed, .message = name + " is damaged gzip data: " + why};
  };
  z_stream stream{};
  if (inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK)
    return damaged("zlib cannot start");
  std::string text;
  std::vector<char> buffer(1 << 16);
  size_t fed = 0;
  int state = Z_OK;
  while (state != Z_STREAM_END || stream.avail_in > 0 || fed < bytes.size()) {
    if (stream.avail_in == 0) {
      const size_t chunk = std::min<size_t>(bytes.size() - fed, std::numeric_limits<uInt>::max());
      // zlib's interface predates const; it only reads next_in.
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data() + fed));
      stream.avail_in = static_cast<uInt>(chunk);
      fed += chunk;
    }
    // Files joined by cat are gzip files too: the next member begins where the last one ended.
    if (state == Z_STREAM_END)
      inflateReset(&stream);
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_out = static_cast<uInt>(buffer.size());
    state = inflate(&stream, Z_NO_FLUSH);
    const size_t produced = buffer.size() - stream.avail_out;
    text.append(buffer.data(), produced);
    const bool starved = stream.avail_in == 0 && fed == bytes.size() && produced == 0;
    if ((state != Z_OK && state != Z_STREAM_END) || (state == Z_OK && starved)) {
      inflateEnd(&stream);
      return damaged(state == Z_OK || state == Z_BUF_ERROR ? "it ends too early" : "a block does not decode");
    }
  }
  inflateEnd(&stream);
  return text;
}

Result<std::string> read_text(const std::string& path) {
  const bool standard_input = path == "-";
  const std::string name = standard_input ? "standard input" : "'" + path + "'";
  const int fd = standard_input ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return Error{.code = ErrorCode::failed, .message = "cannot open " + name + ": " + std::strerror(errno)};
  Result<std::string> bytes = read_all(fd, name);
  if (!standard_input)
    ::close(fd);
  if (!bytes || !is_gzip(*bytes))
    return bytes;
  return gunzip(*bytes, name);
}

}  // namespace kedge::cli
