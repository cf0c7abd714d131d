// Help pages and the reference page, printed from the tables of verbs, options and policies.
#pragma once

#include <string>

#include "verbs.h"

namespace kedge::cli {

std::string help_page();                      // kedge help
std::string help_page(const VerbSpec& verb);  // kedge run --help
std::string markdown_page();                  // docs/reference.md

}  // namespace kedge::cli
