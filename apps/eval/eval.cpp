#include "cli/console.h"
#include "cli/verbs.h"

namespace kedge::cli {

int eval_verb(const Settings&) { return report({.code = ErrorCode::failed, .message = "eval: not built"}); }

}  // namespace kedge::cli
