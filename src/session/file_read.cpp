// Reading a session file: preamble, header, checksums, sizes; then the parts, checked against each other.
#include <array>
#include <cstring>
#include <limits>

#include "base/crc32.h"
#include "session/file.h"

namespace kedge::session {
namespace {

constexpr std::array<std::string_view, 8> kSections = {
    "tokens", "logits", "observed_positions", "observed_q", "observed_y", "history", "rows", "app_data"};
constexpr int64_t kMostHeaderBytes = int64_t{64} << 20;

using Bytes = std::span<const std::byte>;

std::string number(int64_t n) { return std::to_string(n); }

template <typename T>
T take(Bytes bytes, size_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

template <typename T>
std::vector<T> values(Bytes bytes) {
  std::vector<T> out(bytes.size() / sizeof(T));
  if (!out.empty())
    std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

Error bad(const std::string& what) { return {ErrorCode::failed, what}; }

Error differs(const std::string& where, int64_t found, int64_t allowed) {
  return bad(where + ": found " + number(found) + ", allowed " + number(allowed));
}

struct Preamble {
  uint64_t header_offset = 0;
  uint32_t header_bytes = 0;
  uint32_t header_crc = 0;
};

Result<Preamble> read_preamble(Bytes bytes) {
  if (bytes.size() < kFileMagic.size() || std::memcmp(bytes.data(), kFileMagic.data(), kFileMagic.size()) != 0)
    return bad("found something else than a session file (one begins with " + std::string(kFileMagic) + ")");
  if (bytes.size() < kPreambleBytes)
    return bad("preamble: found " + number(static_cast<int64_t>(bytes.size())) + " bytes, allowed " +
               number(kPreambleBytes) + " or more");
  if (const auto crc = take<uint32_t>(bytes, 36), now = crc32_of(bytes.first(36)); crc != now)
    return differs("preamble: checksum", now, crc);
  if (const auto version = take<uint32_t>(bytes, 8); version != kFileVersion)
    return differs("preamble: version", version, kFileVersion);
  const Preamble preamble{.header_offset = take<uint64_t>(bytes, 16),
                          .header_bytes = take<uint32_t>(bytes, 12),
                          .header_crc = take<uint32_t>(bytes, 32)};
  const auto size = static_cast<uint64_t>(bytes.size());
  if (const auto file_bytes = take<uint64_t>(bytes, 24); file_bytes != size)
    return bad("size: found " + std::to_string(size) + " bytes, allowed " + std::to_string(file_bytes) +
               ", as its preamble says");
  if (preamble.header_bytes > kMostHeaderBytes || preamble.header_offset < kPreambleBytes ||
      preamble.header_offset > size || size - preamble.header_offset != preamble.header_bytes) {
    return bad("header: found " + std::to_string(preamble.header_bytes) + " bytes at " +
               std::to_string(preamble.header_offset) + ", allowed are the last ones of " + std::to_string(size));
  }
  return preamble;
}

// The sections lie one behind the other from the preamble to the header.
Result<std::vector<Bytes>> find_sections(Bytes bytes, const FileHeader& header, uint64_t header_offset) {
  if (header.sections.size() != kSections.size())
    return differs("sections: number", static_cast<int64_t>(header.sections.size()), kSections.size());
  std::vector<Bytes> out;
  uint64_t at = kPreambleBytes;
  for (size_t i = 0; i < kSections.size(); ++i) {
    const FileSection& section = header.sections[i];
    if (section.name != kSections[i])
      return bad("section " + number(static_cast<int64_t>(i)) + ": found '" + section.name.substr(0, 40) +
                 "', allowed '" + std::string(kSections[i]) + "'");
    if (static_cast<uint64_t>(section.bytes) > header_offset - at)
      return bad("section '" + section.name + "': found " + number(section.bytes) + " bytes, allowed at most " +
                 std::to_string(header_offset - at) + ", what is left of the file");
    out.push_back(bytes.subspan(at, static_cast<size_t>(section.bytes)));
    at += static_cast<uint64_t>(section.bytes);
    if (const uint32_t now = crc32_of(out.back()); now != section.crc32)
      return differs("section '" + section.name + "': checksum", now, section.crc32);
  }
  if (at != header_offset)
    return differs("sections: bytes in all", static_cast<int64_t>(at), static_cast<int64_t>(header_offset));
  return out;
}

Status check_sizes(const FileHeader& h, const std::vector<Bytes>& parts) {
  const int64_t slots = int64_t{h.model.n_layers} * h.model.n_heads * h.n_observed;
  const int64_t wanted[] = {h.n_tokens * 4, h.model.n_vocab * int64_t{4}, slots * 4, slots * h.model.head_dim * 4,
                            slots * h.model.head_dim * 4};
  for (size_t i = 0; i < std::size(wanted); ++i) {
    const auto found = static_cast<int64_t>(parts[i].size());
    const bool no_logits = kSections[i] == "logits" && found == 0;
    if (found != wanted[i] && !no_logits)
      return differs("section '" + std::string(kSections[i]) + "': bytes", found, wanted[i]);
  }
  return {};
}

Status check_header(const FileHeader& h) {
  const SessionOptions& o = h.options;
  if (h.evicted_until > h.n_tokens)
    return bad("header field 'evicted_until': found " + number(h.evicted_until) + ", allowed 0.." + number(h.n_tokens));
  if (o.n_ctx > 0 && h.n_tokens > o.n_ctx)
    return bad("header field 'n_tokens': found " + number(h.n_tokens) + ", allowed 0.." + number(o.n_ctx) + " (n_ctx)");
  if (o.budget.kind == Budget::Kind::share && o.budget.value > 1)
    return bad("header field 'options.budget.value': found " + std::to_string(o.budget.value) + ", allowed 0..1");
  if (o.budget.kind != Budget::Kind::unlimited && o.budget.value <= 0)
    return bad("header field 'options.budget.value': found " + std::to_string(o.budget.value) +
               ", allowed more than 0");
  return {};
}

// Where each head's rows are.
Result<std::vector<Bytes>> find_heads(const FileHeader& h, Bytes rows) {
  const auto n_heads = static_cast<size_t>(h.model.n_layers) * static_cast<size_t>(h.model.n_kv_heads);
  const std::string where = "section 'rows'";
  if (rows.size() / 8 < n_heads)
    return bad(where + ": found " + number(static_cast<int64_t>(rows.size())) + " bytes, allowed " +
               number(static_cast<int64_t>(n_heads * 8)) + " or more for " + number(static_cast<int64_t>(n_heads)) +
               " heads");
  std::vector<Bytes> out;
  size_t at = n_heads * 8;
  for (size_t i = 0; i < n_heads; ++i) {
    const auto n = take<uint64_t>(rows, i * 8);
    if (n > rows.size() - at)
      return bad(where + ": head " + number(static_cast<int64_t>(i)) + ": found " + std::to_string(n) +
                 " bytes, allowed at most " + std::to_string(rows.size() - at));
    out.push_back(rows.subspan(at, n));
    at += n;
  }
  if (at != rows.size())
    return differs(where + ": bytes in all", static_cast<int64_t>(at), static_cast<int64_t>(rows.size()));
  return out;
}

Status check_tokens(const std::vector<Token>& tokens, int n_vocab, const std::string& where) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= n_vocab)
      return bad(where + ": token " + number(static_cast<int64_t>(i)) + ": found " + number(tokens[i]) +
                 ", allowed 0.." + number(n_vocab - 1));
  }
  return {};
}

Result<FileView> read(Bytes bytes) {
  const Result<Preamble> preamble = read_preamble(bytes);
  if (!preamble)
    return preamble.error();
  const Bytes text = bytes.subspan(preamble->header_offset, preamble->header_bytes);
  if (const uint32_t now = crc32_of(text); now != preamble->header_crc)
    return differs("header: checksum", now, preamble->header_crc);
  Result<FileHeader> header = header_from_json({reinterpret_cast<const char*>(text.data()), text.size()});
  if (!header)
    return header.error();
  FileView view{.header = *std::move(header), .file_bytes = static_cast<int64_t>(bytes.size())};
  const FileHeader& h = view.header;
  if (Status status = check_header(h); !status)
    return status.error();
  const Result<std::vector<Bytes>> parts = find_sections(bytes, h, preamble->header_offset);
  if (!parts)
    return parts.error();
  if (Status status = check_sizes(h, *parts); !status)
    return status.error();
  view.tokens = values<Token>((*parts)[0]);
  view.logits = values<float>((*parts)[1]);
  view.observed_positions = values<int32_t>((*parts)[2]);
  view.observed_q = values<float>((*parts)[3]);
  view.observed_y = values<float>((*parts)[4]);
  view.history = (*parts)[5];
  view.app_data.assign(reinterpret_cast<const char*>((*parts)[7].data()), (*parts)[7].size());
  if (Status status = check_tokens(view.tokens, h.model.n_vocab, "section 'tokens'"); !status)
    return status.error();
  if (h.sampler) {
    if (Status status = check_tokens(h.sampler->recent, h.model.n_vocab, "header field 'sampler.recent'"); !status)
      return status.error();
  }
  Result<std::vector<Bytes>> heads = find_heads(h, (*parts)[6]);
  if (!heads)
    return heads.error();
  view.heads = *std::move(heads);
  return view;
}

}  // namespace

Result<FileView> read_session_file(std::span<const std::byte> bytes, const std::string& name) {
  Result<FileView> view = read(bytes);
  if (!view)
    return Error{view.error().code, name + ": " + view.error().message};
  view->name = name;
  return view;
}

}  // namespace kedge::session
