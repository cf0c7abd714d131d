"""Runs the program as a user does. Standard library only; every test file here runs on its own:

    KEDGE=build/kedge KEDGE_MODEL=... KEDGE_TEXT=... python3 tests/cli/test_run.py
"""
import gzip
import json
import os
import random
import subprocess
import tempfile
import unittest

KEDGE = os.environ.get("KEDGE", "build/kedge")
MODEL = os.environ.get("KEDGE_MODEL", "")
TEXT_PATH = os.environ.get("KEDGE_TEXT", "") or "/usr/share/developers-reference/developers-reference.txt.gz"
MIB = 1 << 20
STATS_FIELDS = {
    "prompt_tokens": int, "generated_tokens": int, "prefill_tok_s": float, "decode_tok_s": float, "kv_live_bytes": int,
    "kv_peak_bytes": int, "kv_full_bytes": int, "kv_budget_bytes": int, "keep": float, "evicted_rows": int,
    "policy": str, "policy_ms": float, "peak_rss_bytes": int, "finish_reason": str,
}


def real_text():
    opener = gzip.open if TEXT_PATH.endswith(".gz") else open
    with opener(TEXT_PATH, "rb") as f:
        return f.read().decode("utf-8", "replace")


class Result:
    def __init__(self, process):
        self.code, self.out, self.err = process.returncode, process.stdout, process.stderr

    def __repr__(self):
        return f"exit {self.code}, stdout {self.out[:200]!r}, stderr {self.err[-400:]!r}"


class KedgeTest(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        if not os.path.exists(KEDGE):
            raise AssertionError(f"KEDGE={KEDGE} is not there: build first")
        if not os.path.exists(MODEL):
            raise AssertionError("KEDGE_MODEL names no file; `tools/setup --print-env` says where it is")

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name, content=None):
        path = os.path.join(self.folder, name)
        if content is not None:
            with open(path, "wb") as f:
                f.write(content if isinstance(content, bytes) else content.encode())
        return path

    def kedge(self, *args, stdin="", env=None, timeout=600):
        # What a developer has set in the environment must not decide a test; the tests name everything themselves.
        clean = {k: v for k, v in os.environ.items() if not k.startswith("KEDGE")}
        clean.update(env or {})
        process = subprocess.run([KEDGE, *map(str, args)], input=stdin.encode() if isinstance(stdin, str) else stdin,
                                 capture_output=True, timeout=timeout, env=clean)
        process.stdout = process.stdout.decode("utf-8", "replace")
        process.stderr = process.stderr.decode("utf-8", "replace")
        return Result(process)

    def run_ok(self, *args, **kw):
        """`kedge run` that must succeed: (result, stats)."""
        stats = self.path("stats.json")
        result = self.kedge("run", "-m", MODEL, *args, "--stats", stats, **kw)
        self.assertEqual(result.code, 0, result)
        with open(stats) as f:
            return result, json.load(f)

    def assert_error(self, result, code, *words):
        """One clear line on stderr, nothing on stdout, the exit code of the kind of mistake."""
        self.assertEqual(result.code, code, result)
        self.assertEqual(result.out, "", result)
        lines = [line for line in result.err.splitlines() if "error" in line.lower()]
        self.assertEqual(len(lines), 1, result)
        for word in words:
            self.assertIn(word, lines[0])

    def sample(self, n_chars, seed):
        text = real_text()
        begin = random.Random(seed).randrange(0, len(text) - n_chars)
        return text[begin:begin + n_chars]
