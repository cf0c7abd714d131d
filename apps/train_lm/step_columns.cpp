#include "train_lm/step_columns.h"

namespace kedge::lm {

std::vector<std::string> step_columns(int n_layers) {
  std::vector<std::string> names = {"step", "loss",   "lm_loss",       "level", "wanted_keep", "keep",
                                    "tau",  "anneal", "learning_rate", "norm",  "adversarial", "seconds"};
  for (int layer = 0; layer < n_layers; ++layer)
    names.push_back("keep_" + std::to_string(layer));
  return names;
}

}  // namespace kedge::lm
