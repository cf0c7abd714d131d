// Writing a session file: the sections as they come, then the header that names them, then the preamble; a temporary
// file beside the target, renamed when it is whole.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "session/file.h"

namespace kedge::session {
namespace {

// Where a link points, so that the rename replaces the file and not the link.
std::string target_of(const std::string& path) {
  std::error_code error;
  const std::filesystem::path target = std::filesystem::weakly_canonical(path, error);
  return error ? path : target.string();
}

// A file that is gone again unless commit() has renamed it.
class Output {
 public:
  explicit Output(const std::string& path)
      : path_(target_of(path)), temporary_(path_ + ".tmp-" + std::to_string(::getpid())) {}
  ~Output() {
    if (fd_ >= 0)
      ::close(fd_);
    if (!temporary_.empty() && opened_)
      ::unlink(temporary_.c_str());
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  Status open() {
    struct stat info = {};
    if (::stat(path_.c_str(), &info) == 0 && !S_ISREG(info.st_mode))
      return Error{ErrorCode::failed, "cannot write '" + path_ + "': it is no regular file"};
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    opened_ = fd_ >= 0;
    return fd_ >= 0 ? Status() : failed();
  }
  Status write(const void* data, size_t n, off_t at) {
    const auto* bytes = static_cast<const char*>(data);
    while (n > 0) {
      const ssize_t done = ::pwrite(fd_, bytes, n, at);
      if (done < 0 && errno == EINTR)
        continue;
      if (done < 0)
        return failed();
      bytes += done;
      at += done;
      n -= static_cast<size_t>(done);
    }
    return {};
  }
  // On the disk before it has its name: a crash leaves the old file or the new one.
  Status commit() {
    if (::fsync(fd_) != 0)
      return failed();
    if (::close(std::exchange(fd_, -1)) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0)
      return failed();
    temporary_.clear();
    return {};
  }

 private:
  Error failed() const { return {ErrorCode::failed, "cannot write '" + path_ + "': " + std::strerror(errno)}; }
  std::string path_;
  std::string temporary_;
  int fd_ = -1;
  bool opened_ = false;
};

// Appends to the file and notes each section's size and checksum.
class Sections {
 public:
  explicit Sections(Output& output) : output_(output) {}

  void begin(const char* name) {
    list_.push_back({.name = name});
    crc_ = 0;
  }
  void add(const void* data, size_t n) {
    if (!status_ || n == 0)
      return;
    status_ = output_.write(data, n, static_cast<off_t>(at_));
    crc_ = crc32_z(crc_, static_cast<const unsigned char*>(data), n);
    at_ += n;
    list_.back().bytes += static_cast<int64_t>(n);
    list_.back().crc32 = static_cast<uint32_t>(crc_);
  }
  template <typename T>
  void whole(const char* name, std::span<const T> values) {
    begin(name);
    add(values.data(), values.size_bytes());
  }
  uint64_t end() const { return at_; }
  const Status& status() const { return status_; }
  const std::vector<FileSection>& list() const { return list_; }

 private:
  Output& output_;
  std::vector<FileSection> list_;
  Status status_;
  unsigned long crc_ = 0;
  uint64_t at_ = kPreambleBytes;
};

// The directory of heads comes first, so they are exported twice: once for their sizes. That is cheaper than holding a
// second copy of all rows.
void add_rows(const FileParts& parts, Sections& sections) {
  std::vector<std::byte> bytes;
  std::vector<uint64_t> sizes;
  for (int i = 0; i < parts.n_heads; ++i) {
    bytes.clear();
    parts.export_head(i, bytes);
    sizes.push_back(bytes.size());
  }
  sections.whole("rows", std::span<const uint64_t>(sizes));
  for (int i = 0; i < parts.n_heads; ++i) {
    bytes.clear();
    parts.export_head(i, bytes);
    sections.add(bytes.data(), bytes.size());
  }
}

std::vector<std::byte> preamble(uint64_t header_offset, const std::string& header) {
  std::vector<std::byte> out(kPreambleBytes);
  const auto put = [&out](size_t at, auto value) { std::memcpy(out.data() + at, &value, sizeof value); };
  const auto crc = [](const void* data, size_t n) {
    return static_cast<uint32_t>(crc32_z(0, static_cast<const unsigned char*>(data), n));
  };
  std::memcpy(out.data(), kFileMagic.data(), kFileMagic.size());
  put(8, kFileVersion);
  put(12, static_cast<uint32_t>(header.size()));
  put(16, header_offset);
  put(24, header_offset + header.size());
  put(32, crc(header.data(), header.size()));
  put(36, crc(out.data(), 36));
  return out;
}

}  // namespace

Status write_session_file(const FileParts& parts, const std::string& path) {
  Output output(path);
  if (Status status = output.open(); !status)
    return status;
  Sections sections(output);
  sections.whole("tokens", parts.tokens);
  sections.whole("logits", parts.logits);
  sections.whole("observed_positions", parts.observed_positions);
  sections.whole("observed_q", parts.observed_q);
  sections.whole("observed_y", parts.observed_y);
  sections.whole("history", parts.history);
  add_rows(parts, sections);
  sections.whole("app_data", std::span<const char>(parts.app_data));
  if (!sections.status())
    return sections.status();
  FileHeader header = parts.header;
  header.sections = sections.list();
  const std::string json = header_to_json(header);
  const std::vector<std::byte> start = preamble(sections.end(), json);
  if (Status status = output.write(json.data(), json.size(), static_cast<off_t>(sections.end())); !status)
    return status;
  if (Status status = output.write(start.data(), start.size(), 0); !status)
    return status;
  return output.commit();
}

}  // namespace kedge::session
