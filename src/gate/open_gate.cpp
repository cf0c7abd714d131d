#include "gate/open_gate.h"

#include <utility>

#include "base/sha256.h"

namespace kedge::gate {

Result<OpenGate> open_gate(const std::string& path, const GateModel& model) {
  Result<std::unique_ptr<tensor::GgufFile>> file = tensor::GgufFile::open(path);
  if (!file)
    return file.error();
  Result<Gate> gate = read_gate(**file);
  if (!gate)
    return gate.error();
  if (Status same = same_model(gate->info.model, model, path); !same)
    return same.error();
  OpenGate out;
  out.sha256 = sha256_hex((*file)->bytes());
  out.file = *std::move(file);
  out.gate = *std::move(gate);
  return out;
}

}  // namespace kedge::gate
