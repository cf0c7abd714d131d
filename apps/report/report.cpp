#include "cli/console.h"
#include "cli/verbs.h"

namespace kedge::cli {

int report_verb(const Settings&) { return report({.code = ErrorCode::failed, .message = "report: not built"}); }

}  // namespace kedge::cli
