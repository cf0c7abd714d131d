#include "base/sha256.h"

#include <openssl/evp.h>

#include "base/check.h"

namespace kedge {

struct Sha256::Impl {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
};

Sha256::Sha256() : impl_(std::make_unique<Impl>()) {
  check(EVP_DigestInit_ex(impl_->context, EVP_sha256(), nullptr) == 1, "SHA-256 is there");
}

Sha256::~Sha256() { EVP_MD_CTX_free(impl_->context); }

void Sha256::add(const void* bytes, size_t n) {
  check(EVP_DigestUpdate(impl_->context, bytes, n) == 1, "SHA-256 goes on");
}

Sha256::Bytes Sha256::end() {
  Bytes out{};
  check(EVP_DigestFinal_ex(impl_->context, out.data(), nullptr) == 1, "SHA-256 ends");
  return out;
}

std::string Sha256::hex(const Bytes& hash) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : hash) {
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 15U];
  }
  return text;
}

std::string sha256_hex(std::span<const std::byte> bytes) {
  return sha256_hex(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

std::string sha256_hex(std::string_view bytes) {
  Sha256 digest;
  digest.add(bytes.data(), bytes.size());
  return Sha256::hex(digest.end());
}

}  // namespace kedge
