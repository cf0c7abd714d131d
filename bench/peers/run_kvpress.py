#!/usr/bin/env python3
"""Runs kvpress's presses on the samples of a run of ours, and writes a run folder of the same form.

    kedge eval kld ... --export-samples --out RUN
    run_kvpress.py RUN -o OUT [--logits DIR] [--presses NAME,...] [--samples N]

Same GGUF file (dequantised by transformers, f32), same token ids, and the same number of rows kept: for every sample
and budget what RUN held after its evictions. A context is read once and pressed by each press (reader.py). Before it
writes anything it has checked that

  - a cache from which nothing was dropped gives, through the same path, a divergence of exactly 0;
  - the caches are equal, bit for bit, to those of kvpress's own `with press(model)` (first sample, each press);
  - the full cache agrees with RUN's: the mean negative log-likelihood of all windows and, with --logits DIR (what
    `kedge eval --save-logits DIR` wrote), the KL divergence of every row. A wrong rotation of q and k, a forgotten
    tied embedding or another base of the RoPE shows here.

Exit: 0 ok, 1 a check failed, 2 usage, 3 the model cannot be read.
"""
import argparse
import datetime
import hashlib
import json
import os
import platform
import resource
import sys
import time
from pathlib import Path

from cpu_torch import torch, transformers  # first: see there

import numpy as np

import presses
import reader
import run_folder
import scoring

ENGINE = "kvpress 0.5.5"
MAX_NLL_DIFFERENCE = 0.015  # relative; our products see activations quantised to 8 bits, theirs do not
MAX_FULL_KLD = 0.02  # nats; 3e-3 is expected, and a wrong weight or rotation gives more than 1


class Failure(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def note(message):
    print(f"run_kvpress: {message}", file=sys.stderr, flush=True)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", help="folder of a run made with --export-samples")
    parser.add_argument("-o", "--out", required=True, help="folder to write")
    parser.add_argument("--presses", default="", help="some of: see presses.py [all]")
    parser.add_argument("--samples", type=int, default=0, help="only the first N samples [all]")
    parser.add_argument("--screen", type=int, default=1, metavar="N",
                        help="each N-th sample only, and without the comparison with `with press(model)`")
    parser.add_argument("--logits", default="", help="folder of --save-logits, with our full cache's rows")
    parser.add_argument("--model", default="", help="the GGUF file, where config.json does not say")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    return parser.parse_args()


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def open_run(arguments):
    """Config, rows and samples of the run, and the model's path."""
    folder = Path(arguments.run)
    for name in ("config.json", "predictions.csv", "samples.jsonl"):
        if not (folder / name).is_file():
            raise Failure(2, f"{folder} has no {name} (kedge eval --export-samples writes it)")
    config = run_folder.read_json(folder / "config.json")
    if config["decode_evicts"]:
        raise Failure(2, f"{folder} was run with --decode-evicts; presses drop rows after the prompt only")
    model = arguments.model or config["model"]["path"]
    if not Path(model).is_file():
        raise Failure(3, f"no model {model} (--model names another place)")
    if sha256_of(model) != config["model"]["sha256"]:
        raise Failure(3, f"{model} is not the model of {folder}: its SHA-256 differs from config.json")
    samples = [json.loads(line) for line in (folder / "samples.jsonl").read_text(encoding="utf-8").splitlines()]
    if arguments.samples > 0:
        samples = samples[:arguments.samples]
    samples = samples[::arguments.screen]
    return config, run_folder.read_rows(folder), samples, model


def rows_to_keep(rows):
    """(task, sample, question, budget) -> rows a kv head that our policies held on average after eviction."""
    kept = {}
    for row in rows:
        if row["policy"] != "none" and not row["error"]:
            key = row["task"], row["sample"], int(row["question"]), row["budget"]
            kept.setdefault(key, []).append(row["keep"] * row["n_context"])
    return {key: round(sum(values) / len(values)) for key, values in kept.items()}


class Runner:
    def __init__(self, model, vocabulary, config, names, logits_folder, compares_directly=True):
        self.reader, self.vocabulary, self.config = model, vocabulary, config
        self.compares_directly = compares_directly
        self.names, self.logits_folder = names, logits_folder
        self.rows = []
        self.full_klds = []  # of our full cache's rows to theirs, a window
        self.n_equal = 0  # presses whose caches were compared with kvpress's own way

    # ---- one cell ----------------------------------------------------------------------------------------------------
    def press(self, name, n_kept, sample):
        torch.manual_seed(self.config["seed"] * 1000003 + sample["seed"])  # RandomPress draws from it
        return presses.make(name, n_kept, sample["n_prompt"])

    def row(self, sample, question, policy, budget, held):
        n_layers = len(held.rows_per_head)
        full_bytes = self.full_bytes(held)
        peak_of_prompt = held.bytes - held.bytes // n_layers + full_bytes // n_layers  # the last layer is still whole
        return {"task": sample["task"], "sample": sample["sample"], "length": sample["length"],
                "depth": sample["depth"], "seed": sample["seed"], "policy": f"kvpress:{policy}", "budget": budget,
                "question": question, "metric": "", "score": None, "prediction": "", "answers": "",
                "n_context": sample["n_prompt"], "n_generated": 0, "nll": None, "full_nll": None, "kld_mean": None,
                "kld_p99": None, "kld_max": None, "same_top": None, "keep": held.n_rows / held.n_full_rows,
                "kv_live_bytes": held.bytes, "kv_peak_bytes": peak_of_prompt, "kv_full_bytes": full_bytes,
                "evicted_rows": held.n_full_rows - held.n_rows, "prefill_s": 0.0, "decode_s": 0.0,
                "policy_ms": held.press_ms, "error": ""}

    def full_bytes(self, held):
        return held.n_full_rows * 2 * self.reader.config.head_dim * 4

    def continuation_rows(self, prompt, sample, held):
        """f32 [n, vocabulary]: the prompt's last logits, then those behind each token but the last."""
        return torch.cat([prompt.logits.unsqueeze(0), self.reader.score(held, sample["continuation"][:-1])])

    def answered(self, prompt, sample, question, held):
        asked = [] if self.config["question_aware"] else question["tokens"]
        stops = question.get("stop_at_newline", False)

        def is_end(answer, token):
            return token in self.vocabulary.ends or (
                stops and bool(answer) and scoring.answer_end(self.vocabulary.text(answer)) is not None)

        answer = self.reader.generate(held, prompt.logits, asked, question["max_tokens"], is_end)
        text = self.vocabulary.text(answer)
        end = scoring.answer_end(text) if stops else None
        text = text if end is None else text[:end]
        return {"metric": question["metric"], "prediction": text, "n_generated": len(answer),
                "answers": json.dumps(question["answers"], ensure_ascii=False, separators=(",", ":")),
                "score": scoring.METRICS[question["metric"]](text, question["answers"])}

    # ---- one prompt --------------------------------------------------------------------------------------------------
    def run_prompt(self, sample, index, question, budgets):
        """All cells of one prompt: (control, then every press at every budget). `budgets`: text -> rows to keep."""
        tokens = list(sample["context"])
        if question is not None and self.config["question_aware"]:
            tokens += question["tokens"]
        sample = sample | {"n_prompt": len(tokens)}
        prompt = self.reader.read(tokens)
        full = None
        if question is None:
            full_rows = self.continuation_rows(prompt, sample, self.reader.pressed(prompt, None))
            self.compare_with_ours(sample, full_rows)
            full = scoring.Divergence(full_rows, sample["continuation"])
        self.run_cell(prompt, sample, index, question, full, "none", "100%", None)
        for name in self.names:
            for budget, n_kept in budgets.items():
                self.run_cell(prompt, sample, index, question, full, name, budget, n_kept)
        if self.compares_directly and self.n_equal == 0:
            self.check_direct(prompt, sample, tokens, min(budgets.values()))

    def run_cell(self, prompt, sample, index, question, full, name, budget, n_kept):
        press = None if n_kept is None else self.press(name, n_kept, sample)
        try:
            held = self.reader.pressed(prompt, press)
        except (AssertionError, ValueError) as error:
            held = self.reader.pressed(prompt, None)
            self.rows.append(self.row(sample, index, name, budget, held) | {"error": f"{error}"})
            return
        row = self.row(sample, index, name, budget, held)
        started = time.perf_counter()
        if question is None:
            rows = self.continuation_rows(prompt, sample, held)
            row |= {"decode_s": time.perf_counter() - started, "n_generated": len(sample["continuation"])}
            row |= full.to(rows)
        else:
            row |= self.answered(prompt, sample, question, held)
            row["decode_s"] = time.perf_counter() - started
        row |= {"prefill_s": prompt.seconds,
                "kv_peak_bytes": max(row["kv_peak_bytes"], reader.cache_bytes(held.cache))}
        self.rows.append(row)

    # ---- checks ------------------------------------------------------------------------------------------------------
    def check_direct(self, prompt, sample, tokens, n_kept):
        for name in self.names:
            if presses.re_reads(presses.PRESSES[name](0.5)):
                continue  # pressed() has gone that way
            ours = self.reader.pressed(prompt, self.press(name, n_kept, sample))
            theirs = self.reader.pressed_directly(tokens, self.press(name, n_kept, sample))
            same = ours.rows_per_head == theirs.rows_per_head and all(
                a.keys.equal(b.keys) and a.values.equal(b.values)
                for a, b in zip(ours.cache.layers, theirs.cache.layers))
            if not same:
                raise Failure(1, f"{name}: sharing the prompt gives another cache than `with press(model)`")
            self.n_equal += 1

    def compare_with_ours(self, sample, full_rows):
        if not self.logits_folder:
            return
        name = "".join(c if c.isascii() and (c.isalnum() or c in ".-_") else "_"
                       for c in f"{sample['task']}|{sample['sample']}|full")
        path = Path(self.logits_folder) / f"{name}.npy"
        if not path.is_file():
            raise Failure(2, f"no {path} (kedge eval --save-logits writes it)")
        ours = torch.from_numpy(np.load(path))
        self.full_klds.append(scoring.Divergence(ours, sample["continuation"]).to(full_rows)["kld_mean"])

    def verify(self, our_rows):
        """The checks of the finished run. Returns what config.json says of them."""
        control = [r for r in self.rows if r["policy"] == "kvpress:none" and r["kld_mean"] is not None]
        if any(r["kld_max"] != 0 or r["same_top"] != 1 for r in control):
            raise Failure(1, "the control that drops nothing differs from the full cache")
        theirs = {(r["task"], r["sample"]): r["full_nll"] for r in control}
        ours = {(r["task"], r["sample"]): r["full_nll"] for r in our_rows if r["full_nll"] is not None}
        shared = [key for key in theirs if key in ours]
        found = {"presses_equal_to_context_manager": self.n_equal, "n_windows": len(shared)}
        if shared:
            nll, our_nll = (sum(side[k] for k in shared) / len(shared) for side in (theirs, ours))
            found |= {"full_nll": nll, "our_full_nll": our_nll, "relative_difference": nll / our_nll - 1}
        if self.full_klds:
            found["kld_of_our_full_rows"] = sum(self.full_klds) / len(self.full_klds)
        note("full cache against ours: " + ", ".join(f"{k} {v:.5g}" for k, v in found.items()))
        if abs(found.get("relative_difference", 0)) > MAX_NLL_DIFFERENCE:
            raise Failure(1, f"the full caches' mean nll differs by more than {MAX_NLL_DIFFERENCE:.1%}: wrong weights?")
        if found.get("kld_of_our_full_rows", 0) > MAX_FULL_KLD:
            raise Failure(1, f"the full caches' rows diverge by more than {MAX_FULL_KLD} nats: wrong weights?")
        return found


def cpu_name():
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def write(arguments, config, runner, found, seconds):
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    policies = [{"name": "kvpress:none", "text": "full cache"}]
    policies += [{"name": f"kvpress:{name}", "text": presses.text(name)} for name in runner.names]
    config = config | {"engine": ENGINE, "policies": policies, "cache_type": "f32", "noise_windows": 0, "checks": found}
    run_folder.write_json(out / "config.json", config)
    run_folder.write_json(out / "environment.json", {
        "cpu": cpu_name(), "threads": torch.get_num_threads(), "engine": ENGINE, "torch": torch.__version__,
        "transformers": transformers.__version__, "numpy": np.__version__, "python": platform.python_version(),
        "attention": "sdpa", "weights": "dequantised to f32", "kv": "f32",
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")})
    run_folder.write_rows(out, runner.rows)
    run_folder.write_json(out / "metrics.json", {
        "schema": "kedge-eval-1", "groups": run_folder.groups_of(runner.rows, config["seed"], "kvpress:none"),
        "noise_floor": None,
        "switches": {"question_aware": config["question_aware"], "decode_evicts": False, "shared_prefix": True,
                     "seed": config["seed"]}})
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    run_folder.write_json(out / "timings.json", run_folder.timings_of(runner.rows, peak, seconds))


def run(arguments):
    config, our_rows, samples, model = open_run(arguments)
    names = [name for name in arguments.presses.split(",") if name] or list(presses.PRESSES)
    for name in names:
        if name not in presses.PRESSES:
            raise Failure(2, f"--presses: no press '{name}'; there are: {', '.join(presses.PRESSES)}")
    started = time.perf_counter()
    kept = rows_to_keep(our_rows)
    runner = Runner(reader.Reader(model, arguments.threads), scoring.Vocabulary(model), config, names, arguments.logits,
                    compares_directly=arguments.screen == 1)
    note(f"model read in {time.perf_counter() - started:.0f} s")
    for i, sample in enumerate(samples):
        for index, question in enumerate(sample["questions"] or [None]):
            key = sample["task"], sample["sample"], index
            budgets = {b: kept[*key, b] for b in config["budgets"] if (*key, b) in kept}
            if not budgets:
                raise Failure(2, f"{arguments.run}/predictions.csv has no row of {key} under a policy with a budget")
            runner.run_prompt(sample, index, question, budgets)
        spent = time.perf_counter() - started
        note(f"{i + 1}/{len(samples)} {sample['sample']}: {spent:.0f} s, "
             f"about {spent / (i + 1) * (len(samples) - i - 1):.0f} s left")
    write(arguments, config, runner, runner.verify(our_rows), time.perf_counter() - started)


def main():
    try:
        run(parse_arguments())
    except Failure as failure:
        print(f"run_kvpress: error: {failure}", file=sys.stderr)
        return failure.code
    return 0


if __name__ == "__main__":
    sys.exit(main())
