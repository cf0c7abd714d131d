#include "train_lm/state.h"

#include <cstring>
#include <span>

#include "base/crc32.h"
#include "base/mapped_file.h"
#include "base/output_file.h"

namespace kedge::lm {
namespace {

constexpr char kMagic[8] = {'K', 'E', 'D', 'G', 'E', 'L', 'M', 'T'};
constexpr uint32_t kVersion = 2;  // 1 had no adapter

class Writer {
 public:
  template <typename T>
  void operator()(const T& value) {
    const auto* data = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), data, data + sizeof value);
  }
  void operator()(const std::string& text) { list(text.data(), text.size()); }
  template <typename T>
  void operator()(const std::vector<T>& values) {
    list(values.data(), values.size());
  }
  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  template <typename T>
  void list(const T* data, size_t n) {
    (*this)(static_cast<uint64_t>(n));
    const auto* raw = reinterpret_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), raw, raw + n * sizeof(T));
  }
  std::vector<std::byte> bytes_;
};

// Reads until something does not fit, and says so at the end. What it reads has passed the checksum.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <typename T>
  void operator()(T& value) {
    take(&value, sizeof value);
  }
  void operator()(std::string& text) {
    text.resize(length(1));
    take(text.data(), text.size());
  }
  template <typename T>
  void operator()(std::vector<T>& values) {
    values.resize(length(sizeof(T)));
    take(values.data(), values.size() * sizeof(T));
  }
  bool at_end() const { return !failed_ && bytes_.empty(); }

 private:
  size_t length(size_t each) {
    uint64_t n = 0;
    (*this)(n);
    if (n > bytes_.size() / each)
      failed_ = true;
    return failed_ ? 0 : static_cast<size_t>(n);
  }
  void take(void* to, size_t n) {
    if (failed_ || n > bytes_.size()) {
      failed_ = true;
      return;
    }
    if (n > 0)
      std::memcpy(to, bytes_.data(), n);
    bytes_ = bytes_.subspan(n);
  }
  std::span<const std::byte> bytes_;
  bool failed_ = false;
};

template <typename Visit, typename State>
void visit_fields(Visit& visit, State& s) {
  visit(s.made_from);
  visit(s.step);
  visit(s.parameters);
  visit(s.first);
  visit(s.second);
  visit(s.inputs);
  visit(s.best);
  visit(s.lora);
  visit(s.lora_first);
  visit(s.lora_second);
  visit(s.best_lora);
  visit(s.best_step);
  visit(s.best_kld);
  visit(s.start_kld);
  visit(s.n_worse);
  visit(s.is_over);
  visit(s.seconds);
  visit(s.flops);
  visit(s.n_tokens);
  visit(s.n_step_values);
  visit(s.steps);
  visit(s.judgements);
}

}  // namespace

Status save_state(const TrainState& state, const std::string& path) {
  Writer writer;
  for (const char one : kMagic)
    writer(one);
  writer(kVersion);
  visit_fields(writer, state);
  writer(crc32_of(writer.bytes()));
  return write_file(path, std::span<const std::byte>(writer.bytes()));
}

Result<TrainState> read_state(const std::string& path) {
  Result<MappedFile> file = MappedFile::open(path);
  if (!file)
    return file.error();
  std::span<const std::byte> bytes = file->bytes();
  const auto bad = [&path](const std::string& what) { return Error{ErrorCode::failed, path + ": " + what}; };
  uint32_t version = 0;
  uint32_t sum = 0;
  if (bytes.size() < sizeof kMagic + sizeof version + sizeof sum)
    return bad("found " + std::to_string(bytes.size()) + " bytes, allowed at least 16");
  if (std::memcmp(bytes.data(), kMagic, sizeof kMagic) != 0)
    return bad("no state of a training: it begins with something else than KEDGELMT");
  std::memcpy(&sum, bytes.data() + bytes.size() - sizeof sum, sizeof sum);
  bytes = bytes.first(bytes.size() - sizeof sum);
  if (sum != crc32_of(bytes))
    return bad("its checksum does not fit what is in it");
  std::memcpy(&version, bytes.data() + sizeof kMagic, sizeof version);
  if (version != kVersion)
    return bad("found version " + std::to_string(version) + ", allowed " + std::to_string(kVersion));
  TrainState state;
  Reader reader(bytes.subspan(sizeof kMagic + sizeof version));
  visit_fields(reader, state);
  if (!reader.at_end())
    return bad("its lengths do not fit its size");
  return state;
}

}  // namespace kedge::lm
