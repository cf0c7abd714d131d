// Runs a plan: loads what its setups need, times every group, and hands each finished row on.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/plan.h"
#include "bench/row.h"
#include "bench/turn.h"
#include "cli/console.h"
#include "cli/settings.h"
#include "kedge/model.h"
#include "llama_side/llama_side.h"

namespace kedge::bench {

class Runner {
 public:
  using EachRow = std::function<Status(const Row& row)>;

  Runner(const Plan& plan, const cli::Settings& settings);

  // Loads the first setup's model and asks for every row whether its budget can work: nothing is timed before all can.
  // Errors: model_unreadable, budget_impossible (with the arithmetic), usage.
  Status prepare();
  // All rows in order. Errors of prepare() and of sessions, cancelled, those of `each`.
  Status run(const EachRow& each);

 private:
  Status enter(const Setup& setup);
  Status check_rows() const;
  Status warm_up(const Group& group);
  Status run_group(const Group& group, std::vector<Row>& rows);
  Status repeat(const Group& group, std::vector<Row>& rows);
  Status pause(const std::string& what) const;
  Row new_row(const Group& group, const Variant& variant) const;

  const Plan& plan_;
  const cli::Settings& settings_;
  cli::Progress progress_;
  Setup setup_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<llama_side::LlamaSide> llama_;
  std::vector<Token> tokens_;
  double read_gb_s_ = 0;
  int64_t repetitions_done_ = 0;
};

}  // namespace kedge::bench
