// How near decode attention comes to the memory's speed over a cache of 1 GiB, far beyond the CPU's caches.
//   bench_wall [-m MODEL] [-t THREADS]     the model gives the numbers of heads and their dimension
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "attention_wall.h"
#include "kedge/budget.h"
#include "kedge/model.h"

int main(int argc, char** argv) {
  const char* model_path = std::getenv("KEDGE_MODEL");
  kedge::ModelOptions options;
  options.path = model_path == nullptr ? "" : model_path;
  CLI::App app{"Decode attention beside the memory's speed"};
  app.add_option("-m,--model", options.path, "GGUF model (default: KEDGE_MODEL)");
  app.add_option("-t,--threads", options.n_threads, "threads; 0: one per CPU")->check(CLI::NonNegativeNumber);
  CLI11_PARSE(app, argc, argv);
  const auto model = kedge::Model::load(options);
  if (!model) {
    std::fprintf(stderr, "bench_wall: %s\n", model.error().message.c_str());
    return 1;
  }
  const kedge::ModelInfo& info = (*model)->info();
  const kedge::bench::AttentionWall wall = kedge::bench::measure_attention_wall(
      info.n_kv_heads, info.n_heads / info.n_kv_heads, info.head_dim, info.n_threads);
  if (wall.cache_bytes == 0) {
    std::fprintf(stderr, "bench_wall: no memory for two buffers of 1 GiB\n");
    return 1;
  }
  std::printf(
      "decode attention over %s of f16 rows in sequence, %d threads, kernels %s: %.2f ns per row and kv head, %.1f "
      "GB/s "
      "= %.0f %% of the %.1f GB/s read in this run\n",
      kedge::format_bytes(wall.cache_bytes).c_str(), info.n_threads, info.kernels.c_str(), wall.ns_per_row,
      wall.attention_gb_s, 100 * wall.attention_gb_s / wall.read_gb_s, wall.read_gb_s);
  return 0;
}
