#pragma once

#include "gate/gate.h"
#include "model/model.h"
#include "session/file.h"

namespace kedge::session {

// Reads some 4 MiB of the model file.
ModelIdentity identify(const model::Model& model);

// What a gate of this model says of it.
gate::GateModel gate_model(const model::Model& model);

// Error usage, with both values, unless sessions of `saved` go on with `here`. Names are for people only.
Status same_model(const ModelIdentity& saved, const ModelIdentity& here);

}  // namespace kedge::session
