"""Adding a scorer is one new file: adds one and finds it in the registry, help, the eval grid and the pages.

The tree is copied with one file more, the build lists its folders again, and the program is linked anew from its own
objects, with the registry and the new file in front of the old registry. Nothing else depends on the new file, so that
nothing else is compiled.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from kedge_cli import KEDGE, KedgeTest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(KEDGE).resolve().parent

SCORER = """\
// Longest: a scorer of this test (control).
//   score[i] = ||v[i]||^2
#include "eviction/policy.h"

namespace kedge::eviction {
namespace {

class Longest final : public Scorer {
 public:
  Needs needs() const override { return {.values = true}; }
  void score(const HeadInput& in, std::span<float> score) const override {
    const auto dim = static_cast<size_t>(in.rows.head_dim);
    std::vector<float> v(dim);
    for (int32_t i = 0; i < in.rows.n_rows; ++i) {
      read_rows(in.rows, i, i + 1, nullptr, v.data());
      float sum = 0;
      for (const float x : v)
        sum += x * x;
      score[static_cast<size_t>(i)] = sum;
    }
  }
};

std::unique_ptr<Scorer> make(const OptionValues&) { return std::make_unique<Longest>(); }

}  // namespace

Method scorer_longest() {
  return {.info = {.name = "longest", .summary = "long values stay", .source = "control: a test", .options = {}},
          .default_allocator = "uniform",
          .default_schedule = "every:n=64",
          .default_sinks = "4",
          .default_recent = "0",
          .cost = "n * head_dim",
          .example = {"", {1, 5, 2, 16, 4, 5}},
          .make_scorer = make};
}

}  // namespace kedge::eviction
"""


def call(*command, **kw):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **kw)
    if done.returncode:
        raise AssertionError(f"{command}: exit {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout


def build_with_one_more_file(folder):
    """(program, tree): the program linked with the new scorer, and the tree that its pages are made from."""
    tree = folder / "tree"
    shutil.copytree(ROOT / "src/eviction", tree / "src/eviction")
    (tree / "src/eviction/scorers/longest.cpp").write_text(SCORER)
    call("cmake", "-S", ROOT / "tests/new_scorer", "-B", folder / "build", "-G", "Ninja",
         f"-DEVICTION={tree / 'src/eviction'}", f"-DSOURCE={ROOT}")
    call("cmake", "--build", folder / "build")
    objects = (folder / "build/objects.txt").read_text().split()
    # The program's own link command, with the new objects in front: an archive's registry is then not taken.
    link = call("ninja", "-C", BUILD, "-t", "commands", "kedge").splitlines()[-1]
    program, main = folder / "kedge", "cli/main.cpp.o "
    if link.count(main) != 1 or link.count("-o kedge ") != 1:
        raise AssertionError(f"this is no link command of the program: {link}")
    link = link.replace(main, main + " ".join(objects) + " ").replace("-o kedge ", f"-o {program} ")
    call("sh", "-c", link, cwd=BUILD)
    return program, tree


class NewScorer(KedgeTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.work = tempfile.TemporaryDirectory()
        cls.program, cls.tree = build_with_one_more_file(pathlib.Path(cls.work.name))

    @classmethod
    def tearDownClass(cls):
        cls.work.cleanup()

    def test_the_registry_lists_it(self):
        methods = json.loads(call(self.program, "policies", "--json"))
        old = json.loads(call(KEDGE, "policies", "--json"))
        self.assertEqual(len(methods), len(old) + 1)
        added = next(m for m in methods if m["name"] == "longest")
        self.assertEqual([o["name"] for o in added["options"]], ["recent", "sinks"])
        self.assertEqual(added["defaults"],
                         "longest:recent=0,sinks=4/uniform/every:n=64,share=0,high=1,low=1,stagger=on")
        self.assertEqual((added["cost"], added["needs"]["values"]), ("n * head_dim", True))
        self.assertEqual(added["example"]["score"], [1, 5, 2, 16, 4, 5])
        self.assertEqual(added["example"]["kept"], [3, 1, 5, 4, 2, 0])

    def test_help_and_messages_name_it(self):
        self.assertIn("long values stay", call(self.program, "policies"))
        self.assertIn("### longest (scorer)", call(self.program, "--help-markdown"))
        mistake = subprocess.run([self.program, "run", "-m", "x", "-p", "x", "--kv-budget", "10%", "--kv-policy",
                                  "longets"], capture_output=True, text=True)
        self.assertEqual(mistake.returncode, 2)
        self.assertIn("did you mean 'longest'", mistake.stderr)

    def test_the_grid_of_eval_takes_it(self):
        text = self.path("text.txt", "One sentence after another. " * 400)
        command = [self.program, "eval", "kld", "-m", os.environ["KEDGE_MODEL"], "-f", text, "--kv-policy",
                   "longest,streaming", "--kv-budget", "25%", "--lengths", "256", "--dry-run"]
        self.assertIn("longest", call(*command))
        known = subprocess.run([KEDGE, *map(str, command[1:])], capture_output=True, text=True)
        self.assertEqual(known.returncode, 2, "the program without the file does not know it")

    def test_its_page_is_made(self):
        docs = pathlib.Path(self.folder) / "docs"
        call(sys.executable, ROOT / "tools/policy_pages", "--kedge", self.program, "--root", self.tree, "--docs", docs)
        page = (docs / "scorer-longest.md").read_text()
        for words in ("# longest", "Longest: a scorer of this test", "score[i] = ||v[i]||^2", "long values stay",
                      "n * head_dim", "| score | 1 | 5 | 2 | 16 | 4 | 5 |"):
            self.assertIn(words, page)
        self.assertIn("(scorer-longest.md)", (docs / "README.md").read_text())


if __name__ == "__main__":
    unittest.main()
