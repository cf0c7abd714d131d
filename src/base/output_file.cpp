#include "base/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace kedge {
namespace {

Error failed(const std::string& what) {
  return {.code = ErrorCode::failed, .message = what + ": " + std::strerror(errno)};
}

bool exists_as_special(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode);
}

// Where a link points, so that the rename replaces the file and not the link.
std::string real_target(const std::string& path) {
  std::error_code error;
  const std::filesystem::path target = std::filesystem::weakly_canonical(path, error);
  return error ? path : target.string();
}

struct Temporary {
  int fd = -1;
  std::string path;
};

Temporary make_temporary(const std::string& target) {
  Temporary temporary{.fd = -1, .path = target + ".tmp-" + std::to_string(::getpid())};
  temporary.fd = ::open(temporary.path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  return temporary;
}

}  // namespace

Status write_all(int fd, std::string_view content, const std::string& name) {
  while (!content.empty()) {
    const ssize_t n = ::write(fd, content.data(), content.size());
    if (n >= 0) {
      content.remove_prefix(static_cast<size_t>(n));
    } else if (errno != EINTR) {
      return failed("cannot write " + name);
    }
  }
  return {};
}

Status check_writable(const std::string& path) {
  if (path.empty())
    return {};
  if (exists_as_special(path)) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno != ENXIO)
      return failed("cannot write '" + path + "'");  // ENXIO: a pipe without a reader yet
    if (fd >= 0)
      ::close(fd);
    return {};
  }
  const Temporary temporary = make_temporary(real_target(path));
  if (temporary.fd < 0)
    return failed("cannot write '" + path + "'");
  ::close(temporary.fd);
  ::unlink(temporary.path.c_str());
  return {};
}

Status write_file(const std::string& path, std::string_view content) {
  const std::string name = "'" + path + "'";
  if (exists_as_special(path)) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0)
      return failed("cannot write " + name);
    Status status = write_all(fd, content, name);
    ::close(fd);
    return status;
  }
  const std::string target = real_target(path);
  const Temporary temporary = make_temporary(target);
  if (temporary.fd < 0)
    return failed("cannot write " + name);
  Status status = write_all(temporary.fd, content, name);
  if (::close(temporary.fd) != 0 && status.ok())
    status = failed("cannot write " + name);
  if (status.ok() && ::rename(temporary.path.c_str(), target.c_str()) != 0)
    status = failed("cannot write " + name);
  if (!status.ok())
    ::unlink(temporary.path.c_str());
  return status;
}

}  // namespace kedge
