#include "model/model.h"

#include "model/arch.h"

namespace kedge::model {

std::vector<std::string> known_architectures() {
  std::vector<std::string> names;
  for (const ArchEntry& entry : arch_list())
    names.emplace_back(entry.name);
  return names;
}

Status Model::use_lora(tensor::Compute& compute, const LoraOptions& options) {
  const std::vector<std::string> matrices = adaptable();
  Result<std::unique_ptr<Lora>> lora =
      Lora::load(compute, options,
                 {.file = *file_, .weights = *weights_, .architecture = hyper_.architecture, .matrices = matrices});
  if (!lora)
    return lora.error();
  lora_ = *std::move(lora);
  return {};
}

Result<std::unique_ptr<Model>> load_model(tensor::Compute& compute, const std::string& path,
                                          const tensor::WeightOptions& options) {
  Result<std::unique_ptr<tensor::GgufFile>> file = tensor::GgufFile::open(path);
  if (!file)
    return file.error();
  const Result<std::string> architecture = (*file)->get_string("general.architecture");
  if (!architecture)
    return architecture.error();
  std::string known;
  for (const ArchEntry& entry : arch_list()) {
    if (*architecture == entry.name)
      return entry.load({.file = *std::move(file), .compute = compute, .options = options});
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  return Error{ErrorCode::model_unreadable,
               path + ": key 'general.architecture': found '" + *architecture + "', allowed " + known};
}

}  // namespace kedge::model
