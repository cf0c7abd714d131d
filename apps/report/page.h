// The page as one text, and its figures as files.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "run.h"

namespace kedge::report {

struct Page {
  std::string html;
  std::vector<std::pair<std::string, std::string>> figures;  // name without .svg, the file's text
};

// Runs must have names (name_runs).
Page make_page(const std::vector<Run>& runs);

// The sources of apps/report/page, put into the program by CMake.
namespace asset {
extern const char* const page_html;
extern const char* const page_css;
extern const char* const figure_css;
extern const char* const page_js;
}  // namespace asset

}  // namespace kedge::report
