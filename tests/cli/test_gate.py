"""A discard gate from the command line: taught on a text, looked at, used, and refused where it does not belong."""
import json
import os
import re
import unittest

from kedge_cli import MODEL, KedgeTest


class Gate(KedgeTest):
    def content(self, path):
        with open(path, "rb") as f:
            return f.read()

    def train(self, out, *args, code=0):
        text = self.path("text.txt", self.sample(16000, 3))
        if "--gate-input" not in args:
            args = (*args, "--gate-input", "hidden")
        result = self.kedge("train-gate", text, "-m", MODEL, "--gate-out", out, "--train-tokens", "2560",
                            "--train-lengths", "256", "--gate-epochs", "1", "--gate-width", "16", "--progress", "none",
                            *args)
        self.assertEqual(result.code, code, result)
        return result

    def test_taught_looked_at_and_used(self):
        out = self.path("gate")
        result = self.train(out)
        self.assertIn("labels of 2560 tokens", result.err)
        gate = os.path.join(out, "gate-mlp.gguf")
        with open(os.path.join(out, "report.csv")) as f:
            rows = f.read().splitlines()
        self.assertEqual(rows[0], "gate,stage,layer,head,r2,spearman")
        self.assertEqual(len(rows), 1 + 2 * 30 * 3)
        ranks = [float(row.split(",")[5]) for row in rows[1:] if row.startswith("mlp,")]
        self.assertGreater(sum(ranks) / len(ranks), 0.2, "it learned something of text that it did not see")

        info = json.loads(self.kedge("inspect", gate, "--json").out)
        self.assertEqual((info["width"], info["input"], info["window"]), (16, "hidden", 32))
        self.assertEqual(len(info["thresholds"]), 9)
        self.assertEqual(info["products_per_token"], 30 * 16 * (576 + 3))
        self.assertIn("discard gate", self.kedge("inspect", gate).out)

        prompt = self.path("prompt.txt", self.sample(6000, 5))
        for policy in ("gate", "hybrid", "hybrid:base=andpro/error:window=32"):
            _, stats = self.run_ok("-f", prompt, "-n", "8", "--temp", "0", "--gate", gate, "--kv-policy", policy,
                                   "--kv-budget", "10%")
            self.assertLessEqual(stats["kv_peak_bytes"], stats["kv_budget_bytes"])
            self.assertGreater(stats["evicted_rows"], 0)

        # Labels that are there are used; other options make them anew; what is damaged is made anew.
        self.assertNotIn("labels of", self.train(out).err)
        shard = os.path.join(out, "rows-00003.bin")
        with open(shard, "r+b") as f:
            f.seek(1000)
            f.write(b"\0\1\2\3\4\5\6\7")
        self.assertIn("labels of 256 tokens", self.train(out).err)
        self.assertIn("labels of 2560 tokens", self.train(out, "--gate-label", "future").err)

    def test_inputs_are_taught_side_by_side_and_recorded(self):
        out = self.path("gates")
        result = self.train(out, "--gate-input", "hidden,key-value,access,attention,all")
        self.assertEqual(result.err.count("at a cut R^2"), 10)
        with open(os.path.join(out, "report.csv")) as f:
            rows = [row.split(",") for row in f.read().splitlines()[1:]]
        self.assertEqual(len(rows), 2 * 3 * 90 + 2 * 5 * 90, "three have an append stage, all are judged at a cut")
        rank = {}
        for row in rows:
            if row[1] == "late":
                rank[row[0]] = rank.get(row[0], 0) + float(row[5]) / 90
        self.assertGreater(rank["all-mlp"], rank["mlp"] + 0.02, "what was seen since adds to what was written")
        self.assertGreater(min(rank.values()), 0.15, rank)

        prompt = self.path("prompt.txt", self.sample(6000, 5))
        expected = {"mlp": ("hidden", []), "key-value-mlp": ("key_value", []),
                    "access-mlp": ("none", ["attention", "last_access", "age"]),
                    "attention-mlp": ("none", ["window_max", "window_mean"]),
                    "all-mlp": ("hidden", ["logit", "attention", "window_max", "window_mean", "last_access", "age",
                                           "key_norm", "value_norm"])}
        for name, (stage, features) in expected.items():
            gate = os.path.join(out, f"gate-{name}.gguf")
            info = json.loads(self.kedge("inspect", gate, "--json").out)
            self.assertEqual((info["input"], info["ageing"]["features"]), (stage, features))
            self.assertEqual(info["version"], 1 if name == "mlp" else 2)
            self.assertEqual(info["ageing"]["products_per_row"], 16 * (len(features) + 1) if features else 0)
            self.assertIn("append stage", self.kedge("inspect", gate).out)
            session = self.path(name + ".kedge")
            args = ["run", "-m", MODEL, "-f", prompt, "-n", "4", "--temp", "0", "--gate", gate, "--kv-policy", "gate",
                    "--kv-budget", "10%"]
            self.assertEqual(self.kedge(*args, "--session", session).code, 0)
            other = os.path.join(out, "gate-attention-linear.gguf")
            args[args.index(gate)] = other
            self.assert_error(self.kedge(*args, "--session", session), 2, "gate", "sha256")

    def test_an_ageing_stage_is_fitted_to_a_first_stage_that_is_given(self):
        out = self.path("gate")
        self.train(out)
        first = os.path.join(out, "gate-mlp.gguf")
        aged = self.path("aged")
        self.train(aged, "--gate-input", "window", "--gate-init", first, "--gate-width", "24")
        with open(first, "rb") as one, open(os.path.join(aged, "gate-window-mlp.gguf"), "rb") as other:
            before, after = one.read(), other.read()
        # The last layer's w2, f32 [3][16], stands before its b2 and the thresholds.
        self.assertTrue(before[-300:-140] in after, "the first stage is taken as it is")
        info = json.loads(self.kedge("inspect", os.path.join(aged, "gate-window-mlp.gguf"), "--json").out)
        self.assertEqual((info["width"], info["input"]), (16, "hidden"), "the given gate's")
        self.assertEqual(info["ageing"]["features"][0], "logit")
        self.assertIn("append stage: squared error", info["training"]["loss"])

        text = self.path("text.txt", self.sample(16000, 3))
        train = ["train-gate", "-m", MODEL, text, "--gate-out", self.path("o"), "--train-tokens", "2560",
                 "--train-lengths", "256", "--gate-init", first, "--gate-input"]
        allowed = "window, all, all-echo, anchor"
        self.assert_error(self.kedge(*train, "hidden"), 2, "--gate-input", "'hidden'", allowed)
        self.assert_error(self.kedge(*train, "window,echo"), 2, "--gate-input", "'echo'", allowed)
        train[train.index(first)] = MODEL
        self.assert_error(self.kedge(*train, "window"), 3, "general.architecture", "kedge-gate")

    def test_inputs_that_are_none_are_named(self):
        text = self.path("text.txt", self.sample(3000, 1))
        train = ["train-gate", "-m", MODEL, text, "--gate-out", self.path("o"), "--gate-input"]
        self.assert_error(self.kedge(*train, "queries"), 2, "--gate-input", "queries", "key-value")
        self.assert_error(self.kedge(*train, "all,all"), 2, "--gate-input", "all", "once")
        self.assert_error(self.kedge(*train, "all", "--gate-window", "2000", "--train-lengths", "8k"), 2,
                          "--gate-window", "2000", "1024")

    def test_a_width_of_0_is_a_linear_gate_alone(self):
        out = self.path("gate")
        self.assertNotIn("mlp:", self.train(out, "--gate-width", "0").err)
        self.assertEqual(sorted(f for f in os.listdir(out) if f.endswith(".gguf")), ["gate-linear.gguf"])
        with open(os.path.join(out, "report.csv")) as f:
            self.assertEqual(len(f.read().splitlines()), 1 + 30 * 3)

    def test_what_does_not_belong_is_refused(self):
        prompt = self.path("prompt.txt", self.sample(2000, 1))
        run = ["run", "-m", MODEL, "-f", prompt, "-n", "2", "--kv-budget", "20%"]
        self.assert_error(self.kedge(*run, "--kv-policy", "gate"), 2, "gate", "--gate FILE")
        self.assert_error(self.kedge(*run, "--gate", MODEL), 3, "general.architecture", "llama", "kedge-gate")
        self.assert_error(self.kedge(*run, "--gate", self.path("none.gguf")), 3, "none.gguf")
        out = self.path("gate")
        self.train(out)
        with open(os.path.join(out, "gate-linear.gguf"), "rb") as f:
            whole = f.read()
        cut = self.path("cut.gguf", whole[:-100])
        self.assert_error(self.kedge(*run, "--gate", cut), 3, "cut.gguf")
        sha = re.search(rb"[0-9a-f]{64}", whole).group(0)
        other = self.path("other.gguf", whole.replace(sha, b"0" * 64, 1))
        self.assert_error(self.kedge(*run, "--gate", other), 3, "another model", "0000000000000000", sha.decode()[:16])

    def test_the_shipped_gate_is_of_the_default_model(self):
        gate = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../models/smollm2-135m.gate.gguf")
        info = json.loads(self.kedge("inspect", gate, "--json").out)
        parameters = 134_515_008
        self.assertLess(info["products_per_token"], 0.011 * parameters, "of the model's own products for a token")
        if not os.path.basename(MODEL).startswith("SmolLM2-135M-Instruct.Q4_1"):
            self.skipTest("another model is tested")
        prompt = self.path("prompt.txt", self.sample(9000, 4))
        for policy in ("gate", "hybrid"):
            _, stats = self.run_ok("-f", prompt, "-n", "16", "--temp", "0", "--gate", gate, "--kv-policy", policy,
                                   "--kv-budget", "25%")
            self.assertLessEqual(stats["kv_peak_bytes"], stats["kv_budget_bytes"])
            self.assertGreater(stats["evicted_rows"], 0)
            self.assertEqual(stats["generated_tokens"], 16)

    def test_it_discards_ahead_of_the_budget(self):
        out = self.path("gate")
        self.train(out, "--gate-width", "0")
        gate = ["--gate", os.path.join(out, "gate-linear.gguf")]
        prompt = self.path("prompt.txt", self.sample(4000, 2))
        run = ["-f", prompt, "-n", "8", "--temp", "0"]
        _, whole = self.run_ok(*run)
        _, fixed = self.run_ok(*run, *gate, "--gate-mode", "threshold:at=0.5")
        self.assertEqual(fixed["gate_threshold"], 0.5)
        self.assertEqual(fixed["discarded_rows"], fixed["evicted_rows"])
        self.assertLess(fixed["kv_live_bytes"], 0.8 * whole["kv_live_bytes"])
        rates = {}
        for budget in ("90%", "30%"):
            _, stats = self.run_ok(*run, *gate, "--gate-mode", "adaptive", "--kv-policy", "gate", "--kv-budget", budget)
            self.assertLessEqual(stats["kv_peak_bytes"], stats["kv_budget_bytes"])
            rates[budget] = stats["gate_threshold"], stats["discarded_rows"]
        self.assertLess(rates["90%"], rates["30%"], "a fuller memory discards more")

        session = self.path("s.kedge")
        self.run_ok(*run, *gate, "--gate-mode", "adaptive", "--session", session)
        self.assert_error(self.kedge("run", "-m", MODEL, *run, *gate, "--gate-mode", "threshold", "--session", session),
                          2, "--gate-mode", "threshold", "adaptive")
        bad = ["run", "-m", MODEL, *run]
        self.assert_error(self.kedge(*bad, "--gate-mode", "adaptive"), 2, "adaptive", "--gate FILE")
        self.assert_error(self.kedge(*bad, *gate, "--gate-mode", "adaptve"), 2, "adaptve", "adaptive")
        self.assert_error(self.kedge(*bad, *gate, "--gate-mode", "threshold:at=3"), 2, "'at'", "3", "0..1")

    def test_mistakes_of_training_are_named(self):
        text = self.path("text.txt", self.sample(3000, 1))
        train = ["train-gate", "-m", MODEL]
        self.assert_error(self.kedge(*train, "--gate-out", self.path("o")), 2, "documents")
        self.assert_error(self.kedge(*train, text), 2, "--gate-out")
        self.assert_error(self.kedge(*train, text, "--gate-out", self.path("o"), "--held-out", "b.txt"), 2, "b.txt")
        self.assert_error(self.kedge(*train, text, "--gate-out", self.path("o"), "--train-lengths", "64"), 2,
                          "--train-lengths", "64", "128")
        self.assert_error(self.kedge(*train, text, "--gate-out", self.path("o")), 2, "0 windows")

    def test_a_session_goes_on_with_its_gate_only(self):
        out = self.path("gate")
        self.train(out)
        gates = [os.path.join(out, f"gate-{name}.gguf") for name in ("mlp", "linear")]
        prompt = self.path("prompt.txt", self.sample(3000, 2))
        session = self.path("session.kedge")
        args = ["run", "-m", MODEL, "-f", prompt, "-n", "4", "--temp", "0", "--kv-budget", "20%", "--kv-policy", "gate",
                "--session", session]
        self.assertEqual(self.kedge(*args, "--gate", gates[0]).code, 0)
        before = self.content(session)
        self.assert_error(self.kedge(*args, "--gate", gates[1]), 2, "gate", "sha256")
        self.assert_error(self.kedge(*args), 2, "gate")
        self.assertEqual(self.content(session), before, "the file is as it was")


if __name__ == "__main__":
    unittest.main()
