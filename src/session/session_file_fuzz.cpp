// libFuzzer: any bytes either read as a session file whose parts lie inside them and agree, or give an error of one
// line. What has the right start gets checksums that are right, or nothing would get past them.
#include <zlib.h>

#include <cstdlib>
#include <cstring>

#include "session/file.h"

namespace {

namespace session = kedge::session;

void require(bool condition) {
  if (!condition)
    std::abort();
}

uint32_t crc_of(const uint8_t* data, size_t n) { return static_cast<uint32_t>(crc32_z(0, data, n)); }

template <typename T>
void put(std::vector<uint8_t>& bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

// The last bytes are the header; its size is taken from the input.
std::vector<uint8_t> with_checksums(const uint8_t* data, size_t size) {
  std::vector<uint8_t> bytes(data, data + size);
  if (size < session::kPreambleBytes + 2)
    return bytes;
  const size_t header = (size_t{data[size - 1]} << 4U | data[size - 2] >> 4U) % (size - session::kPreambleBytes);
  std::memcpy(bytes.data(), session::kFileMagic.data(), session::kFileMagic.size());
  put(bytes, 8, session::kFileVersion);
  put(bytes, 12, static_cast<uint32_t>(header));
  put(bytes, 16, static_cast<uint64_t>(size - header));
  put(bytes, 24, static_cast<uint64_t>(size));
  put(bytes, 32, crc_of(bytes.data() + size - header, header));
  put(bytes, 36, crc_of(bytes.data(), 36));
  return bytes;
}

void try_bytes(std::span<const uint8_t> input) {
  const std::span<const std::byte> bytes{reinterpret_cast<const std::byte*>(input.data()), input.size()};
  const auto file = session::read_session_file(bytes, "fuzz");
  if (!file.ok()) {
    const std::string& message = file.error().message;
    require(message.starts_with("fuzz: ") && message.find('\n') == std::string::npos);
    return;
  }
  require(file->tokens.size() == static_cast<size_t>(file->header.n_tokens));
  unsigned sum = 0;
  for (const auto head : file->heads) {
    require(head.empty() || (head.data() >= bytes.data() && head.data() + head.size() <= bytes.data() + bytes.size()));
    for (const std::byte byte : head)
      sum += static_cast<unsigned>(byte);
  }
  require(sum != 0xFFFFFFFF);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try_bytes({data, size});
  const std::vector<uint8_t> repaired = with_checksums(data, size);
  try_bytes(repaired);
  // The header alone: most of what can be wrong is in there.
  const auto header = session::header_from_json({reinterpret_cast<const char*>(data), size});
  if (header.ok())
    require(session::header_from_json(session::header_to_json(*header)).ok());
  return 0;
}
