// kedge inspect FILE, where FILE is a session that was saved.
#include "inspect_session.h"

#include <nlohmann/json.hpp>

#include "engine.h"
#include "kedge/session.h"

namespace kedge::cli {
namespace {

std::string json_of(const SessionFileInfo& info, const std::string& path) {
  nlohmann::ordered_json sections = nlohmann::ordered_json::array();
  for (const SessionFileInfo::Section& section : info.sections)
    sections.push_back({{"name", section.name}, {"bytes", section.bytes}, {"crc32", section.crc32}});
  const Stats& stats = info.stats;
  const nlohmann::ordered_json json = {
      {"path", path},
      {"file_bytes", info.file_bytes},
      {"model", {{"name", info.model_name}, {"architecture", info.architecture}, {"sha256", info.model_sha256}}},
      {"n_tokens", info.n_tokens},
      {"policy", info.policy},
      {"budget", info.options.budget.text},
      {"cache_type", cache_types(info.options)},
      {"branch_tokens", info.options.branch_tokens},
      {"kernels", info.kernels},
      {"kv_rows", stats.kv_rows},
      {"evicted_rows", stats.evicted_rows},
      {"keep", stats.keep},
      {"kv_live_bytes", stats.kv_live_bytes},
      {"kv_budget_bytes", stats.kv_budget_bytes},
      {"prompt_tokens", stats.prompt_tokens},
      {"generated_tokens", stats.generated_tokens},
      {"plan", stats.plan},
      {"app_data_bytes", info.app_data_bytes},
      {"sections", sections},
  };
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string text_of(const SessionFileInfo& info, const std::string& path) {
  const Stats& stats = info.stats;
  std::string text = "session file " + path + "\n";
  text += report_row("size", format_bytes(info.file_bytes) + ", checksums agree");
  text +=
      report_row("model", info.model_name + " (" + info.architecture + "), sha256 " + info.model_sha256.substr(0, 16));
  text += report_row("tokens", grouped(info.n_tokens) + " (" + grouped(stats.prompt_tokens) + " read, " +
                                   grouped(stats.generated_tokens) + " decoded)");
  text += report_row("rows", grouped(stats.kv_rows) + " held, " + grouped(stats.evicted_rows) + " evicted, kept " +
                                 format_percent(stats.keep));
  text += report_row("KV", format_bytes(stats.kv_live_bytes) + " live of " + format_bytes(stats.kv_budget_bytes) +
                               " (" + cache_types(info.options) + " rows)");
  text += report_row("budget", info.options.budget.text);
  text += report_row("policy", info.policy);
  text += report_row("plan", stats.plan);
  text += report_row("computed with", info.kernels + " kernels");
  text += report_row("conversation", info.app_data_bytes > 0 ? "yes" : "no");
  for (const SessionFileInfo::Section& section : info.sections)
    text += report_row("  " + section.name, grouped(section.bytes) + " bytes");
  text.pop_back();
  return text;
}

}  // namespace

Result<std::string> inspect_session(const std::string& path, bool as_json) {
  const Result<SessionFileInfo> info = inspect_session_file(path);
  if (!info)
    return info.error();
  return as_json ? json_of(*info, path) : text_of(*info, path);
}

}  // namespace kedge::cli
