"""kedge run: where the prompt comes from, what goes to which stream, what the reports say."""
import gzip
import json
import signal
import subprocess
import time
import unittest

from kedge_cli import KEDGE, MODEL, STATS_FIELDS, KedgeTest

PROMPT = "The capital of France is"
GREEDY = ["--temp", "0", "-n", "6"]


class Run(KedgeTest):
    def test_only_the_generated_text_is_on_stdout(self):
        result, stats = self.run_ok("-p", PROMPT, *GREEDY)
        self.assertIn("Paris", result.out)
        self.assertNotIn(PROMPT, result.out)
        self.assertNotIn("KV", result.out)
        self.assertIn("KV", result.err)  # the end line: live, peak, full, kept
        self.assertEqual(stats["generated_tokens"], 6)
        self.assertEqual(stats["finish_reason"], "length")

    def test_file_gzip_stdin_and_prompt_say_the_same(self):
        by_prompt = self.run_ok("-p", PROMPT, *GREEDY)[0].out
        self.assertEqual(self.run_ok("-f", self.path("p.txt", PROMPT), *GREEDY)[0].out, by_prompt)
        packed = self.path("p.txt.gz", gzip.compress(PROMPT.encode()))
        self.assertEqual(self.run_ok("-f", packed, *GREEDY)[0].out, by_prompt)
        self.assertEqual(self.run_ok("-f", "-", *GREEDY, stdin=PROMPT)[0].out, by_prompt)
        self.assertEqual(self.run_ok(*GREEDY, stdin=PROMPT)[0].out, by_prompt)
        first = self.path("q.txt", "The capital of")
        self.assertEqual(self.run_ok("-f", first, "-p", " France is", *GREEDY)[0].out, by_prompt)

    def test_stats_have_every_field_with_sensible_values(self):
        _, stats = self.run_ok("-p", PROMPT, *GREEDY)
        for name, kind in STATS_FIELDS.items():
            self.assertIn(name, stats)
            self.assertIsInstance(stats[name], (int, float) if kind is float else kind, name)
        self.assertGreaterEqual(stats["prompt_tokens"], 5)
        self.assertGreater(stats["prefill_tok_s"], 0)
        self.assertGreater(stats["decode_tok_s"], 0)
        self.assertLessEqual(stats["kv_live_bytes"], stats["kv_peak_bytes"])
        self.assertLessEqual(stats["kv_peak_bytes"], stats["kv_budget_bytes"])
        self.assertEqual(stats["keep"], 1)
        self.assertEqual(stats["evicted_rows"], 0)
        self.assertGreater(stats["peak_rss_bytes"], 10 << 20)
        self.assertIn("none", stats["policy"])

    def test_explain_tells_best_and_worst_tokens(self):
        told = self.path("explain.json")
        result, stats = self.run_ok("-p", self.sample(3000, 5), "-n", "3", "--temp", "0", "--kv-budget", "25%",
                                    "--kv-policy", "andpro", "--explain", "4", "--explain-json", told)
        self.assertIn("tokens were judged in 90 kv heads of 30 layers", result.err)
        self.assertRegex(result.err, r"position +text +rank +score +attention +projection +held by +by layer")
        with open(told) as f:
            report = json.load(f)
        self.assertEqual((len(report["best"]), len(report["worst"]), report["n_heads"]), (4, 4, 90))
        held = [sum(len(token["held_by"]) for token in report[kind]) for kind in ("best", "worst")]
        self.assertGreater(held[0], 4 * held[1], report)
        for token in report["best"] + report["worst"]:
            self.assertEqual(set(token["parts"]), {"attention", "projection"})
            self.assertTrue(token["text"], token)
        heads = [head for layer in stats["layers"] for head in layer["heads"]]
        self.assertEqual(sum(head["rows"] for head in heads), stats["kv_rows"])
        self.assertEqual(sum(head["evicted"] for head in heads), stats["evicted_rows"])

    def test_explain_at_one_head_and_its_mistakes(self):
        told = self.path("explain.json")
        self.run_ok("-p", self.sample(2000, 6), "-n", "1", "--kv-budget", "25%", "--explain-json", told,
                    "--explain-at", "7:2")
        with open(told) as f:
            report = json.load(f)
        self.assertEqual((report["layer"], report["head"], report["n_heads"], len(report["best"])), (7, 2, 1, 10))
        self.assertEqual(report["parts"], ["echo", "past", "anchor"])
        scores = [token["score"] for token in report["best"]]
        self.assertEqual(scores, sorted(scores, reverse=True))
        for at, words in (("30", "layers 0 to 29"), ("0:3", "kv heads 0 to 2"), ("x", "LAYER:HEAD")):
            refused = self.kedge("run", "-m", MODEL, "-p", "x", "-n", "1", "--explain", "3", "--explain-at", at)
            self.assert_error(refused, 2, "--explain-at", words)

    def test_the_same_seed_says_the_same(self):
        args = ["-p", "Once upon a time", "-n", "24", "--temp", "1.0", "--seed", "5"]
        first = self.run_ok(*args)[0].out
        self.assertEqual(self.run_ok(*args)[0].out, first)
        self.assertNotEqual(self.run_ok(*args[:-1], "6")[0].out, first)

    def test_one_and_two_threads_say_the_same(self):
        prompt = self.path("t.txt", self.sample(5000, 1))
        outputs = set()
        for threads in ("1", "2"):
            result, stats = self.run_ok("-f", prompt, *GREEDY, "-t", threads, "--kv-budget", "25%",
                                        "--kv-map", self.path("m.json"))
            self.assertGreater(stats["evicted_rows"], 0)
            with open(self.path("m.json")) as f:
                outputs.add((result.out, f.read()))
        self.assertEqual(len(outputs), 1)

    def test_a_budget_that_holds_everything_says_what_none_says(self):
        prompt = self.path("t.txt", self.sample(3000, 2))
        full = self.run_ok("-f", prompt, "-n", "24", "--temp", "0", "--kv-policy", "none")[0].out
        result, stats = self.run_ok("-f", prompt, "-n", "24", "--temp", "0",
                                    "--kv-budget", "100%", "--kv-policy", "andpro")
        self.assertEqual(result.out, full)
        self.assertEqual(stats["evicted_rows"], 0)

    def test_empty_and_one_token_prompts(self):
        for prompt in ("a", "\n"):
            for budget in ([], ["--kv-budget", "4MiB"], ["--kv-budget", "50%"]):
                result, stats = self.run_ok("-p", prompt, *GREEDY, *budget)
                self.assertEqual(stats["prompt_tokens"], 1, (prompt, budget))
                self.assertEqual(stats["generated_tokens"] == 6 or stats["finish_reason"] != "length", True, result)
        # An empty prompt starts from the model's first token, or is refused in words; never a crash, never silence.
        empty = self.kedge("run", "-m", MODEL, "-p", "", *GREEDY)
        self.assertIn(empty.code, (0, 2), empty)
        self.assertIn("empty", empty.err)

    def test_zero_tokens_are_zero_tokens(self):
        result, stats = self.run_ok("-p", PROMPT, "-n", "0")
        self.assertEqual(result.out, "")
        self.assertEqual(stats["generated_tokens"], 0)

    def test_the_environment_and_a_config_file_are_read_in_order(self):
        by_flag = self.kedge("run", "-m", MODEL, "-p", PROMPT, *GREEDY)
        by_env = self.kedge("run", "-p", PROMPT, "--temp", "0", env={"KEDGE_MODEL": MODEL, "KEDGE_PREDICT": "6"})
        self.assertEqual((by_env.code, by_env.out), (0, by_flag.out), by_env)
        config = self.path("kedge.toml", f'model = "{MODEL}"\npredict = 3\ntemp = 0.0\n')
        by_file = self.kedge("run", "-p", PROMPT, "--config", config, "-n", "6")
        self.assertEqual((by_file.code, by_file.out), (0, by_flag.out), by_file)
        unknown = self.kedge("run", "-p", PROMPT, "--config", self.path("bad.toml", "kv-budgett = \"64MiB\"\n"))
        self.assert_error(unknown, 2, "kv-budgett", "kv-budget")

    def test_chat_applies_the_models_template(self):
        _, plain = self.run_ok("-p", "What is the capital of France?", "-n", "1", "--temp", "0")
        result, stats = self.run_ok("-p", "What is the capital of France?", "-n", "24", "--temp", "0", "--chat")
        self.assertIn("Paris", result.out)
        self.assertGreater(stats["prompt_tokens"], plain["prompt_tokens"] + 5)
        self.assertNotIn("<|im_", result.out)

    def test_interactive_answers_every_line(self):
        result = self.kedge("run", "-m", MODEL, "--interactive", "--temp", "0", "-n", "24",
                            stdin="What is the capital of France?\nAnd of Italy?\n")
        self.assertEqual(result.code, 0, result)
        self.assertIn("Paris", result.out)
        self.assertIn("Rome", result.out)

    def test_interrupt_stops_and_tells(self):
        process = subprocess.Popen([KEDGE, "run", "-m", MODEL, "-p", "Count: 1, 2, 3,", "-n", "5000", "--temp", "0",
                                    "--stats", self.path("s.json")],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertTrue(process.stdout.read(1))  # it is generating
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
        self.assertIn(process.returncode, (0, 130), err)
        with open(self.path("s.json")) as f:
            stats = json.load(f)
        self.assertLess(stats["generated_tokens"], 5000)
        self.assertNotEqual(stats["finish_reason"], "length")

    def test_a_closed_pipe_is_not_a_crash(self):
        process = subprocess.Popen([KEDGE, "run", "-m", MODEL, "-p", "Count: 1, 2, 3,", "-n", "200", "--temp", "0"],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        process.stdout.close()
        deadline = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        self.assertIsNotNone(process.poll())
        self.assertNotIn(process.returncode, (-signal.SIGSEGV, -signal.SIGABRT))


if __name__ == "__main__":
    unittest.main()
