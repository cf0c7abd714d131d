// kedge report RUN... : from run folders to one page.
#include <filesystem>

#include "base/output_file.h"
#include "cli/console.h"
#include "cli/verbs.h"
#include "page.h"

namespace kedge::cli {
namespace {

namespace fs = std::filesystem;

Error failed(const std::string& message) { return {.code = ErrorCode::failed, .message = message}; }

Status make_folder(const std::string& path) {
  std::error_code error;
  if (!path.empty() && !fs::is_directory(path, error) && !fs::create_directories(path, error))
    return failed("--figures: cannot make the folder '" + path + "': " + error.message());
  return {};
}

Result<std::vector<report::Run>> read_runs(const std::vector<std::string>& folders) {
  std::vector<report::Run> runs;
  for (const std::string& folder : folders) {
    std::error_code error;
    for (const std::string& other : folders) {
      if (&other < &folder && fs::equivalent(other, folder, error))
        return Error{.code = ErrorCode::usage, .message = "the run '" + folder + "' is given twice"};
    }
    Result<report::Run> run = report::read_run(folder);
    if (!run)
      return run.error();
    runs.push_back(*std::move(run));
  }
  report::name_runs(runs);
  return runs;
}

Status write_report(const Settings& settings) {
  if (settings.positional.empty()) {
    return Error{.code = ErrorCode::usage, .message = "which run? kedge report RUN..., folders that `kedge eval` made"};
  }
  if (Status status = check_writable(settings.html); !status)
    return status;
  const Result<std::vector<report::Run>> runs = read_runs(settings.positional);
  if (!runs)
    return runs.error();
  const report::Page page = report::make_page(*runs);
  if (Status status = make_folder(settings.figures); !status)
    return status;
  if (!settings.figures.empty()) {
    for (const auto& [name, svg] : page.figures) {
      if (Status status = write_file((fs::path(settings.figures) / (name + ".svg")).string(), svg); !status)
        return status;
    }
    note("wrote " + std::to_string(page.figures.size()) + " figures to " + settings.figures);
  }
  if (Status status = write_file(settings.html, page.html); !status)
    return status;
  note("wrote " + settings.html + " (" + std::to_string(page.html.size() / 1024) + " KiB)");
  return {};
}

}  // namespace

int report_verb(const Settings& settings) {
  const Status status = write_report(settings);
  return status.ok() ? 0 : report(status.error());
}

}  // namespace kedge::cli
