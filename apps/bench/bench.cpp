#include "cli/console.h"
#include "cli/verbs.h"

namespace kedge::cli {

int bench_verb(const Settings&) { return report({.code = ErrorCode::failed, .message = "bench: not built"}); }

}  // namespace kedge::cli
