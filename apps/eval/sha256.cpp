#include "eval/sha256.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "base/check.h"
#include "cli/signals.h"

namespace kedge::eval {
namespace {

class Digest {
 public:
  Digest() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    check(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1, "SHA-256 is there");
  }
  void add(const void* bytes, size_t n) { check(EVP_DigestUpdate(context_.get(), bytes, n) == 1, "SHA-256 goes on"); }
  std::string hex() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> out{};
    unsigned n = 0;
    check(EVP_DigestFinal_ex(context_.get(), out.data(), &n) == 1, "SHA-256 ends");
    constexpr std::string_view kDigits = "0123456789abcdef";
    std::string text;
    for (unsigned i = 0; i < n; ++i) {
      text += kDigits[out[i] >> 4U];
      text += kDigits[out[i] & 15U];
    }
    return text;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

}  // namespace

std::string sha256_of(std::string_view bytes) {
  Digest digest;
  digest.add(bytes.data(), bytes.size());
  return digest.hex();
}

Result<std::string> sha256_of_file(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  Digest digest;
  std::vector<char> buffer(size_t{1} << 20);
  ssize_t n = file < 0 ? -1 : 1;
  while (n > 0) {
    if (cli::stop_requested()) {
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
  return digest.hex();
}

}  // namespace kedge::eval
