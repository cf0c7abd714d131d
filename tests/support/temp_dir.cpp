#include "support/temp_dir.h"

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace kedge::test {

TempDir::TempDir() {
  const std::string pattern = (std::filesystem::temp_directory_path() / "kedge-test-XXXXXX").string();
  std::vector<char> name(pattern.begin(), pattern.end());
  name.push_back('\0');
  if (mkdtemp(name.data()) == nullptr) {
    std::perror("mkdtemp");
    std::abort();
  }
  path_ = name.data();
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace kedge::test
