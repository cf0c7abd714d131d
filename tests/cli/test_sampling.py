"""Sampling options of kedge run: penalties, presets, and what the report says of them."""
import unittest

from kedge_cli import MODEL, KedgeTest

DEFAULTS = {"preset": "none", "temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "repeat_penalty": 1,
            "repeat_last_n": 64, "length_penalty": 1}
COMPRESSED = {**DEFAULTS, "preset": "compressed", "temperature": 0.5, "repeat_penalty": 1.2, "length_penalty": 1.1}
SHORT = ["-p", "Once upon a time", "-n", "12", "--seed", "5"]
CHAT = ["--chat", "-p", "What is the capital of France?", "--temp", "0", "-n", "150"]


class Sampling(KedgeTest):
    def test_the_report_has_what_was_used(self):
        _, stats = self.run_ok(*SHORT)
        self.assertEqual((stats["sampling"], stats["seed"]), (DEFAULTS, 5))
        _, stats = self.run_ok(*SHORT, "--preset", "compressed", "--top-k", "7")
        self.assertEqual(stats["sampling"], {**COMPRESSED, "top_k": 7})
        result, _ = self.run_ok(*SHORT, "--preset", "compressed", "-v")
        self.assertIn("sampling: temp 0.50, top-k 40, top-p 0.95, min-p 0.05, repeat-penalty 1.20", result.err)
        self.assertIn("length-penalty 1.10, seed 5", result.err)

    def test_options_that_are_off_change_nothing(self):
        plain = self.run_ok(*SHORT)[0].out
        off = ["--preset", "none", "--repeat-penalty", "1", "--length-penalty", "1"]
        self.assertEqual(self.run_ok(*SHORT, *off)[0].out, plain)
        given = ["--preset", "compressed", "--temp", "0.8", *off[2:]]
        self.assertEqual(self.run_ok(*SHORT, *given)[0].out, plain)
        by_hand = ["--temp", "0.5", "--repeat-penalty", "1.2", "--length-penalty", "1.1"]
        preset = self.run_ok(*SHORT, "--preset", "compressed")[0].out
        self.assertEqual(self.run_ok(*SHORT, *by_hand)[0].out, preset)
        self.assertNotEqual(preset, plain)

    def test_what_is_given_anywhere_wins_over_the_preset(self):
        _, stats = self.run_ok(*SHORT, env={"KEDGE_PRESET": "compressed", "KEDGE_TEMP": "0.3"})
        self.assertEqual(stats["sampling"], {**COMPRESSED, "temperature": 0.3})
        config = self.path("c.toml", 'preset = "compressed"\nlength-penalty = 2\n')
        _, stats = self.run_ok(*SHORT, "--config", config, "--repeat-penalty", "1")
        self.assertEqual(stats["sampling"], {**COMPRESSED, "length_penalty": 2, "repeat_penalty": 1})

    def test_questions_and_conversations_take_it_too(self):
        _, stats = self.run_ok("-p", "A text.", "--question", "What is it?", "-n", "4", "--preset", "compressed")
        self.assertEqual(stats["sampling"], COMPRESSED)
        _, stats = self.run_ok("--interactive", "-n", "4", "--preset", "compressed", stdin="Hello\n/quit\n")
        self.assertEqual(stats["sampling"], COMPRESSED)

    def test_a_length_penalty_moves_the_end(self):
        lengths = []
        for penalty in ("0.01", "1", "100"):
            _, stats = self.run_ok(*CHAT, "--length-penalty", penalty)
            lengths.append(stats["generated_tokens"])
        self.assertEqual(lengths, sorted(lengths))
        self.assertLess(lengths[0], lengths[2], lengths)

    def test_a_saved_session_goes_on_with_its_sampling(self):
        saved = self.path("s.kedge")
        self.run_ok(*SHORT, "--preset", "compressed", "--session", saved)
        _, stats = self.run_ok("--session", saved, "--session-ro", "--append", "-n", "2", "--preset", "compressed")
        self.assertEqual((stats["sampling"], stats["seed"]), (COMPRESSED, 5))  # seed: not drawn anew
        _, stats = self.run_ok("--session", saved, "--session-ro", "--append", "-n", "2", "--length-penalty", "3")
        self.assertEqual(stats["sampling"], {**DEFAULTS, "length_penalty": 3})

    def test_mistakes(self):
        for arguments, words in ((["--length-penalty", "0"], ("--length-penalty", "'0'", "0.01..100")),
                                 (["--length-penalty", "long"], ("--length-penalty", "'long'", "0.01..100")),
                                 (["--preset", "compresed"], ("--preset", "'compresed'", "none|compressed"))):
            self.assert_error(self.kedge("run", "-m", MODEL, *SHORT, *arguments), 2, *words)


if __name__ == "__main__":
    unittest.main()
