// For tests: a tiny model and two documents to train its gate on.
#pragma once

#include <fstream>
#include <string>

#include "eval/random.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace kedge::lm {

struct TinyLesson {
  explicit TinyLesson(int n_layers = 2) {
    test::write_tiny_model(test::make_tiny_weights({.n_layers = n_layers,
                                                    .n_heads = 4,
                                                    .n_kv_heads = 2,
                                                    .head_dim = 16,
                                                    .n_embd = 64,
                                                    .n_ff = 96,
                                                    .n_vocab = 260,
                                                    .qk_gain = 1.6F,
                                                    .branch_gain = 0.8F}),
                           model());
    write("learn.txt", 9000);
    write("judge.txt", 2400);
  }
  std::string model() const { return folder.file("tiny.gguf"); }
  std::string document(const char* name) const { return folder.file(name); }

  test::TempDir folder;

 private:
  void write(const char* name, size_t n_bytes) const {
    constexpr const char* kWords[] = {"the ",    "row ", "of a ", "gate ",  "is kept\n", "while ",
                                      "others ", "go. ", "A ",    "query ", "asks ",     "for it.\n"};
    eval::Random random(1, name);
    std::string text;
    while (text.size() < n_bytes)
      text += random.pick(kWords);
    std::ofstream(document(name), std::ios::binary) << text;
  }
};

}  // namespace kedge::lm
