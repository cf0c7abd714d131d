#!/usr/bin/env python3
"""Bracket balance of generated code, with and without `--kv-domain code`.

    KEDGE=build/kedge KEDGE_MODEL=model.gguf bench/bracket_balance.py [--prompts 24] [--keep 25,10] [-n 100] [-t 2]

Prompts are beginnings of installed Python modules, cut at the end of a line; every second one is cut inside of
brackets. `kedge run --temp 0` continues each of them. An error is
- a closing bracket whose partner is not the innermost open one, or that has none (the prompt's open ones count);
- a bracket still open where a line begins with a word that cannot stand inside of brackets (def, class, return, ...).
Brackets in strings and comments count for nothing. Prints one table; the prompts are the same for every run of the same
Python, so that differences are taken pair by pair.
"""
import argparse
import math
import os
import pathlib
import random
import re
import subprocess
import sys
import sysconfig
import tempfile

PARTNER = {")": "(", "]": "[", "}": "{"}
STATEMENT = re.compile(r"[ \t]*(def|class|import|from|return|with|while|try|raise|assert|del|pass|break|continue)\b")
STRING = re.compile(r"'''|\"\"\"|'|\"")


class Brackets:
    """Reads source code piece by piece; `errors` counts what is wrong."""

    def __init__(self):
        self.stack, self.errors = [], 0

    def read(self, text):
        position, line_start = 0, True
        while position < len(text):
            statement = STATEMENT.match(text, position) if line_start else None
            if statement and self.stack:
                self.errors += len(self.stack)
                self.stack = []
            char = text[position]
            line_start = char == "\n"
            if char == "#":
                end = text.find("\n", position)
                position = len(text) if end < 0 else end
                continue
            quote = STRING.match(text, position)
            if quote:
                position = end_of_string(text, quote)
                continue
            if char in "([{":
                self.stack.append(char)
            elif char in PARTNER:
                if self.stack and self.stack[-1] == PARTNER[char]:
                    self.stack.pop()
                else:
                    self.errors += 1
            position += 1
        return self


def end_of_string(text, quote):
    """Where the string literal ends; a short one ends with its line at the latest."""
    mark, position = quote.group(0), quote.end()
    while position < len(text):
        if text[position] == "\\":
            position += 2
        elif text.startswith(mark, position):
            return position + len(mark)
        elif text[position] == "\n" and len(mark) == 1:
            return position
        else:
            position += 1
    return len(text)


def inside_string(text):
    """Whether the text ends within a string literal (a docstring, say)."""
    position = 0
    while position < len(text):
        if text[position] == "#":
            position = (text.find("\n", position) + len(text) + 1) % (len(text) + 1)
            continue
        quote = STRING.match(text, position)
        if quote:
            position = end_of_string(text, quote)
            if position >= len(text) and not text.endswith(quote.group(0)):
                return True
            continue
        position += 1
    return False


def make_prompts(count, n_bytes):
    """(name, text): cut so that half of them end with brackets open."""
    folder = pathlib.Path(sysconfig.get_paths()["stdlib"])
    files = sorted(path for path in folder.glob("*.py") if path.stat().st_size > 3 * n_bytes)
    random.Random(1).shuffle(files)
    prompts = []
    for path in files:
        if len(prompts) == count:
            break
        text = path.read_text(errors="replace")
        wants_open = len(prompts) % 2 == 0
        lines = text[:2 * n_bytes].splitlines(keepends=True)
        for n_lines in range(len(lines), 1, -1):
            start = "".join(lines[:n_lines])
            if len(start) < n_bytes:
                break
            if inside_string(start):
                continue
            state = Brackets().read(start)
            if state.errors == 0 and bool(state.stack) == wants_open:
                begin = start.index("\n", len(start) - n_bytes) + 1
                prompts.append((path.name, start[begin:], "".join(state.stack)))
                break
    return prompts


def generate(prompt, arguments, options):
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(prompt)
        file.flush()
        command = [os.environ.get("KEDGE", "build/kedge"), "run", "-f", file.name, "-n", str(options.n), "--temp", "0",
                   "-t", str(options.t), "--progress", "none", *arguments]
        done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit(f"kedge run failed ({done.returncode}): {done.stderr.decode(errors='replace').strip()}")
    return done.stdout.decode(errors="replace")


def errors_of(opened, generated):
    state = Brackets()
    state.stack = list(opened)
    return state.read(generated).errors


def mean_and_error(values):
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, 0.0
    return mean, math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1) / len(values))


def self_test():
    for opened, text, expected in (("", "f(x[1])\n", 0), ("", "f(x]\n", 1), ("(", "1)\n", 0), ("", ")", 1),
                                   ("", "f(\ndef g():\n", 1), ("", "'(' # (\n", 0), ("", "\"\"\"(\n(\"\"\")", 1),
                                   ("([", "1]\n  return", 1), ("", "x = [y\n  for y in z]\n", 0)):
        assert errors_of(opened, text) == expected, (opened, text, errors_of(opened, text))
    assert inside_string("x = '''a\n") and not inside_string("x = '''a'''\n") and not inside_string("# it's\nx")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--bytes", type=int, default=2600, help="length of a prompt")
    parser.add_argument("--keep", default="25,10", help="budgets in percent")
    parser.add_argument("--policy", default="andpro")
    parser.add_argument("--domain", default="code")
    parser.add_argument("-n", type=int, default=100, help="tokens to generate")
    parser.add_argument("-t", type=int, default=2)
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    self_test()
    if options.self_test:
        return
    prompts = make_prompts(options.prompts, options.bytes)
    runs = {"full cache": []}
    for keep in options.keep.split(","):
        budget = ["--kv-budget", keep + "%", "--kv-policy", options.policy]
        runs[f"{keep} %"] = budget
        runs[f"{keep} %, --kv-domain {options.domain}"] = [*budget, "--kv-domain", options.domain]
    results = {name: [] for name in runs}
    for number, (file, prompt, opened) in enumerate(prompts, 1):
        for name, arguments in runs.items():
            results[name].append(100 / options.n * errors_of(opened, generate(prompt, arguments, options)))
        print(f"{number}/{len(prompts)} {file} open '{opened}': " +
              ", ".join(f"{values[-1]:.0f}" for values in results.values()), file=sys.stderr)
    print(f"{len(prompts)} prompts\n\n| | errors in 100 tokens | against the same budget without |\n|---|---|---|")
    before = None
    for name, values in results.items():
        mean, error = mean_and_error(values)
        pairs = ""
        if "--kv-domain" in name:
            difference, spread = mean_and_error([a - b for a, b in zip(values, before)])
            pairs = f"{difference:+.2f} +- {spread:.2f}"
        print(f"| {name} | {mean:.2f} +- {error:.2f} | {pairs} |")
        before = values


if __name__ == "__main__":
    main()
