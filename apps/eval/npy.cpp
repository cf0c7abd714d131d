#include "eval/npy.h"

#include <cctype>

#include "base/output_file.h"

namespace kedge::eval {

Status write_npy(const std::string& path, std::span<const float> values, size_t n_rows, size_t n_columns) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::to_string(n_rows) + ", " +
                       std::to_string(n_columns) + "), }";
  constexpr size_t kPreamble = 10;  // magic 6, version 2, length of the header 2
  header.append((64 - (kPreamble + header.size() + 1) % 64) % 64, ' ');
  header += '\n';
  std::string bytes = "\x93NUMPY\x01";
  bytes += '\0';
  bytes += static_cast<char>(header.size() & 0xFFU);
  bytes += static_cast<char>(header.size() >> 8U);
  bytes += header;
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  return write_file(path, bytes);
}

std::string file_name(const std::string& key) {
  std::string name = key;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '-' && c != '_')
      c = '_';
  }
  return name;
}

}  // namespace kedge::eval
