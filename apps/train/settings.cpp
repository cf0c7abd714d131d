#include "train/settings.h"

#include <sstream>

#include "eval/config.h"

namespace kedge::train {
namespace {

std::vector<std::string> names_of(const std::string& list) {
  std::vector<std::string> names;
  std::istringstream stream(list);
  for (std::string name; std::getline(stream, name, ',');) {
    if (!name.empty())
      names.push_back(name);
  }
  return names;
}

Label label_of(const std::string& name) {
  return name == "future" ? Label::future : name == "repeat" ? Label::repeat : Label::both;
}

}  // namespace

Result<TrainSettings> train_settings(const cli::Settings& settings) {
  if (settings.positional.empty())
    return Error{ErrorCode::usage, "no documents: give the files to learn from"};
  if (settings.gate_out.empty())
    return Error{ErrorCode::usage, "no folder: --gate-out DIR says where labels and gates go"};
  Result<std::vector<int64_t>> lengths = eval::parse_lengths(settings.train_lengths, "--train-lengths");
  if (!lengths)
    return lengths.error();
  TrainSettings train{.documents = settings.positional,
                      .held_out = names_of(settings.held_out),
                      .out = settings.gate_out,
                      .label_name = settings.gate_label,
                      .progress = settings.progress,
                      .plan = {.n_tokens = settings.train_tokens, .lengths = *std::move(lengths)},
                      .collect = {.labels = {.label = label_of(settings.gate_label), .window = settings.gate_window},
                                  .share = static_cast<double>(settings.train_share)},
                      .fit = {.width = settings.gate_width, .epochs = settings.gate_epochs}};
  for (const int64_t length : train.plan.lengths) {
    if (length < 4 * train.collect.labels.window || length > 65536)
      return Error{ErrorCode::usage, "--train-lengths: found " + std::to_string(length) + ", allowed " +
                                         std::to_string(4 * train.collect.labels.window) + " (four windows) to 65536"};
  }
  return train;
}

}  // namespace kedge::train
