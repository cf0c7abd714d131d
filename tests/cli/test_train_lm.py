"""A gate trained on the language-model loss, from the command line; and what is said where that was not built."""
import json
import os
import shutil
import sys
import unittest

import kedge_cli
from kedge_cli import KEDGE, MODEL, KedgeTest

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(KEDGE)), "kedge-train-lm")
BUILT = os.access(PROGRAM, os.X_OK)


class MissingComponent(KedgeTest):
    def setUp(self):
        super().setUp()
        # kedge alone in a folder
        self.alone = shutil.copy2(KEDGE, self.path("kedge"))
        before = kedge_cli.KEDGE
        kedge_cli.KEDGE = self.alone
        self.addCleanup(setattr, kedge_cli, "KEDGE", before)

    def test_it_is_said_what_is_missing_and_how_to_get_it(self):
        text = self.path("text.txt", self.sample(3000, 1))
        for stage in ("lm", "both"):
            result = self.kedge("train-gate", text, "--stage", stage, "-m", MODEL, "--gate-out", self.path("out"))
            self.assert_error(result, 1, "kedge-train-lm", "libtorch", "tools/setup --with train")
            self.assertFalse(os.path.exists(self.path("out")), "nothing was begun")

    def test_labels_need_none_of_it(self):
        result = self.kedge("train-gate", "-m", MODEL)
        self.assert_error(result, 2, "documents")


@unittest.skipUnless(BUILT, "built without libtorch: no " + PROGRAM)
class TrainLm(KedgeTest):
    def train(self, out, *args, code=0):
        text = self.path("text.txt", self.sample(9000, 3))
        judged = self.path("judged.txt", self.sample(3000, 5))
        result = self.kedge("train-gate", text, judged, "-m", MODEL, "--gate-out", out, "--held-out", "judged.txt",
                            "--stage", "lm", "--train-tokens", "1536", "--train-lengths", "192", "--gate-width", "16",
                            "--lm-steps", "2", "--lm-judge-windows", "1", "--lm-judge-every", "2", "-t", "1", *args)
        self.assertEqual(result.code, code, result)
        return result

    def test_trained_looked_at_and_used(self):
        out = self.path("out")
        result = self.train(out)
        for words in ("2 steps of 1 window", "judged at step 0", "step 2 of 2", "lm: best at step", "FLOP",
                      "tokens a parameter"):
            self.assertIn(words, result.err)
        self.assertEqual(result.out, "")
        self.assertEqual(sorted(os.listdir(out)), ["gate-lm.gguf", "lm-report.csv", "lm-report.html", "lm-state.bin"])
        with open(os.path.join(out, "lm-report.csv")) as f:
            rows = f.read().splitlines()
        self.assertEqual(len(rows), 3)
        self.assertTrue(rows[0].startswith("step,loss,"))
        self.assertTrue(rows[0].endswith(",keep_29,kld_in_training,kld_by_engine"))
        with open(os.path.join(out, "lm-report.html")) as f:
            page = f.read()
        self.assertEqual(page.count("<svg"), 4)

        gate = os.path.join(out, "gate-lm.gguf")
        info = json.loads(self.kedge("inspect", gate, "--json").out)
        self.assertEqual((info["width"], info["window"], len(info["thresholds"])), (16, 32, 9))
        self.assertIn("KL divergence", self.kedge("inspect", gate).out)
        prompt = self.path("prompt.txt", self.sample(4000, 6))
        _, stats = self.run_ok("-f", prompt, "-n", "4", "--temp", "0", "--gate", gate, "--kv-policy", "gate",
                               "--kv-budget", "25%")
        self.assertGreater(stats["evicted_rows"], 0)

        # The same command has nothing left to do; another one does not take what is there.
        again = self.train(out)
        self.assertIn("goes on after step 2", again.err)
        self.assertNotIn("judged at", again.err)
        self.assertIn("lm-state.bin", self.train(out, "--seed", "7", code=2).err)

    def test_an_ageing_stage_learns(self):
        shipped = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../models/smollm2-135m.gate.gguf")
        out = self.path("out")
        self.assert_error(self.train(out, "--lm-learns", "ageing", code=2), 2, "--lm-learns ageing", "--gate-init FILE")
        if not os.path.basename(MODEL).startswith("SmolLM2-135M-Instruct.Q4_1"):
            self.skipTest("another model is tested")
        result = self.train(out, "--lm-learns", "ageing", "--gate-init", shipped)
        self.assertIn("the ageing stage learns", result.err)
        before = json.loads(self.kedge("inspect", shipped, "--json").out)
        after = json.loads(self.kedge("inspect", os.path.join(out, "gate-lm.gguf"), "--json").out)
        self.assertEqual(after["ageing"], before["ageing"])
        self.assertEqual((after["width"], after["thresholds"]), (before["width"], before["thresholds"]))
        self.assert_error(self.train(out, "--lm-learns", "ageing", "--gate-init", shipped, "--lm-pressure", "penalty",
                                     code=2), 2, "--lm-pressure", "penalty", "exact, layer")

    def test_an_adapter_learns_beside_the_gate(self):
        out = self.path("out")
        result = self.train(out, "--lm-lora", "2", "--lm-lora-rate", "0.01", "--lm-steps", "3", "--lm-judge-every", "1")
        self.assertIn("beside a LoRA adapter of rank 2, learning rate 0.01", result.err)
        self.assertIn("lora.gguf", result.err)
        lora, gate = os.path.join(out, "lora.gguf"), os.path.join(out, "gate-lm.gguf")
        self.assertEqual(sorted(os.listdir(out)),
                         ["gate-lm.gguf", "lm-report.csv", "lm-report.html", "lm-state.bin", "lora.gguf"])
        with open(os.path.join(out, "lm-report.html")) as f:
            self.assertIn("LoRA adapter of rank 2", f.read())
        info = json.loads(self.kedge("inspect", lora, "--json").out)
        self.assertEqual(len(info["matrices"]), 4 * 30)
        self.assertEqual({matrix["rank"] for matrix in info["matrices"]}, {2})
        self.assertEqual(info["alpha"], 2)
        self.assertIn("under its evictions", info["description"])
        loss = json.loads(self.kedge("inspect", gate, "--json").out)["training"]["loss"]
        self.assertIn("LoRA adapter of rank 2", loss)
        prompt = self.path("prompt.txt", self.sample(4000, 6))
        run = ["-f", prompt, "-n", "4", "--temp", "0", "--gate", gate, "--kv-policy", "gate", "--kv-budget", "25%"]
        result, stats = self.run_ok(*run, "--lora", lora, "--lora-scale", "0.5")
        self.assertIn("adapter (sha256 ", result.err)
        self.assertGreater(stats["evicted_rows"], 0)
        # Another rank is another training.
        self.assertIn("lm-state.bin", self.train(out, "--lm-lora", "3", code=2).err)
        self.assertIn("lm-state.bin", self.train(out, code=2).err)
        self.assertIn("--lm-rows", self.train(self.path("o"), "--lm-lora", "2", "--lm-rows", "full", code=2).err)

    def test_mistakes_are_named(self):
        text = self.path("text.txt", self.sample(3000, 1))
        train = ["train-gate", text, "--stage", "lm", "-m", MODEL]
        out = ["--gate-out", self.path("o")]
        self.assert_error(self.kedge(*train), 2, "--gate-out")
        self.assert_error(self.kedge(*train, *out, "--lm-loss", "mse"), 2, "--lm-loss", "mse", "kl")
        self.assert_error(self.kedge(*train, *out, "--lm-keep", "1.5"), 2, "--lm-keep", "1.5", "0.95")
        self.assert_error(self.kedge(*train, *out, "--stage", "all"), 2, "--stage", "all", "labels")
        self.assert_error(self.kedge(*train, *out, "--train-lengths", "64"), 2, "--train-lengths", "64", "128")
        self.assert_error(self.kedge(*train, *out), 2, "0 windows")
        enough = ["--train-tokens", "1024", "--train-lengths", "128"]
        self.assert_error(self.kedge(*train, *out, *enough, "--held-out", "b.txt"), 2, "b.txt")
        long = self.path("long.txt", self.sample(9000, 1))
        more = ["train-gate", long, text, "--held-out", "text.txt", "--stage", "lm", "-m", MODEL, *out, *enough]
        self.assert_error(self.kedge(*more, "--gate-init", self.path("none.gguf")), 3, "none.gguf")
        self.assert_error(self.kedge(*more, "--gate-init", MODEL), 3, "general.architecture", "kedge-gate")
        self.assertIn("--lm-steps", self.kedge("train-gate", "--help").out)


if __name__ == "__main__":
    if not BUILT:
        print("left out: built without libtorch", file=sys.stderr)
    unittest.main()
