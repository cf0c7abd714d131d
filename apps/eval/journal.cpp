#include "eval/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/output_file.h"

namespace kedge::eval {
namespace {

Error failed(const std::string& path, const std::string& what) {
  return {.code = ErrorCode::failed, .message = path + ": " + what};
}

Result<std::string> read_all(int file, const std::string& path) {
  std::string bytes;
  char buffer[1 << 16];
  while (true) {
    const ssize_t n = ::read(file, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return failed(path, std::strerror(errno));
    if (n == 0)
      return bytes;
    bytes.append(buffer, static_cast<size_t>(n));
  }
}

}  // namespace

Result<JournalLines> split_journal(std::string_view bytes, const std::string& path) {
  JournalLines out;
  size_t number = 1;
  for (size_t begin = 0; begin < bytes.size(); ++number) {
    const size_t end = bytes.find('\n', begin);
    if (end == std::string_view::npos)
      return out;  // torn: never finished, its work is done again
    Json line = Json::parse(bytes.substr(begin, end - begin), nullptr, false);
    if (line.is_discarded() || !line.is_object())
      return failed(path, "line " + std::to_string(number) + " is not a JSON object");
    out.lines.push_back(std::move(line));
    begin = out.n_whole = end + 1;
  }
  return out;
}

Result<std::unique_ptr<Journal>> Journal::open(const std::string& folder, std::vector<Json>& lines) {
  std::unique_ptr<Journal> journal(new Journal());
  const std::string lock_path = folder + "/.lock";
  journal->lock_ = ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (journal->lock_ < 0)
    return failed(lock_path, std::strerror(errno));
  if (::flock(journal->lock_, LOCK_EX | LOCK_NB) != 0) {
    return Error{.code = ErrorCode::in_use, .message = folder + ": another kedge is writing this run"};
  }
  journal->path_ = folder + "/journal.jsonl";
  journal->file_ = ::open(journal->path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (journal->file_ < 0)
    return failed(journal->path_, std::strerror(errno));
  const Result<std::string> bytes = read_all(journal->file_, journal->path_);
  if (!bytes)
    return bytes.error();
  Result<JournalLines> split = split_journal(*bytes, journal->path_);
  if (!split)
    return split.error();
  if (split->n_whole < bytes->size() && ::ftruncate(journal->file_, static_cast<off_t>(split->n_whole)) != 0)
    return failed(journal->path_, std::strerror(errno));
  lines = std::move(split->lines);
  return journal;
}

Journal::~Journal() {
  if (file_ >= 0)
    ::close(file_);
  if (lock_ >= 0)
    ::close(lock_);
}

Status Journal::append(const Json& line) {
  if (Status status = write_all(file_, to_line(line) + "\n", path_); !status)
    return status;
  if (::fdatasync(file_) != 0)
    return failed(path_, std::strerror(errno));
  return {};
}

}  // namespace kedge::eval
