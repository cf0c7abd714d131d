#include "eval/run_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/output_file.h"
#include "cli/text_input.h"
#include "eval/config.h"
#include "eval/groups.h"

namespace kedge::eval {

Result<Json> read_json_file(const std::string& path) {
  Result<std::string> text = cli::read_text(path);
  if (!text)
    return text.error();
  Json json = Json::parse(*text, nullptr, false);
  if (json.is_discarded())
    return Error{.code = ErrorCode::failed, .message = path + " is not JSON"};
  return json;
}

Result<std::unique_ptr<RunFolder>> RunFolder::open(const std::string& path, const Json& config) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error)
    return Error{.code = ErrorCode::failed, .message = "cannot make the folder " + path + ": " + error.message()};
  std::unique_ptr<RunFolder> folder(new RunFolder());
  folder->path_ = path;
  std::vector<Json> lines;
  Result<std::unique_ptr<Journal>> journal = Journal::open(path, lines);
  if (!journal)
    return journal.error();
  folder->journal_ = *std::move(journal);
  if (std::filesystem::exists(path + "/config.json")) {
    Result<Json> there = read_json_file(path + "/config.json");
    if (!there)
      return there.error();
    if (const std::string difference = first_difference(*there, config); !difference.empty()) {
      return Error{.code = ErrorCode::usage,
                   .message = path + " holds a run of another grid: " + difference +
                              " (there against here); name another folder with --out"};
    }
  } else if (!lines.empty()) {
    return Error{.code = ErrorCode::failed, .message = path + " has a journal and no config.json"};
  }
  if (Status status = folder->write("config.json", to_pretty(config)); !status)
    return status.error();
  for (size_t i = 0; i < lines.size(); ++i) {
    if (Status status = folder->take(lines[i], i + 1); !status)
      return status.error();
  }
  return folder;
}

Status RunFolder::take(const Json& line, size_t number) {
  if (line.contains("noise_floor")) {
    noise_floor_ = line.at("noise_floor");
    return {};
  }
  if (line.contains("match")) {
    match_ = line.at("match");
    return {};
  }
  Result<CellRecord> record = cell_record(line);
  if (!record) {
    return Error{.code = ErrorCode::failed,
                 .message = path_ + "/journal.jsonl line " + std::to_string(number) + ": " + record.error().message};
  }
  by_cell_.emplace(record->cell, records_.size());
  records_.push_back(*std::move(record));
  return {};
}

std::string RunFolder::state_text() const {
  return records_.empty() ? "" : ", " + std::to_string(records_.size()) + " cells are there already";
}

const CellRecord* RunFolder::find(const std::string& cell) const {
  const auto found = by_cell_.find(cell);
  return found == by_cell_.end() ? nullptr : &records_[found->second];
}

Status RunFolder::add(CellRecord record) {
  if (Status status = journal_->append(to_json(record)); !status)
    return status;
  by_cell_.emplace(record.cell, records_.size());
  records_.push_back(std::move(record));
  return {};
}

Status RunFolder::add_noise_floor(const Json& noise_floor) {
  noise_floor_ = noise_floor;
  return journal_->append({{"noise_floor", noise_floor}});
}

Status RunFolder::add_match(const Json& match) {
  match_ = match;
  return journal_->append({{"match", match}});
}

Status RunFolder::write(const std::string& name, const std::string& content) const {
  return write_file(path_ + "/" + name, content);
}

Status RunFolder::write_results(const std::vector<std::string>& cells, const Json& config, bool shared_prefix) const {
  std::vector<CellRecord> ordered;
  for (const std::string& cell : cells) {
    if (const CellRecord* record = find(cell); record != nullptr)
      ordered.push_back(*record);
  }
  Json metrics = metrics_json(config, ordered, noise_floor_, shared_prefix);
  if (!match_.is_null())
    metrics["match"] = match_;
  if (Status status = write("predictions.csv", predictions_csv(ordered)); !status)
    return status;
  if (Status status = write("timings.json", to_pretty(timings_json(ordered))); !status)
    return status;
  return write("metrics.json", to_pretty(metrics));
}

}  // namespace kedge::eval
