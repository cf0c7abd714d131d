// The folder of a run on disk: its journal, what is already there, and the files derived from it (docs/eval-format.md).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "eval/journal.h"
#include "eval/records.h"

namespace kedge::eval {

class RunFolder {
 public:
  // Makes the folder, or goes on with the run that is in it. Errors: usage (it holds a run of another config: the first
  // difference is named), in_use, failed.
  static Result<std::unique_ptr<RunFolder>> open(const std::string& path, const Json& config);

  const std::string& path() const { return path_; }
  std::string state_text() const;  // ", 37 cells are there already"; empty for a new one
  const std::vector<CellRecord>& records() const { return records_; }
  const CellRecord* find(const std::string& cell) const;
  const Json& noise_floor() const { return noise_floor_; }  // null until measured
  const Json& match() const { return match_; }              // null where no quality was matched

  Status add(CellRecord record);
  Status add_noise_floor(const Json& noise_floor);
  Status add_match(const Json& match);
  Status write(const std::string& name, const std::string& content) const;
  // predictions.csv, metrics.json, timings.json from the journal. `cells`: those of the grid, in its order.
  Status write_results(const std::vector<std::string>& cells, const Json& config, bool shared_prefix) const;

 private:
  RunFolder() = default;
  Status take(const Json& line, size_t number);

  std::string path_;
  std::unique_ptr<Journal> journal_;
  std::vector<CellRecord> records_;
  std::map<std::string, size_t> by_cell_;
  Json noise_floor_;
  Json match_;
};

// What is in a folder, without opening it for writing: of a baseline. Errors failed name the file.
Result<Json> read_json_file(const std::string& path);

}  // namespace kedge::eval
