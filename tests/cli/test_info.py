"""kedge perplexity, policies, inspect, help and --version."""
import gzip
import json
import unittest

from kedge_cli import MODEL, KedgeTest, real_text


class Perplexity(KedgeTest):
    def perplexity(self, *args):
        text = self.path("text.txt", real_text()[20000:60000])
        result = self.kedge("perplexity", "-m", MODEL, "-f", text, "--context", "192", "--continue", "24",
                            "--seed", "3", *args)
        self.assertEqual(result.code, 0, result)
        return result

    def json(self, *args):
        return json.loads(self.perplexity("--json", *args).out)

    def test_fields_and_values(self):
        report = self.json("--samples", "2", "--kv-budget", "25%", "--kv-policy", "andpro")
        for name in ("ppl", "full_ppl", "kld_mean", "kld_p99", "kld_max", "same_top", "kv_peak_bytes", "keep"):
            self.assertIsInstance(report[name], (int, float), name)
        self.assertTrue(1 < report["full_ppl"] < 200, report)
        self.assertGreater(report["kld_mean"], 0)
        self.assertLessEqual(report["kld_mean"], report["kld_p99"])
        self.assertLessEqual(report["kld_p99"], report["kld_max"])
        self.assertTrue(0 < report["same_top"] < 1, report)
        self.assertAlmostEqual(report["keep"], 0.25, delta=0.01)
        errors = [name for name in report if name.endswith("_se")]
        self.assertTrue(errors, report)
        for name in errors:
            self.assertGreater(report[name], 0, name)

    def test_a_budget_of_everything_is_the_full_cache(self):
        report = self.json("--samples", "2", "--kv-budget", "100%", "--kv-policy", "andpro")
        self.assertEqual(report["kld_mean"], 0)
        self.assertEqual(report["kld_max"], 0)
        self.assertEqual(report["same_top"], 1)
        self.assertEqual(report["ppl"], report["full_ppl"])

    def test_random_loses_more_than_andpro(self):
        andpro = self.json("--offsets", "100,4000", "--kv-budget", "15%", "--kv-policy", "andpro")
        random = self.json("--offsets", "100,4000", "--kv-budget", "15%", "--kv-policy", "random")
        self.assertLess(andpro["kld_mean"], random["kld_mean"] / 2)
        self.assertEqual(andpro["full_ppl"], random["full_ppl"])

    def test_windows_repeat_by_seed(self):
        first = self.json("--samples", "2", "--kv-budget", "25%")
        self.assertEqual(self.json("--samples", "2", "--kv-budget", "25%"), first)
        other = self.json("--samples", "2", "--kv-budget", "25%", "--seed", "4")
        self.assertNotEqual(other["full_ppl"], first["full_ppl"])

    def test_words_for_people(self):
        result = self.perplexity("--samples", "2")
        self.assertRegex(result.out, r"PPL = \d+\.\d+ \+/- \d+\.\d+")

    def test_texts_too_short_are_refused(self):
        short = self.path("short.txt.gz", gzip.compress(b"too short"))
        result = self.kedge("perplexity", "-m", MODEL, "-f", short, "--context", "256", "--continue", "32")
        self.assert_error(result, 2)


class Information(KedgeTest):
    def test_policies_lists_the_registry(self):
        listing = self.kedge("policies")
        self.assertEqual(listing.code, 0, listing)
        for name in ("andpro", "snapkv", "streaming", "recent", "random", "none", "uniform", "pooled"):
            self.assertIn(name, listing.out)
        methods = json.loads(self.kedge("policies", "--json").out)
        andpro = next(m for m in methods if m["name"] == "andpro")
        self.assertTrue({"window", "pool", "chunk"} <= {o["name"] for o in andpro["options"]}, andpro)
        self.assertIn("window", self.kedge("policies", "andpro").out)

    def test_inspect_tells_the_model_and_the_budget(self):
        result = self.kedge("inspect", "-m", MODEL, "--kv-budget", "16MiB", "--json")
        self.assertEqual(result.code, 0, result)
        model = json.loads(result.out)
        self.assertEqual((model["n_layers"], model["n_heads"], model["n_kv_heads"], model["head_dim"]), (30, 9, 3, 64))
        self.assertEqual(model["kv_bytes_per_token"], 23040)
        self.assertLessEqual(model["request"]["kv_budget_bytes"], 16 << 20)
        self.assertGreater(model["request"]["rows_per_head"], 300)
        text = self.kedge("inspect", MODEL, "--kv-budget", "16MiB")
        self.assertEqual(text.code, 0, text)
        self.assertIn("23,040", text.out)

    def test_version_and_help(self):
        version = self.kedge("--version")
        self.assertEqual(version.code, 0, version)
        self.assertRegex(version.out, r"^kedge \d+\.\d+\.\d+")
        for verb in ([], ["run"], ["perplexity"], ["inspect"], ["policies"]):
            page = self.kedge(*verb, "--help")
            self.assertEqual(page.code, 0, page)
            self.assertGreater(len(page.out), 200)
        self.assertIn("--kv-budget", self.kedge("run", "--help").out)
        nothing = self.kedge()
        self.assertEqual(nothing.code, 2, nothing)
        self.assertEqual(nothing.out, "")


if __name__ == "__main__":
    unittest.main()
