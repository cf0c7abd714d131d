// The journal of a run: one line of JSON per finished piece of work, appended and synced. A process that dies at any
// point leaves whole lines and at most one torn one at the end, which is cut off when the journal is next opened.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "eval/records.h"
#include "kedge/error.h"

namespace kedge::eval {

class Journal {
 public:
  // Opens or creates FOLDER/journal.jsonl and locks the folder against a second process. `lines` gets what is there.
  // Errors: failed (unreadable, a damaged line other than the last: named by its number), in_use (another process
  // writes there).
  static Result<std::unique_ptr<Journal>> open(const std::string& folder, std::vector<Json>& lines);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  Status append(const Json& line);

 private:
  Journal() = default;
  int file_ = -1;
  int lock_ = -1;
  std::string path_;
};

// Splits the bytes of a journal. n_whole: bytes up to the end of the last whole line. Error failed names the line.
struct JournalLines {
  std::vector<Json> lines;
  size_t n_whole = 0;
};
Result<JournalLines> split_journal(std::string_view bytes, const std::string& path);

}  // namespace kedge::eval
