"""Sessions of kedge run: saved and gone on from, several questions on one text, a chat that is saved and taken back."""
import json
import os
import unittest

from kedge_cli import MODEL, KedgeTest

GREEDY = ["--temp", "0"]
BUDGET = ["--kv-budget", "5MiB"]
QUESTIONS = ["\nQ: What is this text about?\nA:", "\nQ: Who wrote it?\nA:", "\nQ: And why?\nA:"]


class Sessions(KedgeTest):
    def setUp(self):
        super().setUp()
        self.file = self.path("a.kedge")
        self.text = self.path("text.txt", self.sample(3200, 5))

    def test_a_saved_session_goes_on_as_one_run(self):
        sampled = ["--temp", "0.9", "--repeat-penalty", "1.1"]
        first, stats = self.run_ok("-f", self.text, "-n", "15", *sampled, "--seed", "7", *BUDGET,
                                   "--session", self.file)
        self.assertGreater(stats["evicted_rows"], 0)
        self.assertEqual(stats["session_tokens"], 0)
        # The same flags but the seed, which is the file's; nothing is read: standard input is empty.
        whole, stats = self.run_ok("-n", "24", *sampled, "--session", self.file, "--session-ro")
        self.assertEqual(stats["prompt_tokens"], 0)
        self.assertEqual(stats["generated_tokens"], 24)
        self.assertGreater(stats["session_tokens"], 500)
        self.assertIn("restored", whole.err)
        parts = [self.run_ok("-n", "8", *sampled, "--session", self.file)[0].out for _ in range(3)]
        self.assertEqual("".join(parts), whole.out)
        self.assertTrue(first.out and whole.out)

    def test_what_the_prompt_repeats_is_not_read_again(self):
        self.run_ok("-f", self.text, "-n", "0", *GREEDY, *BUDGET, "--session", self.file)
        asked = ["-f", self.text, "-p", QUESTIONS[0], "-n", "12", *GREEDY]
        again, stats = self.run_ok(*asked, "--session", self.file, "--session-ro")
        self.assertLess(stats["prompt_tokens"], 30)
        self.assertGreater(stats["session_tokens"], 500)
        appended, _ = self.run_ok("-p", QUESTIONS[0], "-n", "12", *GREEDY, "--session", self.file, "--session-ro",
                                  "--append")
        self.assertEqual(appended.out, again.out)
        # Without a budget a prompt that leaves the session is cut to what they share.
        full = self.path("full.kedge")
        self.run_ok("-f", self.text, "-p", QUESTIONS[1], "-n", "4", *GREEDY, "--session", full)
        other, stats = self.run_ok(*asked, "--session", full)
        self.assertLess(stats["prompt_tokens"], 30)
        self.assertTrue(other.out)

    def test_a_session_that_lost_nothing_reads_a_changed_prompt_anew(self):
        roomy = ["--kv-budget", "64MiB"]  # the default policy keeps a history and evicts nothing here
        self.run_ok("-f", self.text, "-p", QUESTIONS[1], "-n", "4", *GREEDY, *roomy, "--session", self.file)
        asked = ["-f", self.text, "-p", QUESTIONS[0], "-n", "12", *GREEDY]
        alone, _ = self.run_ok(*asked, *roomy)
        other, stats = self.run_ok(*asked, "--session", self.file)
        self.assertEqual(other.out, alone.out)
        self.assertIn("are read anew", other.err)
        self.assertGreater(stats["prompt_tokens"], 500)
        self.assertEqual(stats["evicted_rows"], 0)

    def test_a_prompt_that_leaves_an_evicted_session_is_refused_and_the_file_stays(self):
        self.run_ok("-f", self.text, "-p", QUESTIONS[0], "-n", "4", *GREEDY, *BUDGET, "--session", self.file)
        with open(self.file, "rb") as f:
            before = f.read()
        other = self.kedge("run", "-m", MODEL, "-f", self.text, "-p", QUESTIONS[1], "-n", "4", "--session", self.file)
        self.assert_error(other, 2, "after token", "evicted", "--append")
        with open(self.file, "rb") as f:
            self.assertEqual(f.read(), before)

    def test_every_question_sees_the_text_alone(self):
        listed = self.path("questions.txt", "\n".join(q.strip().replace("\n", " ") for q in QUESTIONS) + "\n\n")
        flags = ["-f", self.text, "-n", "12", *GREEDY, *BUDGET]
        result, stats = self.run_ok(*flags, "--questions", listed)
        self.assertEqual(len(stats["questions"]), 3)
        self.assertGreater(stats["evicted_rows"], 0)
        self.assertGreater(stats["prompt_tokens"], 500)
        self.assertLessEqual(stats["kv_peak_bytes"], stats["kv_budget_bytes"])
        for i, entry in enumerate(stats["questions"]):
            self.assertIn(f"[{i + 1}/3] {entry['question']}\n{entry['answer']}\n", result.out)
            self.assertEqual(entry["generated_tokens"], 12)
            self.assertEqual(entry["evicted_rows"], 0)  # there is room for a question and its answer
            alone, _ = self.run_ok(*flags, "--question", entry["question"], "--kv-branch", "60")
            both, _ = self.run_ok(*flags, "--question", "Is it?", "--question", entry["question"], "--kv-branch", "60")
            self.assertEqual(alone.out.split("\n", 1)[1], both.out.split(entry["question"], 1)[1].split("\n", 1)[1])

    def test_questions_that_evict_come_back_too(self):
        flags = ["-f", self.text, "-n", "60", *GREEDY, *BUDGET, "--kv-branch", "-1"]
        long_question = self.sample(2500, 6)
        both, stats = self.run_ok(*flags, "--question", long_question, "--question", "Is it?")
        self.assertGreater(stats["questions"][0]["evicted_rows"], 0)
        alone, _ = self.run_ok(*flags, "--question", "Is it?")
        self.assertEqual(both.out.rsplit("] Is it?\n", 1)[1], alone.out.split("] Is it?\n", 1)[1])

    def test_questions_on_a_saved_text(self):
        self.run_ok("-f", self.text, "-n", "0", *GREEDY, *BUDGET, "--session", self.file)
        flags = ["-n", "10", *GREEDY, "--session", self.file, "--session-ro", "-f", self.text, "--question", "Why?"]
        result, stats = self.run_ok(*flags[:-2], "--question", "Is it?", *flags[-2:])
        self.assertEqual(stats["prompt_tokens"], 0)
        alone, _ = self.run_ok(*flags)
        self.assertEqual(result.out.split("] Why?\n")[1], alone.out.split("] Why?\n")[1])

    def test_questions_with_a_template(self):
        result, stats = self.run_ok("-p", "Paris is the capital of France. Rome is the capital of Italy.", "--chat",
                                    "--question", "What is the capital of France?", "--question",
                                    "What is the capital of Italy?", "-n", "24", *GREEDY)
        self.assertIn("Paris", stats["questions"][0]["answer"])
        self.assertIn("Rome", stats["questions"][1]["answer"])
        self.assertNotIn("<|im_", result.out)

    def test_a_chat_is_saved_and_goes_on(self):
        flags = ["--interactive", *GREEDY, "-n", "24"]
        said = "My name is Ann. What is the capital of France?\n"
        whole = self.kedge("run", "-m", MODEL, *flags, stdin=said + "And of Italy?\n")
        first = self.kedge("run", "-m", MODEL, *flags, "--session", self.file, stdin=said)
        second = self.kedge("run", "-m", MODEL, *flags, "--session", self.file, stdin="And of Italy?\n")
        self.assertEqual((first.code, second.code), (0, 0), second)
        self.assertEqual(first.out + second.out, whole.out)
        plain = self.path("plain.kedge")
        self.run_ok("-p", "Once", "-n", "2", *GREEDY, "--session", plain)
        self.assert_error(self.kedge("run", "-m", MODEL, *flags, "--session", plain, stdin=said), 2, "conversation")

    def test_a_turn_is_taken_back(self):
        flags = ["--interactive", *GREEDY, "-n", "24"]
        plain = self.kedge("run", "-m", MODEL, *flags, stdin="What is the capital of France?\nAnd of Italy?\n")
        saved = self.path("b.kedge")
        said = ["What is the capital of France?", "Tell me a story.", "/rewind", f"/save {saved}", "Who are you?",
                f"/load {saved}", "/rewind", f"/load {self.path('no')}", "And of Italy?"]
        taken = self.kedge("run", "-m", MODEL, *flags, stdin="\n".join(said) + "\n")
        self.assertEqual(taken.code, 0, taken)
        answers = plain.out.splitlines()
        self.assertTrue(taken.out.startswith(answers[0]))
        self.assertTrue(taken.out.endswith(plain.out[len(answers[0]):].lstrip("\n")), taken)
        self.assertIn("taken back", taken.err)
        self.assertIn("there is no turn to take back", taken.err)
        self.assertIn("cannot read", taken.err)

    def test_inspect_tells_what_a_session_holds(self):
        self.run_ok("-f", self.text, "-n", "4", *GREEDY, *BUDGET, "--session", self.file)
        result = self.kedge("inspect", self.file)
        self.assertEqual(result.code, 0, result)
        for word in ("5MiB", "echo", "evicted", "sha256", "checksums"):
            self.assertIn(word, result.out)
        report = json.loads(self.kedge("inspect", self.file, "--json").out)
        self.assertGreater(report["evicted_rows"], 0)
        self.assertEqual(report["file_bytes"], os.path.getsize(self.file))
        self.assertEqual(report["budget"], "5MiB")

    def test_mistakes(self):
        self.run_ok("-f", self.text, "-n", "0", *GREEDY, *BUDGET, "--session", self.file)
        with open(self.file, "rb") as f:
            good = f.read()
        run = ["run", "-m", MODEL, "-p", "x", "-n", "1"]
        use = [*run, "--session", self.file, "--append"]
        self.assert_error(self.kedge(*use, "--kv-budget", "6MiB"), 2, "--kv-budget", "6MiB", "5MiB")
        self.assert_error(self.kedge(*use, "--kv-policy", "snapkv"), 2, "--kv-policy", "snapkv", "echo")
        self.assert_error(self.kedge(*run, "--append"), 2, "--append", "--session")
        self.assert_error(self.kedge(*run, "--session-ro", "--session", self.path("none")), 2, "none")
        self.assert_error(self.kedge(*run, "--question", "q", "--interactive"), 2, "--interactive")
        self.assert_error(self.kedge(*run, "--questions", self.path("empty", "\n\n")), 2, "no question")
        self.assert_error(self.kedge(*run, "--questions", self.path("nowhere")), 1, "nowhere")
        self.assert_error(self.kedge("run", "-m", MODEL, "--question", "q"), 2, "text")
        self.assert_error(self.kedge(*run, "--session", self.path("no/such/a.kedge")), 1, "no/such")
        for name, damaged, words in (("cut", good[:-100], ("size", str(len(good)))),
                                     ("flip", good[:5000] + bytes([good[5000] ^ 1]) + good[5001:], ("checksum",)),
                                     ("other", b"something else", ("KEDGESES",))):
            path = self.path(name, damaged)
            self.assert_error(self.kedge(*run, "--session", path), 1, path, *words)
            with open(path, "rb") as f:
                self.assertEqual(f.read(), damaged)
        self.assert_error(self.kedge("inspect", self.path("cut", good[:-100])), 1, "cut", "size")


if __name__ == "__main__":
    unittest.main()
