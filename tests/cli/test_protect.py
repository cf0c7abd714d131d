"""Protection from the command line: lists, spans, the system message, domains, and what does not fit."""
import json
import re
import unittest

from kedge_cli import MODEL, KedgeTest

SECRET = " The code word of the Bluebird project is heliotrope."


class Protect(KedgeTest):
    def prompt(self, n_chars=4000, at=1500):
        text = self.sample(n_chars, 3)
        return self.path("prompt.txt", text[:at] + SECRET + text[at:])

    def kept(self, path, positions):
        """Of these positions, those that every layer and head still holds."""
        with open(path) as f:
            layers = json.load(f)["layers"]
        heads = [set(head) for layer in layers for head in layer]
        return [p for p in positions if all(p in head for head in heads)]

    def test_a_phrase_stays_and_the_reports_say_so(self):
        words = self.path("words.txt", "# code words\n\nbluebird PROJECT\ncase: heliotrope\ncase: Heliotrope\n")
        kv_map = self.path("map.json")
        result, stats = self.run_ok("-f", self.prompt(), "-n", "8", "--temp", "0", "--kv-budget", "10%",
                                    "--kv-protect", words, "--kv-map", kv_map)
        count = stats["protected_tokens"]["phrases"]
        self.assertGreater(count, 4)
        self.assertIn(f"protected {count} in phrases", result.err)
        with open(kv_map) as f:
            positions = json.load(f)["protected"]["phrases"]
        self.assertEqual(len(positions), count)
        self.assertEqual(self.kept(kv_map, positions), positions)

    def test_pinned_tokens_and_the_system_message(self):
        kv_map = self.path("map.json")
        _, stats = self.run_ok("-f", self.prompt(), "-n", "4", "--temp", "0", "--kv-budget", "10%",
                               "--kv-policy", "random", "--kv-pin", "100-119,300", "--kv-map", kv_map)
        self.assertEqual(stats["protected_tokens"]["spans"], 21)
        self.assertEqual(len(self.kept(kv_map, [*range(100, 120), 300])), 21)
        _, stats = self.run_ok("-f", self.prompt(), "-n", "4", "--temp", "0", "--kv-budget", "15%",
                               "--kv-policy", "random", "--chat", "--kv-pin-system",
                               "--system", "Answer in one word, always.", "--kv-special-quota", "2",
                               "--kv-map", kv_map)
        n = stats["protected_tokens"]["spans"]
        self.assertGreater(n, 8)
        self.assertEqual(len(self.kept(kv_map, range(n))), n)
        self.assertGreater(stats["protected_tokens"]["special"], 0)

    def test_domains_are_listed_and_used(self):
        listing = self.kedge("policies", "--domains")
        self.assertEqual(listing.code, 0)
        for name in ("code", "dialogue", "tables"):
            self.assertIn(name, listing.out)
        definition = self.kedge("policies", "--domains", "code").out
        own = self.path("own.toml", definition)
        code = self.path("code.py", "def f(x):\n    return g([x, (1 + 2)])\n\n" * 150)
        outputs = [self.run_ok("-f", code, "-n", "16", "--temp", "0", "--kv-budget", "20%", "--kv-domain", domain)
                   for domain in ("code", own)]
        self.assertEqual(outputs[0][0].out, outputs[1][0].out)
        self.assertGreater(outputs[0][1]["protected_tokens"]["domain"], 10)
        self.assertEqual(len(json.loads(self.kedge("policies", "--domains", "--json").out)), 3)
        self.assert_error(self.kedge("policies", "--domains", "cod"), 2, "cod", "code")

    def test_too_much_is_refused_with_the_arithmetic(self):
        everything = self.path("words.txt", "the\nof\na\nto\nis\nand\nin\nor\n")
        args = ["run", "-m", MODEL, "-f", self.prompt(), "-n", "4", "--temp", "0", "--kv-protect", everything]
        result = self.kedge(*args, "--kv-budget", "5%")
        self.assert_error(result, 4, "in phrases", "30 layers x 3 kv heads", "--kv-budget 5%", "is enough",
                          "--kv-protect-overflow oldest")
        enough = re.search(r"(\d+tok) is enough", result.err).group(1)
        self.assertEqual(self.kedge(*args, "--kv-budget", enough).code, 0)
        result = self.kedge(*args, "--kv-budget", "5%", "--kv-protect-overflow", "oldest")
        self.assertEqual(result.code, 0, result)
        self.assertIn("given up", result.err)

    def test_a_chat_refuses_one_message_and_goes_on(self):
        words = self.path("words.txt", "flood\n")
        turns = "Say hello.\n" + "flood " * 3000 + "\nSay goodbye.\n/quit\n"
        result = self.kedge("run", "-m", MODEL, "-i", "-n", "8", "--temp", "0", "--kv-budget", "6MiB",
                            "--kv-protect", words, stdin=turns)
        self.assertEqual(result.code, 0, result)
        self.assertIn("the message was not read: the protected rows exceed the budget", result.err)
        self.assertEqual(len(result.out.strip().splitlines()), 2, result)

    def test_mistakes_name_file_and_line(self):
        base = ["run", "-m", MODEL, "-p", "x", "--kv-budget", "10%"]
        for content, words in ((b"", ["no phrase"]), (b"ok\n\xff\xfe\n", ["line 2", "not UTF-8"]),
                               (b"ok\n\ncase:\n", ["line 3", "no phrase"]), (b"x" * 2000, ["line 1", "2000 bytes"]),
                               (b"word\n" * 10001, ["line 10001", "10000 phrases"])):
            path = self.path("bad.txt", content)
            self.assert_error(self.kedge(*base, "--kv-protect", path), 2, path, *words)
        self.assert_error(self.kedge(*base, "--kv-protect", "/nonexistent.txt"), 1, "/nonexistent.txt")
        self.assert_error(self.kedge(*base, "--kv-domain", "poetry"), 2, "poetry", "code, dialogue, tables")
        self.assert_error(self.kedge(*base, "--kv-pin", "9-3"), 2, "9-3")
        self.assert_error(self.kedge(*base, "--kv-pin-system"), 2, "--chat")
        self.assert_error(self.kedge(*base, "--kv-special-quota", "-1"), 2, "--kv-special-quota")
        self.assert_error(self.kedge(*base, "--kv-protect-overflow", "newest"), 2, "newest", "oldest")


if __name__ == "__main__":
    unittest.main()
