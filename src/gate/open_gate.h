// A gate's file, read and checked against the model that it is to serve.
#pragma once

#include <memory>
#include <string>

#include "gate/gate.h"
#include "kedge/error.h"
#include "tensor/gguf_file.h"

namespace kedge::gate {

struct OpenGate {
  std::unique_ptr<tensor::GgufFile> file;
  std::string sha256;  // of the file
  Gate gate;
};

// Errors: those of GgufFile::open, read_gate() and same_model().
Result<OpenGate> open_gate(const std::string& path, const GateModel& model);

}  // namespace kedge::gate
