#include "support/real_model.h"

#include <unistd.h>
#include <zlib.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "llama.h"

namespace kedge::test {
namespace {

namespace fs = std::filesystem;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

fs::path cache_directory() {
  if (const std::string deps = environment("KEDGE_DEPS"); !deps.empty())
    return deps;
  const std::string home = environment("HOME");
  return fs::path(home.empty() ? fs::temp_directory_path() : fs::path(home)) / ".cache" / "kedge";
}

void quiet(ggml_log_level level, const char* text, void*) {
  if (level == GGML_LOG_LEVEL_ERROR)
    std::fputs(text, stderr);
}

}  // namespace

std::string real_model_path() {
  const std::string path = environment("KEDGE_MODEL");
  return !path.empty() && fs::exists(path) ? path : "";
}

std::string real_text() {
  std::string path = environment("KEDGE_TEXT");
  if (path.empty())
    path = "/usr/share/developers-reference/developers-reference.txt.gz";
  gzFile file = gzopen(path.c_str(), "rb");  // reads plain files too
  if (file == nullptr)
    return "";
  std::string text;
  char buffer[1 << 16];
  int n = 0;
  while ((n = gzread(file, buffer, sizeof(buffer))) > 0)
    text.append(buffer, static_cast<size_t>(n));
  gzclose(file);
  return text;
}

std::string f32_model_path() {
  const fs::path source = real_model_path();
  if (source.empty())
    std::abort();
  const auto size = static_cast<unsigned long long>(fs::file_size(source));
  const auto changed = static_cast<long long>(fs::last_write_time(source).time_since_epoch().count());
  const fs::path directory = cache_directory();
  const fs::path target =
      directory / (source.stem().string() + "-" + std::to_string(size) + "-" + std::to_string(changed) + ".f32.gguf");
  if (fs::exists(target))
    return target.string();
  fs::create_directories(directory);
  const fs::path part = target.string() + "." + std::to_string(getpid()) + ".part";
  llama_log_set(quiet, nullptr);
  llama_backend_init();
  llama_model_quantize_params p = llama_model_quantize_default_params();
  p.ftype = LLAMA_FTYPE_ALL_F32;
  p.allow_requantize = true;
  p.nthread = 2;
  if (llama_model_quantize(source.c_str(), part.c_str(), &p) != 0) {
    std::fprintf(stderr, "cannot dequantise %s into %s\n", source.c_str(), part.c_str());
    std::abort();
  }
  fs::rename(part, target);
  return target.string();
}

}  // namespace kedge::test
