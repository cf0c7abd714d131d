"""A fixed number of KV bytes: every policy, real texts far larger than the budget, and what is kept."""
import json
import random
import re
import unittest

from kedge_cli import MIB, MODEL, KedgeTest

POLICIES = ("andpro", "snapkv", "streaming", "recent", "random")


class Budget(KedgeTest):
    def test_the_peak_never_passes_the_budget(self):
        prompt = self.path("long.txt", self.sample(9000, 3))  # about 2,300 tokens, 52 MB of full cache
        for budget in ("16MiB", "8MiB", "4MiB"):
            for policy in POLICIES if budget == "8MiB" else ("andpro",):
                _, stats = self.run_ok("-f", prompt, "-n", "12", "--temp", "0",
                                       "--kv-budget", budget, "--kv-policy", policy)
                where = f"{policy} at {budget}"
                self.assertLessEqual(stats["kv_peak_bytes"], stats["kv_budget_bytes"], where)
                self.assertLessEqual(stats["kv_budget_bytes"], int(budget[:-3]) * MIB, where)
                self.assertGreater(stats["evicted_rows"], 0, where)
                self.assertGreater(stats["kv_full_bytes"], stats["kv_budget_bytes"], where)
                self.assertLess(stats["keep"], 0.5, where)
                if budget != "4MiB":
                    self.assertGreaterEqual(stats["fill"], 0.85, where)

    def test_a_time_limit_that_cannot_be_met_falls_back_every_time(self):
        prompt = self.path("long.txt", self.sample(9000, 8))
        result, stats = self.run_ok("-f", prompt, "-n", "70", "--temp", "0", "--kv-budget", "8MiB",
                                    "--kv-policy", "andpro", "--kv-time-limit", "1")
        self.assertGreater(stats["evictions"], 0)
        self.assertEqual(stats["policy_fallbacks"], stats["evictions"])
        self.assertGreater(stats["policy_fallback_rounds"], 0)
        self.assertLessEqual(stats["kv_peak_bytes"], stats["kv_budget_bytes"])
        self.assertIn("over the time limit", result.err.splitlines()[-1])
        # The default's layers share one total: they are scored once a chunk and divided many times.
        _, shared = self.run_ok("-f", prompt, "-n", "70", "--temp", "0", "--kv-budget", "8MiB", "--kv-time-limit", "1")
        self.assertGreater(shared["policy_fallbacks"], 30)
        self.assertEqual(shared["policy_fallbacks"], shared["evictions"])
        self.assertLessEqual(shared["kv_peak_bytes"], shared["kv_budget_bytes"])
        _, unhurried = self.run_ok("-f", prompt, "-n", "70", "--temp", "0", "--kv-budget", "8MiB")
        self.assertEqual(unhurried["policy_fallbacks"], 0)
        self.assertGreater(unhurried["decode_max_ms"], unhurried["decode_p50_ms"])

    def test_two_mebibytes_work_or_are_refused_with_the_arithmetic(self):
        prompt = self.path("long.txt", self.sample(8000, 4))
        stats = self.path("s.json")
        result = self.kedge("run", "-m", MODEL, "-f", prompt, "-n", "4", "--temp", "0",
                            "--kv-budget", "2MiB", "--stats", stats)
        if result.code == 0:
            with open(stats) as f:
                held = json.load(f)
            self.assertLessEqual(held["kv_peak_bytes"], 2 * MIB)
            self.assertGreater(held["evicted_rows"], 0)
        else:
            self.assert_error(result, 4, "2MiB", "smallest")  # before the prompt is read

    def test_the_smallest_budget_named_works(self):
        prompt = self.path("long.txt", self.sample(6000, 5))
        refused = self.kedge("run", "-m", MODEL, "-f", prompt, "-n", "4", "--kv-budget", "100KiB")
        self.assert_error(refused, 4, "100KiB", "smallest")
        least = re.findall(r"\d+(?:\.\d+)?(?:KiB|MiB|B)", refused.err)[-1]
        _, stats = self.run_ok("-f", prompt, "-n", "4", "--temp", "0", "--kv-budget", least)
        self.assertLessEqual(stats["kv_peak_bytes"], stats["kv_budget_bytes"])

    def test_shares_and_rows(self):
        prompt = self.path("t.txt", self.sample(6000, 6))
        _, share = self.run_ok("-f", prompt, "-n", "4", "--temp", "0", "--kv-budget", "25%")
        self.assertAlmostEqual(share["keep"], 0.25, delta=0.05)
        _, rows = self.run_ok("-f", prompt, "-n", "4", "--temp", "0", "--kv-budget", "300tok")
        tokens = rows["prompt_tokens"] + rows["generated_tokens"]
        self.assertAlmostEqual(rows["keep"] * tokens, 300, delta=40)

    def test_the_map_holds_what_the_statistics_count(self):
        prompt = self.path("t.txt", self.sample(6000, 7))
        _, stats = self.run_ok("-f", prompt, "-n", "1", "--temp", "0", "--kv-budget", "20%", "--kv-policy", "andpro",
                               "--kv-map", self.path("map.json"))
        with open(self.path("map.json")) as f:
            held = json.load(f)
        self.assertEqual(held["n_tokens"], stats["prompt_tokens"])
        self.assertEqual([len(layer) for layer in held["layers"]], [3] * 30)
        ragged = 0
        for layer in held["layers"]:
            ragged += len({len(head) for head in layer}) > 1
            for head in layer:
                self.assertEqual(head, sorted(set(head)))
                self.assertEqual(head[:4], [0, 1, 2, 3])  # sinks
                self.assertEqual(head[-1], held["n_tokens"] - 1)
        self.assertGreater(ragged, 15)
        rows = sum(len(head) for layer in held["layers"] for head in layer)
        self.assertAlmostEqual(rows / (held["n_tokens"] * 90), stats["keep"], places=6)

    def test_a_long_answer_stays_inside(self):
        _, stats = self.run_ok("-p", "Once upon a time", "-n", "300", "--temp", "1", "--seed", "3",
                               "--kv-budget", "4MiB", "--kv-policy", "streaming")
        self.assertLessEqual(stats["kv_peak_bytes"], 4 * MIB)
        if stats["finish_reason"] == "length":
            self.assertGreater(stats["evicted_rows"], 0)

    def test_a_passkey_survives_at_a_quarter(self):
        rng = random.Random(8)
        found = 0
        for depth in (0.1, 0.5, 0.9):
            key = "".join(rng.choice("123456789") for _ in range(5))
            text = self.sample(3900, rng.randrange(1000))
            cut = text.rfind("\n", 0, int(len(text) * depth)) + 1
            needle = f"\n\nThe secret pass key is {key}. Remember it: {key} is the secret pass key.\n\n"
            question = ("\n\nQuestion: What is the secret pass key mentioned in the text above?"
                        "\nAnswer: The secret pass key is")
            prompt = self.path("pass.txt", text[:cut] + needle + text[cut:] + question)
            result, stats = self.run_ok("-f", prompt, "-n", "8", "--temp", "0",
                                        "--kv-budget", "25%", "--kv-policy", "andpro")
            self.assertLess(stats["keep"], 0.35)
            found += key in result.out.replace(" ", "")
        self.assertGreaterEqual(found, 2)

    def test_overflow_is_answered_as_asked(self):
        prompt = self.path("t.txt", self.sample(8000, 9))
        base = ["run", "-m", MODEL, "-f", prompt, "-n", "4", "--temp", "0", "--kv-budget", "8MiB"]
        refused = self.kedge(*base, "--kv-overflow", "error")
        self.assert_error(refused, 1)
        self.assertRegex(refused.err, r"\d+ tokens")
        _, stats = self.run_ok(*base[3:], "--kv-overflow", "truncate")
        self.assertEqual(stats["evicted_rows"], 0)
        self.assertLessEqual(stats["kv_peak_bytes"], 8 * MIB)


if __name__ == "__main__":
    unittest.main()
