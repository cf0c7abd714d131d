// kedge bench: llama-bench's tests over KV budgets and policies, alone or beside llama.cpp.
#include "bench/format.h"
#include "bench/runner.h"
#include "cli/console.h"
#include "cli/prompt.h"
#include "cli/verbs.h"

namespace kedge::bench {
namespace {

void notes(const Row& row, const Plan& plan) {
  if (!row.rss_of_row)
    cli::note("RSS: this kernel does not reset the peak; the figures are those of the whole process so far");
  if (plan.beside_llama)
    cli::note("RSS includes llama.cpp's weights and cache; without --vs it is Kedge's alone");
}

Status run(const cli::Settings& settings) {
  if (!settings.positional.empty()) {
    return Error{.code = ErrorCode::usage,
                 .message = "unexpected argument '" + settings.positional.front() + "' (the model is given with -m)"};
  }
  const Result<Plan> plan = make_plan(settings);
  if (!plan)
    return plan.error();
  Runner runner(*plan, settings);
  if (Status status = runner.prepare(); !status)
    return status;
  const std::unique_ptr<Printer> printer = make_printer(settings.bench_output, *plan);
  bool begun = false;
  const auto print_row = [&](const Row& row) -> Status {
    if (!begun) {
      if (Status status = cli::print_text(printer->header(row.model)); !status)
        return status;
      begun = true;
      notes(row, *plan);
    }
    return cli::print_text(printer->row(row));
  };
  Status status = runner.run(print_row);
  if (begun) {  // what was measured before an interruption is a whole document too
    Status closed = cli::print_text(printer->footer());
    if (status)
      status = closed;
  }
  return status;
}

}  // namespace
}  // namespace kedge::bench

namespace kedge::cli {

int bench_verb(const Settings& settings) {
  const Status status = bench::run(settings);
  return status.ok() ? 0 : report(status.error());
}

}  // namespace kedge::cli
