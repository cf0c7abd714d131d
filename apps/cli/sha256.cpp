#include "sha256.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "signals.h"

namespace kedge::cli {

std::string sha256_base64(std::string_view bytes) {
  Sha256 digest;
  digest.add(bytes.data(), bytes.size());
  const Sha256::Bytes hash = digest.end();
  std::array<unsigned char, 45> out{};  // 44 characters and a zero
  const int n = EVP_EncodeBlock(out.data(), hash.data(), static_cast<int>(hash.size()));
  return {out.begin(), out.begin() + n};
}

Result<std::string> sha256_of_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  Sha256 digest;
  std::vector<char> buffer(size_t{1} << 20);
  ssize_t n = file < 0 ? -1 : 1;
  while (n > 0) {
    if (stop_requested()) {
      ::close(file);
      return Error{.code = ErrorCode::cancelled, .message = "interrupted while reading '" + path + "'"};
    }
    n = ::read(file, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR)
      n = 1;
    else if (n > 0)
      digest.add(buffer.data(), static_cast<size_t>(n));
  }
  const int reason = errno;
  if (file >= 0)
    ::close(file);
  if (n < 0)
    return Error{.code = ErrorCode::failed, .message = "cannot read '" + path + "': " + std::strerror(reason)};
  return Sha256::hex(digest.end());
}

}  // namespace kedge::cli
