#include "sha256.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "base/check.h"
#include "signals.h"

namespace kedge::cli {
namespace {

using Bytes = std::array<unsigned char, 32>;

std::string hex(const Bytes& bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) {
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 15U];
  }
  return text;
}

class Digest {
 public:
  Digest() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    check(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1, "SHA-256 is there");
  }
  void add(const void* bytes, size_t n) { check(EVP_DigestUpdate(context_.get(), bytes, n) == 1, "SHA-256 goes on"); }
  Bytes end() {
    Bytes out{};
    check(EVP_DigestFinal_ex(context_.get(), out.data(), nullptr) == 1, "SHA-256 ends");
    return out;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

}  // namespace

std::string sha256_hex(std::string_view bytes) {
  Digest digest;
  digest.add(bytes.data(), bytes.size());
  return hex(digest.end());
}

std::string sha256_base64(std::string_view bytes) {
  Digest digest;
  digest.add(bytes.data(), bytes.size());
  const Bytes hash = digest.end();
  std::array<unsigned char, 45> out{};  // 44 characters and a zero
  const int n = EVP_EncodeBlock(out.data(), hash.data(), static_cast<int>(hash.size()));
  return {out.begin(), out.begin() + n};
}

Result<std::string> sha256_of_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  Digest digest;
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
  return hex(digest.end());
}

}  // namespace kedge::cli
