// What a run is: the grid as resolved. Two runs with the same config.json give the same metrics.json.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "eval/records.h"
#include "eval/task.h"
#include "kedge/budget.h"
#include "kedge/error.h"
#include "kedge/model.h"

namespace kedge::eval {

struct PolicyChoice {
  std::string name;  // as written on the command line
  std::string text;  // resolved
};

struct Config {
  std::vector<TaskChoice> tasks;
  std::string file;
  std::vector<PolicyChoice> policies;  // those that evict; `none` is implied by with_none
  std::vector<Budget> budgets;
  std::vector<int64_t> lengths;
  std::vector<double> depths;
  int64_t samples = 3;
  int64_t continuation = 128;
  uint64_t seed = 0;
  bool with_none = true;
  bool question_aware = true;
  bool decode_evicts = false;
  bool chat = false;
  bool skip_bad = false;
  std::string cache_type_k = "f16";
  std::string cache_type_v = "f16";
  int f16_window = 32;
  Json protect;             // what is protected from eviction; null: nothing
  bool pin_system = false;  // with chat: what stands before the sample's text
  std::string reference;    // "": our own full cache in f16; "llama.cpp"
  int64_t noise_windows = 4;

  // Known once they have been read.
  std::string model_sha256;
  std::string file_sha256;  // "" for a folder or no file
};

// "andpro:window=32,pool=7,snapkv/uniform": commas part policies; a piece `k=v` with neither ':' nor '/' before its '='
// belongs to the policy before it. White space and ';' part policies too. Error usage: empty, or resolve_policy's.
Result<std::vector<PolicyChoice>> parse_policies(std::string_view list);
// "50%,25%,16MiB". Error usage.
Result<std::vector<Budget>> parse_budgets(std::string_view list);
// "512,1024,2k": whole numbers in [min, max], k = 1024. Error usage names `flag`.
Result<std::vector<int64_t>> parse_lengths(std::string_view list, std::string_view flag);
// "0%,50%,100%" or "0,0.5,1". Error usage.
Result<std::vector<double>> parse_depths(std::string_view list);

Json to_json(const Config& config, const ModelInfo& model);
// The first key in which two config.json differ, with both values, for people; empty: they are equal. Where a file lies
// (paths) does not count, what is in it does.
std::string first_difference(const Json& a, const Json& b);

}  // namespace kedge::eval
