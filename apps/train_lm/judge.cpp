#include "train_lm/judge.h"

#include <algorithm>

#include "api/model_impl.h"
#include "base/output_file.h"
#include "cli/kl.h"
#include "kedge/session.h"
#include "session/model_identity.h"

namespace kedge::lm {

Judge::Judge(Model& model, std::vector<std::span<const Token>> windows, const JudgeOptions& options)
    : model_(model), windows_(std::move(windows)), options_(options), full_(windows_.size()) {}

// At most a quarter of the window.
int64_t Judge::n_continue(size_t window) const {
  return std::min(options_.n_continue, static_cast<int64_t>(windows_[window].size()) / 4);
}

Status Judge::read(size_t window, bool with_gate, const std::function<EachRow>& each) const {
  const std::span<const Token> tokens = windows_[window];
  const auto n_rest = static_cast<size_t>(n_continue(window));
  SessionOptions options;
  options.policy = with_gate ? "gate" : "none";
  if (with_gate) {
    const Result<Budget> budget = parse_budget(options_.budget);
    if (!budget)
      return budget.error();
    options.budget = *budget;
  }
  options.hold_continuation = true;
  options.expected_prompt = static_cast<int64_t>(tokens.size() - n_rest);
  options.expected_generated = static_cast<int64_t>(n_rest);
  const Result<std::unique_ptr<Session>> session = Session::create(model_, options);
  if (!session)
    return session.error();
  if (Status status = (*session)->prefill(tokens.first(tokens.size() - n_rest)); !status)
    return status;
  each(0, (*session)->logits());
  return (*session)->score(tokens.last(n_rest).first(n_rest - 1),
                           [&each](int64_t i, std::span<const float> row) { each(static_cast<size_t>(i + 1), row); });
}

// What the model as it is says of each window with its full cache.
Status Judge::read_full() {
  model_.impl().net->drop_lora();
  const auto n_vocab = static_cast<size_t>(model_.info().n_vocab);
  for (size_t window = 0; window < windows_.size(); ++window) {
    std::vector<float>& full = full_[window];
    if (!full.empty())
      continue;
    full.resize(static_cast<size_t>(n_continue(window)) * n_vocab);
    Status status = read(window, false, [&](size_t i, std::span<const float> row) {
      std::ranges::copy(row, full.begin() + static_cast<std::ptrdiff_t>(i * n_vocab));
    });
    if (!status)
      return status;
  }
  return {};
}

Status Judge::put_in_place(const Judged& tried) {
  if (Status saved = gate::save_gate(tried.gate, tried.gate_path); !saved)
    return saved;
  Model::Impl& impl = model_.impl();
  Result<std::unique_ptr<gate::GateNet>> net =
      gate::GateNet::load(*impl.compute, tried.gate_path, session::gate_model(*impl.net));
  if (!net)
    return net.error();
  impl.gate = *std::move(net);
  if (tried.lora.empty())
    return {};
  if (Status saved = write_file(tried.lora_path, std::span<const std::byte>(tried.lora)); !saved)
    return saved;
  return impl.net->use_lora(*impl.compute, {.path = tried.lora_path});
}

Result<double> Judge::kld(const Judged& tried) {
  if (Status full = read_full(); !full)
    return full.error();
  if (Status placed = put_in_place(tried); !placed)
    return placed.error();
  const auto n_vocab = static_cast<size_t>(model_.info().n_vocab);
  std::vector<double> divergence;
  for (size_t window = 0; window < windows_.size(); ++window) {
    const std::span<const float> full = full_[window];
    const Status status = read(window, true, [&](size_t i, std::span<const float> row) {
      divergence.push_back(cli::compare(full.subspan(i * n_vocab, n_vocab), row, 0).kld);
    });
    if (!status)
      return status.error();
  }
  model_.impl().net->drop_lora();
  return cli::mean(divergence);
}

}  // namespace kedge::lm
