// A file's bytes, mapped read-only.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "kedge/error.h"

namespace kedge {

class MappedFile {
 public:
  // An empty file has no bytes. Error failed: names the file; what is no regular file is refused.
  static Result<MappedFile> open(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  MappedFile() = default;
  std::span<const std::byte> bytes_;
};

}  // namespace kedge
