// kedge inspect FILE, where FILE is a LoRA adapter.
#include "inspect_lora.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "engine.h"
#include "kedge/budget.h"
#include "tensor/lora_file.h"
#include "tensor/types.h"

namespace kedge::cli {
namespace {

int64_t n_weights(const tensor::LoraFile& lora) {
  int64_t n = 0;
  for (const tensor::LoraPair& pair : lora.pairs)
    n += pair.rank() * (pair.n_in() + pair.n_out());
  return n;
}

// "blk.3.attn_q.weight" -> "attn_q"
std::string kind_of(const std::string& matrix) {
  const size_t end = matrix.find_last_of('.');
  const size_t begin = end == std::string::npos || end == 0 ? std::string::npos : matrix.find_last_of('.', end - 1);
  return begin == std::string::npos ? matrix : matrix.substr(begin + 1, end - begin - 1);
}

// "30 attn_k, 30 attn_q": how many matrices of each kind.
std::string matrices_text(const tensor::LoraFile& lora) {
  std::map<std::string, int> kinds;
  for (const tensor::LoraPair& pair : lora.pairs)
    ++kinds[kind_of(pair.matrix)];
  std::string text;
  for (const auto& [kind, n] : kinds)
    text += (text.empty() ? "" : ", ") + std::to_string(n) + " " + kind;
  return text;
}

std::string ranks_text(const tensor::LoraFile& lora) {
  std::set<int64_t> ranks;
  for (const tensor::LoraPair& pair : lora.pairs)
    ranks.insert(pair.rank());
  std::string text;
  for (const int64_t rank : ranks)
    text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

std::string json_of(const tensor::LoraFile& lora, const std::string& path, int64_t file_bytes) {
  nlohmann::ordered_json matrices = nlohmann::ordered_json::array();
  for (const tensor::LoraPair& pair : lora.pairs)
    matrices.push_back({{"name", pair.matrix},
                        {"rank", pair.rank()},
                        {"n_in", pair.n_in()},
                        {"n_out", pair.n_out()},
                        {"type_a", tensor::type_name(pair.a->type)},
                        {"type_b", tensor::type_name(pair.b->type)}});
  const nlohmann::ordered_json json = {
      {"path", path},
      {"file_bytes", file_bytes},
      {"type", "lora"},
      {"name", lora.info.name},
      {"description", lora.info.description},
      {"architecture", lora.info.architecture},
      {"alpha", lora.info.alpha},
      {"n_weights", n_weights(lora)},
      {"matrices", matrices},
  };
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string text_of(const tensor::LoraFile& lora, const std::string& path, int64_t file_bytes) {
  std::string text = "LoRA adapter " + path + "\n";
  text += report_row("size", format_bytes(file_bytes));
  text += report_row("name", lora.info.name);
  if (!lora.info.description.empty())
    text += report_row("about", lora.info.description);
  text += report_row("for models of", lora.info.architecture);
  text += report_row("rank", ranks_text(lora) + ", alpha " + format_real(static_cast<double>(lora.info.alpha), 2));
  text += report_row("matrices", matrices_text(lora));
  text += report_row("weights", grouped(n_weights(lora)) + " (" + tensor::type_name(lora.pairs.front().a->type) + ")");
  text.pop_back();
  return text;
}

}  // namespace

bool is_lora_file(const std::string& path) {
  const Result<std::unique_ptr<tensor::GgufFile>> file = tensor::GgufFile::open(path);
  if (!file)
    return false;
  const Result<std::string> type = (*file)->get_string_or("general.type", "");
  return type.ok() && *type == "adapter";
}

Result<std::string> inspect_lora(const std::string& path, bool as_json) {
  const Result<std::unique_ptr<tensor::GgufFile>> file = tensor::GgufFile::open(path);
  if (!file)
    return file.error();
  const Result<tensor::LoraFile> lora = tensor::read_lora(**file);
  if (!lora)
    return lora.error();
  const int64_t n_bytes = (*file)->file_bytes();
  return as_json ? json_of(*lora, path, n_bytes) : text_of(*lora, path, n_bytes);
}

}  // namespace kedge::cli
