#include "sha256.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace kedge::report {
namespace {

using Block = std::array<uint32_t, 64>;

// The constants are the first 32 bits of the fractional parts of square and cube roots of the first primes; computed,
// because a table of 72 numbers is harder to check. long double holds 32 fractional bits of roots below 8 exactly.
template <size_t N>
std::array<uint32_t, N> root_bits(long double (*root)(long double)) {
  std::array<uint32_t, N> out{};
  size_t found = 0;
  for (int n = 2; found < N; ++n) {
    bool prime = true;
    for (int d = 2; d * d <= n; ++d)
      prime = prime && n % d != 0;
    if (!prime)
      continue;
    const long double value = root(n);
    out[found++] = static_cast<uint32_t>((value - std::floor(value)) * 4294967296.0L);
  }
  return out;
}

void add_block(const unsigned char* bytes, std::array<uint32_t, 8>& state, const Block& constants) {
  Block w{};
  for (size_t i = 0; i < 16; ++i) {
    w[i] = static_cast<uint32_t>(bytes[4 * i]) << 24 | static_cast<uint32_t>(bytes[4 * i + 1]) << 16 |
           static_cast<uint32_t>(bytes[4 * i + 2]) << 8 | bytes[4 * i + 3];
  }
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + constants[i] + w[i];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const std::array<uint32_t, 8> added = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i)
    state[i] += added[i];
}

std::string base64(const std::string& bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k)
      group = group << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k)
      out += i + k <= bytes.size() ? kDigits[group >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

}  // namespace

std::string sha256_base64(std::string_view text) {
  static const Block constants = root_bits<64>([](long double x) { return std::cbrt(x); });
  std::array<uint32_t, 8> state = root_bits<8>([](long double x) { return std::sqrt(x); });
  std::string padded(text);
  padded += '\x80';
  padded.append((119 - text.size() % 64) % 64, '\0');
  for (int shift = 56; shift >= 0; shift -= 8)
    padded += static_cast<char>(uint64_t{text.size()} * 8 >> shift & 255);
  for (size_t at = 0; at < padded.size(); at += 64)
    add_block(reinterpret_cast<const unsigned char*>(padded.data()) + at, state, constants);
  std::string digest;
  for (const uint32_t word : state) {
    for (int shift = 24; shift >= 0; shift -= 8)
      digest += static_cast<char>(word >> shift & 255);
  }
  return base64(digest);
}

}  // namespace kedge::report
