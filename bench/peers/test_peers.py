#!/usr/bin/env python3
"""Tests of what surrounds kvpress: figures by hand, and the committed run recomputed. Run by `make peers`."""
import math
import unittest
from pathlib import Path

from cpu_torch import torch

import compare
import presses
import run_folder
import scoring
import winners

WINNERS = sorted((Path(__file__).parents[2] / "docs/results").glob("fidelity-*/winners.md"))
RESULTS = sorted((Path(__file__).parents[2] / "docs/results").glob("peers-*/*/predictions.csv"))


class Figures(unittest.TestCase):
    def test_divergence_by_hand(self):
        full = torch.log(torch.tensor([[0.5, 0.25, 0.25], [0.8, 0.1, 0.1]]))
        other = torch.log(torch.tensor([[0.25, 0.5, 0.25], [0.8, 0.1, 0.1]]))
        found = scoring.Divergence(full, [0, 1]).to(other)
        first = 0.5 * math.log(2) - 0.25 * math.log(2)
        self.assertAlmostEqual(found["kld_mean"], first / 2, 6)
        self.assertAlmostEqual(found["kld_max"], first, 6)
        self.assertAlmostEqual(found["nll"], (math.log(4) + math.log(10)) / 2, 6)
        self.assertAlmostEqual(found["full_nll"], (math.log(2) + math.log(10)) / 2, 6)
        self.assertEqual(found["same_top"], 0.5)

    def test_equal_rows_diverge_by_exactly_nothing(self):
        rows = torch.randn(4, 1000, generator=torch.Generator().manual_seed(1))
        found = scoring.Divergence(rows, [1, 2, 3, 4]).to(rows.clone())
        self.assertEqual((found["kld_mean"], found["kld_max"], found["same_top"]), (0.0, 0.0, 1.0))

    def test_answers_by_hand(self):
        self.assertEqual(scoring.contains(" It is 31415, she said", ["31415"]), 1)
        self.assertEqual(scoring.contains("3141", ["31415"]), 0)
        self.assertEqual(scoring.contains_all("b and A", ["a", "b", "c", "d"]), 0.75)
        self.assertEqual(scoring.exact("The  cat.", ["dog", "cat"]), 1)
        self.assertAlmostEqual(scoring.f1("red blue", ["blue green red black"]), 4 / 6)
        self.assertAlmostEqual(scoring.rouge_l("a b c", ["a c d"]), 4 / 6)
        self.assertAlmostEqual(scoring.edit("kitten", ["sitting"]), 1 - 3 / 7)
        self.assertEqual(scoring.answer_end("\n 7\nmore"), 3)
        self.assertIsNone(scoring.answer_end("\n  "))

    def test_bytes_of_gpt2_tokens(self):
        vocabulary = scoring.Vocabulary.__new__(scoring.Vocabulary)
        vocabulary.tokens, vocabulary.is_byte_level = ["\u0120caf", "\u00c3\u00a9", "\u010a"], True
        vocabulary.byte_of = scoring.byte_alphabet()
        self.assertEqual(vocabulary.text([0, 1, 2]), " caf\u00e9\n")


class Winners(unittest.TestCase):
    CELLS = {(winners.OURS, "10%"): {("t", 1): 1.0, ("t", 2): 0.0},
             ("kvpress:a", "10%"): {("t", 1): 0.0, ("t", 2): 0.0},
             ("kvpress:b", "10%"): {("t", 1): 1.0, ("t", 2): 1.0}, ("kvpress:none", "10%"): {("t", 1): 2.0}}

    def test_best_press_by_score_and_by_divergence(self):
        self.assertEqual(winners.ranked(self.CELLS, "10%", True)[0], (1.0, "kvpress:b"))
        self.assertEqual(winners.ranked(self.CELLS, "10%", False)[0], (0.0, "kvpress:a"))

    def test_verdicts(self):
        lines = list(winners.summary({"needle": self.CELLS, "kld": self.CELLS}))
        self.assertTrue(lines[2].endswith("| -0.5000 | 0.5000 | level |"), lines[2])  # one of two samples missed
        self.assertTrue(lines[3].endswith("| +0.5000 | 0.5000 | level |"), lines[3])
        surely = {(winners.OURS, "5%"): {("t", i): 0.1 for i in range(4)},
                  ("kvpress:a", "5%"): {("t", i): 0.2 for i in range(4)}}
        self.assertTrue(list(winners.summary({"needle": surely}))[2].endswith("| behind |"))
        self.assertTrue(list(winners.summary({"kld": surely}))[2].endswith("| ahead |"))


class Presses(unittest.TestCase):
    def test_each_keeps_the_rows_it_was_told(self):
        for n_kept, n_context in ((256, 1024), (102, 1024), (1, 33), (999, 1000)):
            for name in presses.PRESSES:
                ratio = presses.make(name, n_kept, n_context).compression_ratio
                self.assertEqual(int(n_context * (1 - ratio)), n_kept, name)

    def test_text_names_the_options(self):
        self.assertEqual(presses.text("snapkv-32"), "SnapKVPress:window_size=32,kernel_size=5")
        self.assertEqual(presses.text("adakv-32"),
                         "AdaKVPress(SnapKVPress:window_size=32,kernel_size=5):alpha_safeguard=0.2")

    def test_every_pair_names_a_press(self):
        for policy, press in compare.PAIRS.items():
            self.assertIn(press.removeprefix("kvpress:"), presses.PRESSES, policy)


class Statistics(unittest.TestCase):
    def test_splitmix64(self):  # published first outputs for state 1234567
        random = run_folder.SplitMix64(0, "")
        random.state = 1234567
        self.assertEqual([random.next() for _ in range(2)], [6457827717110365317, 3203168211198807973])

    def test_paired_difference(self):
        n, mean, error = compare.difference({1: 3.0, 2: 5.0, 3: 9.0}, {1: 2.0, 2: 2.0})
        self.assertEqual((n, mean, error), (2, 2.0, 1.0))
        self.assertTrue(compare.within(2.0, 1.0))
        self.assertFalse(compare.within(2.1, 1.0))

    def test_committed_runs_give_their_metrics_again(self):
        if not RESULTS:
            self.skipTest("no committed run under docs/results")
        for path in RESULTS:
            metrics = run_folder.read_json(path.parent / "metrics.json")
            full = "kvpress:none" if path.parent.name == "kvpress" else "none"
            groups = run_folder.groups_of(run_folder.read_rows(path.parent), metrics["switches"]["seed"], full)
            self.assertEqual(len(groups), len(metrics["groups"]))
            for made, written in zip(groups, metrics["groups"]):
                self.assertEqual(made.keys() & written.keys(), written.keys(), path)
                for name, value in written.items():
                    got = made[name]
                    same = math.isclose(got, value, rel_tol=1e-9) if isinstance(value, float) else got == value
                    self.assertTrue(same, f"{path.parent}: {name} of {written['policy']}: {got} against {value}")

    def test_committed_rows_give_their_winners_again(self):
        for path in WINNERS:
            self.assertEqual(winners.report(path.parent), path.read_text(encoding="utf-8").strip(), path)


if __name__ == "__main__":
    unittest.main()
