"""Mistakes: the exit code of their kind, one clear line on stderr, nothing on stdout, no crash."""
import os
import struct
import unittest

from kedge_cli import MODEL, KedgeTest


class BadInput(KedgeTest):
    def test_usage_names_the_nearest(self):
        for args, words in (
            (["frobnicate"], ["frobnicate"]),
            (["rum"], ["rum", "run"]),
            (["run", "-m", MODEL, "-p", "x", "--kv-budgett", "4MiB"], ["--kv-budgett", "--kv-budget"]),
            (["run", "-m", MODEL, "-p", "x", "--nosuch"], ["--nosuch"]),
            (["run", "-m", MODEL, "-p", "x", "--kv-policy", "andpor"], ["andpor", "andpro"]),
            (["run", "-m", MODEL, "-p", "x", "--kv-policy", "snapkv/poled"], ["poled", "pooled"]),
            (["run", "-m", MODEL, "-p", "x", "--kv-policy", "andpro:windw=3"], ["windw", "window"]),
            (["run", "-m", MODEL, "-p", "x", "--kv-policy", "andpro:window=many"], ["window", "many"]),
            (["run", "-m", MODEL, "-p", "x", "--kv-policy", "andpro:window=-1"], ["window"]),
            (["run", "-m", MODEL, "-p", "x", "--kv-overflow", "perhaps"], ["perhaps", "evict"]),
            (["run", "-m", MODEL, "-p", "x", "-n", "few"], ["few"]),
            (["run", "-m", MODEL, "-p", "x", "--temp", "hot"], ["hot"]),
            (["run", "-m", MODEL, "-p", "x", "-ctk", "q3"], ["q3"]),
            (["run", "-m", MODEL, "-p", "x", "--kv-recent", "-3"], ["recent"]),
            (["run", "-m", MODEL, "-p", "x", "--kv-time-limit", "-1"], ["--kv-time-limit", "-1"]),
            (["run", "-m", MODEL, "-p", "x", "--kv-time-limit", "soon"], ["--kv-time-limit", "soon"]),
            (["run", "-m", MODEL, "-p", "x", "--kv-policy", "andpro/evry"], ["evry", "every"]),
            (["run", "-m", MODEL, "-p", "x", "--kv-policy", "andpro/every:high=0.5,low=0.6"], ["low", "high"]),
            (["run", "-m", MODEL, "-p", "x", "--kv-policy", "andpro/pressure:light=0.9,medium=0.8"], ["medium"]),
            (["run", "-m", MODEL, "-p", "x", "--kv-policy", "andpro/context:min=0.9,max=0.5"], ["min", "max"]),
            (["run", "-m", MODEL, "-p"], ["-p"]),
            (["run", "-p", "x"], ["model"]),
            (["policies", "andpor"], ["andpor", "andpro"]),
            (["perplexity", "-m", MODEL, "-f", "/dev/null", "--context", "0"], ["context"]),
        ):
            with self.subTest(args=args):
                self.assert_error(self.kedge(*args), 2, *words)

    def test_budgets_that_mean_nothing(self):
        for budget in ("0", "0MiB", "-1MiB", "12", "x", "12XB", "101%", "0%", "nan%", "1e999MiB", "-5tok", "MiB"):
            with self.subTest(budget=budget):
                self.assert_error(self.kedge("run", "-m", MODEL, "-p", "x", f"--kv-budget={budget}"), 2, budget)

    def test_impossible_budgets_show_the_arithmetic(self):
        result = self.kedge("run", "-m", MODEL, "-p", "x y z " * 400, "--kv-budget", "100KiB")
        self.assert_error(result, 4, "100KiB", "smallest")

    def test_a_prompt_longer_than_the_context(self):
        result = self.kedge("run", "-m", MODEL, "-p", "word " * 300, "-c", "100", "-n", "4")
        self.assert_error(result, 1, "100")
        self.assertRegex(result.err, r"\b30[0-9]\b")

    def test_files_that_are_not_there_or_not_readable(self):
        self.assert_error(self.kedge("run", "-m", "/nonexistent.gguf", "-p", "x"), 3, "/nonexistent.gguf")
        self.assert_error(self.kedge("run", "-m", self.folder, "-p", "x"), 3)
        self.assert_error(self.kedge("run", "-m", MODEL, "-f", "/nonexistent.txt"), 1, "/nonexistent.txt")
        stats = "/nonexistent/s.json"
        self.assert_error(self.kedge("run", "-m", MODEL, "-p", "x", "--stats", stats), 1, stats)
        damaged = self.path("d.gz", b"\x1f\x8b\x08\x00garbage")
        self.assert_error(self.kedge("run", "-m", MODEL, "-f", damaged), 1, "gzip")

    def head(self, n):
        with open(MODEL, "rb") as f:
            return f.read(n)

    def test_truncated_models(self):
        size = os.path.getsize(MODEL)
        head = self.head(3 << 20)
        for cut in (0, 1, 3, 4, 8, 24, 25, 100, 1000, 65536, 1 << 20, len(head)):
            with self.subTest(cut=cut):
                self.assert_error(self.kedge("run", "-m", self.path("cut.gguf", head[:cut]), "-p", "x"), 3)
        almost = self.path("almost.gguf")
        with open(MODEL, "rb") as source, open(almost, "wb") as target:
            target.write(source.read(size - 1))
        self.assert_error(self.kedge("run", "-m", almost, "-p", "x"), 3)

    def test_models_that_lie(self):
        head = self.head(2 << 20)
        lies = {
            "magic": b"GGUX" + head[4:],
            "version": head[:4] + struct.pack("<I", 99) + head[8:],
            "tensor count": head[:8] + struct.pack("<Q", 1 << 60) + head[16:],
            "key count": head[:16] + struct.pack("<Q", 1 << 60) + head[24:],
            "key length": head[:24] + struct.pack("<Q", (1 << 64) - 1) + head[32:],
            "text": b"This is not a model at all.\n" * 100,
        }
        for what, content in lies.items():
            with self.subTest(lie=what):
                for verb in (["run", "-p", "x"], ["inspect"]):
                    self.assert_error(self.kedge(verb[0], "-m", self.path("lie.gguf", content), *verb[1:]), 3)

    def test_any_bytes_are_a_prompt(self):
        result, stats = self.run_ok("-f", self.path("bytes.bin", bytes(range(1, 256)) * 2), "-n", "2", "--temp", "0")
        self.assertGreater(stats["prompt_tokens"], 100)


if __name__ == "__main__":
    unittest.main()
