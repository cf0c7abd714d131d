#!/usr/bin/env python3
"""What a discard gate should see: one table of gates that differ in their inputs alone.

    KEDGE=build/kedge KEDGE_MODEL=model.gguf bench/gate_inputs.py --train texts/*.txt --held-out a.txt,b.txt \\
        --eval report.txt manual.txt --out inputs/ [--train-tokens 120000] [--samples 12] [-t 2]

1. `kedge train-gate --gate-input hidden,key-value,...`: labels once, a gate for each, in OUT/gates.
   Labels that are there are used; so are gates, unless --anew.
2. `kedge eval kld` of policy `gate` with each of them over seeded windows of each text of --eval, the same for all;
   OUT/kld has the run folders, and a run that was stopped goes on.
3. Prints the table: held-out R^2 (of the best line through the logits) and rank correlation at a cut in each window,
   beside labels of what came after it; mean KL divergence at each budget, and its paired difference to the first
   input's with its standard error over the windows of all texts.

What --also names (policies, as andpro,echo) is measured once more on the same windows, without a gate.
"""
import argparse
import csv
import hashlib
import math
import os
import pathlib
import subprocess
import sys

INPUTS = ["hidden", "key-value", "access", "attention", "window", "all", "echo", "all-echo"]


def run(command, log):
    """The command's output goes to `log`; ends the program with its last lines where the command fails."""
    with open(log, "w", encoding="utf-8") as out:
        code = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, check=False).returncode
    if code != 0:
        tail = pathlib.Path(log).read_text(encoding="utf-8", errors="replace").splitlines()[-5:]
        sys.exit(f"exit code {code}: {' '.join(command)}\n" + "\n".join(tail))


def gate_file(args, name):
    kind = "linear" if args.gate_width == 0 else "mlp"
    return args.out / "gates" / ("gate-" + ("" if name == "hidden" else name + "-") + kind + ".gguf")


def train(args):
    if not args.anew and all(gate_file(args, name).exists() for name in args.inputs):
        return
    run([args.kedge, "train-gate", *args.train, "-m", args.model, "--held-out", args.held_out, "-t", str(args.threads),
         "--gate-out", str(args.out / "gates"), "--gate-input", ",".join(args.inputs), "--gate-width",
         str(args.gate_width), "--train-tokens", str(args.train_tokens), "--train-lengths", args.train_lengths,
         "--progress", "none"], args.out / "train.log")


def fits(args):
    """Of each input the means over layers and heads of what its whole gate explains at a cut: (R^2, rank)."""
    sums = {}
    with open(args.out / "gates" / "report.csv", newline="", encoding="utf-8") as f:
        for row in csv.DictReader(f):
            if row["stage"] == "late":
                one = sums.setdefault(row["gate"], [0, 0.0, 0.0])
                one[0] += 1
                one[1] += float(row["r2"])
                one[2] += float(row["spearman"])
    names = {name: gate_file(args, name).stem.removeprefix("gate-") for name in args.inputs}
    missing = [name for name in args.inputs if names[name] not in sums]
    if missing:
        sys.exit(f"{args.out}/gates/report.csv has no line of {', '.join(missing)}: --anew trains them")
    return {name: (sums[names[name]][1] / sums[names[name]][0], sums[names[name]][2] / sums[names[name]][0])
            for name in args.inputs}


def divergences(args, name, policies, gate):
    """KL divergence of every window: {(policy, budget): {(text, sample): nats}}. Folders are named by what is in
    them, so that a gate that was trained anew is measured anew."""
    found = {}
    for text in args.eval:
        options = ["--lengths", str(args.length), "--continue", str(args.continued), "--samples", str(args.samples),
                   "--seed", str(args.seed), "--kv-budget", args.budgets, "--kv-policy", policies, "--no-controls",
                   "--noise-windows", "0"]
        what = hashlib.sha256((" ".join(options) + text).encode())
        if gate is not None:
            what.update(gate.read_bytes())
        folder = args.out / "kld" / f"{name}-{what.hexdigest()[:12]}"
        folder.parent.mkdir(parents=True, exist_ok=True)
        with_gate = ["--gate", str(gate)] if gate is not None else []
        run([args.kedge, "eval", "kld", "-m", args.model, "-f", text, "-t", str(args.threads), *with_gate, *options,
             "--out", str(folder)], str(folder) + ".log")
        with open(folder / "predictions.csv", newline="", encoding="utf-8") as f:
            for row in csv.DictReader(f):
                key = (row["policy"], row["budget"])
                found.setdefault(key, {})[(text, row["sample"])] = float(row["kld_mean"])
    return found


def mean_and_error(values):
    mean = sum(values) / len(values)
    square = sum((value - mean) ** 2 for value in values)
    return mean, math.sqrt(square / max(len(values) - 1, 1) / len(values))


def cell(own, first):
    mean, _ = mean_and_error(list(own.values()))
    if own is first:
        return f"{mean:.3f}"
    change, error = mean_and_error([own[window] - first[window] for window in own if window in first])
    return f"{mean:.3f} ({change:+.3f} +- {error:.3f})"


def print_table(args, quality, measured):
    budgets = args.budgets.split(",")
    print("| input | R^2 | rank correlation | " + " | ".join(f"KLD, {budget} kept" for budget in budgets) + " |")
    print("|---|---|---|" + "---|" * len(budgets))
    first = None
    for name, by_policy in measured.items():
        for policy in dict.fromkeys(key[0] for key in by_policy):
            rows = {key[1]: windows for key, windows in by_policy.items() if key[0] == policy}
            first = first or rows
            numbers = [f"{x:.3f}" for x in quality[name]] if name in quality else ["", ""]
            label = name if name in quality else f"`{policy}`"
            print("| " + " | ".join([label, *numbers, *[cell(rows[b], first[b]) for b in budgets]]) + " |")
    n = len(next(iter(first.values())))
    print(f"\n{args.train_tokens} tokens of training windows of {args.train_lengths}; KLD over {n} windows of "
          f"{args.length} tokens, the {args.continued} after each.")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kedge", default=os.environ.get("KEDGE", "build/kedge"))
    parser.add_argument("--model", "-m", default=os.environ.get("KEDGE_MODEL"))
    parser.add_argument("--train", nargs="+", required=True, metavar="FILE")
    parser.add_argument("--held-out", required=True, metavar="NAME,...", help="of --train, by file name")
    parser.add_argument("--eval", nargs="+", required=True, metavar="FILE", help="texts that are in no training window")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--inputs", default=",".join(INPUTS))
    parser.add_argument("--also", default="", metavar="POLICIES")
    parser.add_argument("--train-tokens", type=int, default=120000)
    parser.add_argument("--train-lengths", default="1024")
    parser.add_argument("--gate-width", type=int, default=80)
    parser.add_argument("--samples", type=int, default=6, help="windows of each text")
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--continued", type=int, default=128)
    parser.add_argument("--budgets", default="25%,10%")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--threads", "-t", type=int, default=2)
    parser.add_argument("--anew", action="store_true", help="train although the gates are there")
    args = parser.parse_args()
    if not args.model:
        parser.error("no model: --model FILE or KEDGE_MODEL")
    args.inputs = args.inputs.split(",")
    unknown = [name for name in args.inputs if name not in INPUTS]
    if unknown:
        parser.error(f"--inputs: found {', '.join(unknown)}, allowed {', '.join(INPUTS)}")
    args.out.mkdir(parents=True, exist_ok=True)
    train(args)
    quality = fits(args)
    measured = {name: divergences(args, name, "gate", gate_file(args, name)) for name in args.inputs}
    if args.also:
        measured["also"] = divergences(args, "also", args.also, None)
    print_table(args, quality, measured)


if __name__ == "__main__":
    main()
