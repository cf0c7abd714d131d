"""kedge bench: the four formats, what a row must hold, llama.cpp beside it, and what is refused."""
import csv
import io
import json
import signal
import subprocess
import time
import unittest

from kedge_cli import KEDGE, MIB, MODEL, KedgeTest

QUICK = ["-p", "48", "-n", "6", "-r", "2", "-t", "1", "--no-warmup", "--progress", "none"]
FIELDS = {
    "backends": str, "model_filename": str, "model_type": str, "model_size": int, "model_n_params": int,
    "n_batch": int, "n_ubatch": int, "n_threads": int, "type_k": str, "type_v": str, "n_prompt": int, "n_gen": int,
    "n_depth": int, "test_time": str, "avg_ns": int, "stddev_ns": int, "avg_ts": float, "stddev_ts": float,
    "samples_ns": list, "samples_ts": list, "kv_budget": str, "kv_policy": str, "kv_peak_bytes": int,
    "kv_budget_bytes": int, "rss_peak_bytes": int, "policy_ms": float, "read_gb_s": float,
}


class Bench(KedgeTest):
    def bench(self, *args, **kw):
        result = self.kedge("bench", "-m", MODEL, *args, **kw)
        self.assertEqual(result.code, 0, result)
        return result.out

    def test_rows_say_what_was_measured(self):
        rows = json.loads(self.bench(*QUICK, "-d", "200", "--kv-budget", "none,50%", "--kv-policy",
                                     "andpro:window=8,pool=3,streaming", "-o", "json"))
        self.assertEqual([(r["n_prompt"], r["n_gen"], r["kv_budget"], r["kv_policy"]) for r in rows],
                         [(p, n, b, policy) for p, n in ((48, 0), (0, 6))
                          for b, policy in (("full", "none"), ("50%", "andpro:window=8,pool=3"), ("50%", "streaming"))])
        for row in rows:
            for name, kind in FIELDS.items():
                self.assertIsInstance(row[name], kind, f"{name}: {row}")
            self.assertEqual(row["n_depth"], 200)
            self.assertEqual(row["n_threads"], 1)
            self.assertEqual(len(row["samples_ns"]), 2)
            self.assertAlmostEqual(row["avg_ns"], sum(row["samples_ns"]) / 2, delta=1)
            n_tokens = row["n_prompt"] + row["n_gen"]
            for ns, ts in zip(row["samples_ns"], row["samples_ts"]):
                self.assertAlmostEqual(ts, n_tokens * 1e9 / ns, delta=1e-3 * ts)
            self.assertLessEqual(row["kv_peak_bytes"], row["kv_budget_bytes"])
            self.assertGreater(row["rss_peak_bytes"], 90 * MIB)  # the weights alone
            self.assertGreater(row["read_gb_s"], 0)
            self.assertIsNone(row["ratio"])
            if row["n_gen"] > 0:
                self.assertGreater(row["attention_gb_s"], 0)
                self.assertAlmostEqual(row["attention_share"], row["attention_gb_s"] / row["read_gb_s"], places=6)
            else:
                self.assertIsNone(row["attention_gb_s"])
        full, half = rows[3], rows[4]
        self.assertLess(half["kv_peak_bytes"], full["kv_peak_bytes"])
        self.assertEqual(full["policy_ms"], 0)

    def test_beside_llama(self):
        rows = json.loads(self.bench(*QUICK, "--vs", "llama.cpp", "-o", "json"))
        self.assertEqual(len(rows), 2)
        for row in rows:
            self.assertEqual(len(row["ratios"]), 2)
            expected = [theirs / ours for theirs, ours in zip(row["llama_samples_ns"], row["samples_ns"])]
            for ratio, right in zip(row["ratios"], expected):
                self.assertAlmostEqual(ratio, right, delta=1e-3 * right)
            self.assertAlmostEqual(row["ratio"], sum(row["ratios"]) / 2, places=6)
            self.assertEqual([row["ratio_min"], row["ratio_max"]], [min(row["ratios"]), max(row["ratios"])])
            self.assertGreater(row["llama_avg_ts"], 0)

    def test_formats_hold_the_same_rows(self):
        args = ["-p", "0", "-n", "3", "-r", "1", "-t", "1", "-pg", "8,2", "--no-warmup", "--progress", "none"]
        table = self.bench(*args).splitlines()
        self.assertEqual(len(table), 4, table)
        titles = [cell.strip() for cell in table[0].strip("|").split("|")]
        self.assertEqual(titles[:4], ["model", "size", "params", "backend"])
        tests = [line.strip("|").split("|")[titles.index("test")].strip() for line in table[2:]]
        self.assertEqual(tests, ["tg3", "pp8+tg2"])
        self.assertEqual(len({len(line) for line in table[:2]} | {len(line) for line in table[2:]}), 1)
        lines = [json.loads(line) for line in self.bench(*args, "-o", "jsonl").splitlines()]
        self.assertEqual([(r["n_prompt"], r["n_gen"]) for r in lines], [(0, 3), (8, 2)])
        rows = list(csv.DictReader(io.StringIO(self.bench(*args, "-o", "csv"))))
        self.assertEqual([(r["n_prompt"], r["n_gen"]) for r in rows], [("0", "3"), ("8", "2")])
        scalars = [name for name, value in lines[0].items() if not isinstance(value, list)]
        self.assertEqual(list(rows[0]), scalars)

    def test_mistakes(self):
        for args, code, words in (
            (["-p", "12x"], 2, ["--n-prompt", "12x"]),
            (["-p", "9-3"], 2, ["9-3"]),
            (["-p", "0", "-n", "0"], 2, ["nothing to run"]),
            (["-d", "-1"], 2, ["--n-depth"]),
            (["--kv-budget", "none,12"], 2, ["12"]),
            (["--kv-policy", "andpro,snapvk"], 2, ["snapvk", "snapkv"]),
            (["--kv-policy", "window=3"], 2, ["window=3"]),
            (["-ctk", "q5_0"], 2, ["q5_0", "q4_0"]),
            (["-r", "none"], 2, ["--repetitions", "none"]),
            (["-o", "sql"], 2, ["sql"]),
            (["--vs", "vllm"], 2, ["vllm", "llama.cpp"]),
            (["model.gguf"], 2, ["model.gguf", "-m"]),
            (["-p", "2000", "-n", "0", "--kv-budget", "none,100KiB", "--progress", "none"], 4,
             ["pp2000", "100KiB", "smallest"]),
        ):
            with self.subTest(args=args):
                self.assert_error(self.kedge("bench", "-m", MODEL, *args), code, *words)
        self.assert_error(self.kedge("bench", "-m", "/nonexistent.gguf"), 3, "/nonexistent.gguf")
        self.assert_error(self.kedge("bench"), 2, "no model")

    def test_an_interrupt_keeps_what_was_measured(self):
        process = subprocess.Popen([KEDGE, "bench", "-m", MODEL, "-p", "16", "-n", "100000", "-r", "1", "-o", "json"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started = time.monotonic()
        while "pp16" not in process.stderr.readline():  # the first test is done, the second has begun
            self.assertLess(time.monotonic() - started, 120)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, err)
        self.assertEqual([row["n_prompt"] for row in json.loads(out)], [16])


if __name__ == "__main__":
    unittest.main()
