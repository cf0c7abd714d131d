// What a run leaves behind: the line at its end, --stats and --kv-map.
#pragma once

#include <cstdint>
#include <string>

#include "kedge/error.h"
#include "kedge/session.h"
#include "settings.h"

namespace kedge::cli {

struct RunOutcome {
  int64_t generated_tokens = 0;
  std::string finish_reason;
  std::string preset = "none";
  SamplerOptions sampler;      // as it was used, seed included
  int64_t session_tokens = 0;  // that were restored and not read
  bool read_whole_prompt = false;
};

// Most memory this process ever held. VmHWM and not ru_maxrss, which a process inherits from its parent over exec.
int64_t peak_rss_bytes();

std::string stats_json(const Stats& stats, const RunOutcome& outcome, int64_t peak_rss,
                       const std::vector<LayerStats>& layers);
std::string kv_map_json(const KvMap& map);
std::string end_line(const Stats& stats, const RunOutcome& outcome);
std::string kv_line(const Stats& stats);  // "KV 3.9 MiB live, 4.0 MiB peak of 4.0 MiB, full 183 MiB, kept 2.1%"

// Are the files of --stats, --kv-map and --explain-json writable, and is --explain-at an address? Errors failed, usage.
Status check_reports(const Settings& settings);
// Writes them; `stats` is what this run did. Error failed.
Status write_reports(const Settings& settings, const Session& session, const Stats& stats, const RunOutcome& outcome);

}  // namespace kedge::cli
