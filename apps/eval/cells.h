// One sample under many policies and budgets. The full cache of its prompt is read once; every cell is a fork of it
// (kedge/session.h): rows are copied, never computed again. A cell that cannot be forked reads the prompt itself.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/kl.h"
#include "eval/config.h"
#include "eval/records.h"
#include "eval/task.h"
#include "kedge/session.h"
#include "llama_side/llama_side.h"

namespace kedge::eval {

struct Engine {
  const Model& model;
  SessionOptions base;                         // types and batch sizes; no budget, no policy
  llama_side::LlamaSide* reference = nullptr;  // full rows come from it instead of our full cache
  int n_observed = 0;                          // query rows that the run's policies look at
  Histories histories = {};                    // and what else they read
  bool share_prefix = true;
};

struct Cell {
  std::string policy;       // name, as in config.json
  std::string policy_text;  // resolved
  Budget budget;            // unlimited: the full cache
  std::string budget_text() const { return budget.kind == Budget::Kind::unlimited ? "100%" : budget.text; }
  std::string key(const std::string& task, const Sample& sample) const {
    return task + "|" + sample.id + "|" + policy + "|" + budget_text();
  }
};

// Token ids as they are read: with BOS and the chat template where they belong.
struct Prompt {
  std::vector<Token> context;
  int64_t n_system = 0;  // of its tokens: the chat template's, before the sample's text
  std::vector<std::vector<Token>> questions;
  std::vector<Token> continuation;
};
Result<Prompt> make_prompt(const Model& model, const Config& config, const Sample& sample);

// Logits that follow each token of a continuation: f32 [n][n_vocab].
struct LogitRows {
  size_t n_vocab = 0;
  std::vector<float> values;
  size_t n_rows() const { return n_vocab == 0 ? 0 : values.size() / n_vocab; }
  std::span<const float> row(size_t i) const { return std::span(values).subspan(i * n_vocab, n_vocab); }
};

// Row by row, the rows spread over threads. targets: the token that came after each row's.
std::vector<cli::Comparison> compare_rows(const LogitRows& full, const LogitRows& other, std::span<const Token> targets,
                                          int n_threads);

class SampleRun {
 public:
  SampleRun(const Engine& engine, const Config& config, std::string task, Sample sample, Prompt prompt);

  const Sample& sample() const { return sample_; }
  const Prompt& prompt() const { return prompt_; }
  // Bytes of the KV rows and logits that are kept between cells.
  int64_t held_bytes() const;

  // The cell's rows. What goes wrong in one cell (a budget that cannot be, a prompt longer than the context) stands in
  // its rows as `error`. Errors here end the run: cancelled, failed.
  Result<CellRecord> run(const Cell& cell, bool trace_memory);

  // Rows of the continuation under the full cache (or of the reference), read when first asked for.
  Result<const LogitRows*> full_rows();
  // The continuation's rows under a cell's policy, and what the session held. For --save-logits and the noise floor.
  Result<LogitRows> rows_of(const Cell& cell, Row& row, CellRecord& record, bool trace_memory);
  Result<LogitRows> score_continuation(Session& session) const;
  Result<LogitRows> own_reference();

 private:
  struct Prefix {
    std::unique_ptr<Session> session;
    double seconds = 0;
  };
  Result<const Prefix*> prefix(size_t question);
  std::vector<Token> prompt_tokens(size_t question) const;
  SessionOptions options_of(const Cell& cell, size_t question, bool trace_memory) const;
  Result<std::unique_ptr<Session>> open(const Cell& cell, size_t question, bool trace_memory, Row& row);
  Status ask(const Cell& cell, size_t question, bool trace_memory, Row& row, CellRecord& record);
  Status score(const Cell& cell, bool trace_memory, Row& row, CellRecord& record);
  Row empty_row(const Cell& cell) const;
  Status fits_context(const Cell& cell, size_t question) const;

  const Engine& engine_;
  const Config& config_;
  std::string task_;
  Sample sample_;
  Prompt prompt_;
  std::map<size_t, Prefix> prefixes_;  // by question where the question is part of the prompt, else 0
  std::optional<LogitRows> full_rows_;
};

}  // namespace kedge::eval
