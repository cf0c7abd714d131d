// The session file: everything that what follows depends on. Reading needs no model and no store.
//
//   preamble   "KEDGESES" | version u32 | header_bytes u32 | header_offset u64 | file_bytes u64 | header_crc u32
//              | preamble_crc u32                                                                    40 bytes
//   sections   tokens i32 [n_tokens] | logits f32 [n_vocab or 0] | observed positions i32, q f32, y f32
//   (attention/taps.h)
//              | history (history_bytes.h) | rows: bytes of each head u64 [n_layers * n_kv_heads], then the heads
//              (kv/raw_rows.cpp) | app_data
//   header     JSON: model, options, policy, counters, sampler, name, size and CRC-32 of every section, in their order
//
// Little-endian, without gaps: every byte of a file is under a checksum. CRC-32 because damage is what has to be found,
// not malice: a file made to deceive can say nothing that is not checked again where it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kedge/error.h"
#include "kedge/session.h"
#include "model/tokenizer.h"

namespace kedge::session {

inline constexpr std::string_view kFileMagic = "KEDGESES";
inline constexpr uint32_t kFileVersion = 3;
inline constexpr size_t kPreambleBytes = 40;

// Which model a session belongs to.
struct ModelIdentity {
  std::string name;
  std::string architecture;
  int n_layers = 0;
  int n_heads = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  int n_vocab = 0;
  // SHA-256 of the GGUF file's metadata and tensor table, its size, and 64 samples of 64 KiB, evenly spread, of the
  // tensor data: another file, another quantisation and other weights are told apart, a single changed weight is not.
  std::string sha256;
  // Of the LoRA adapter's file, and its scale; empty: none was used.
  std::string lora_sha256 = {};
  float lora_scale = 0;
};

struct FileSection {
  std::string name;
  int64_t bytes = 0;
  uint32_t crc32 = 0;
};

struct FileHeader {
  ModelIdentity model;
  SessionOptions options;
  std::string policy;       // resolved
  std::string kernels;      // the attention kernels it was computed with: others round differently
  std::string gate_sha256;  // of the gate that said what is noted of the rows; empty: none was asked
  int64_t n_tokens = 0;
  int64_t evicted_rows = 0;
  int64_t evicted_until = 0;
  int64_t last_blocks = 0;  // what the last eviction had to leave (EvictionTarget)
  int64_t last_growth = 0;
  int64_t last_rows_exact = 0;
  int64_t n_observed = 0;  // query rows of each head that the observed sections have room for
  Stats stats;             // at the time of saving
  std::optional<model::SamplerState> sampler;
  std::vector<FileSection> sections;
};

// What is written: the header's numbers and the parts, in the order of the file. Views, valid while their owner is.
struct FileParts {
  FileHeader header;  // sections are filled in by write_file()
  std::span<const Token> tokens;
  std::span<const float> logits;
  std::span<const int32_t> observed_positions;
  std::span<const float> observed_q;
  std::span<const float> observed_y;
  std::span<const std::byte> history;
  int n_heads = 0;  // layers x kv heads
  // Appends the rows of head `index` to `out`.
  std::function<void(int index, std::vector<std::byte>& out)> export_head;
  std::string_view app_data;
};

// What the owner of a timeline adds.
struct SessionFileExtras {
  model::SamplerState sampler;
  std::string_view app_data;
};

// Beside `path`, then renamed over it. Error failed; nothing is left behind then.
Status write_session_file(const FileParts& parts, const std::string& path);

// What was read. Spans point into the bytes.
struct FileView {
  std::string name;  // of the file, for errors
  FileHeader header;
  int64_t file_bytes = 0;
  std::vector<Token> tokens;
  std::vector<float> logits;
  std::vector<int32_t> observed_positions;
  std::vector<float> observed_q;
  std::vector<float> observed_y;
  std::span<const std::byte> history;             // history_bytes.h
  std::vector<std::span<const std::byte>> heads;  // [n_layers * n_kv_heads]
  std::string app_data;
};

// Checks everything that can be checked without a model: checksums, sizes, ranges of every field, and that they agree
// with each other. Any bytes are safe. Error failed: names `name`, the section or field, what was found, what is
// allowed.
Result<FileView> read_session_file(std::span<const std::byte> bytes, const std::string& name);

// The header as JSON, and back (file_header.cpp).
std::string header_to_json(const FileHeader& header);
Result<FileHeader> header_from_json(std::string_view json);

}  // namespace kedge::session
