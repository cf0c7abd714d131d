"""Makes run folders as docs/eval-format.md describes them, from invented but plausible numbers. For tests, and for
looking at a page:

    python3 tests/cli/run_folder.py FOLDER [--big]
"""
import csv
import json
import math
import os
import random
import statistics
import sys

LAYERS, HEADS, BYTES_A_ROW = 30, 3, 2 * 64 * 2
COLUMNS = ("task sample length depth seed policy budget question metric score prediction answers n_context n_generated "
           "nll full_nll kld_mean kld_p99 kld_max same_top keep kv_live_bytes kv_peak_bytes kv_full_bytes evicted_rows "
           "prefill_s decode_s policy_ms error").split()
# how much of what is dropped hurts: 0 nothing, 1 all
HARM = {"none": 0, "andpro": 0.12, "snapkv": 0.5, "knorm": 0.6, "streaming": 0.75, "random": 1.0}
NASTY = "<script>alert('x')</script> & \"quoted\", \n<b>bold</b> \u00e4\u00f6\u00fc"


def grid(policies=tuple(HARM), budgets=("50%", "25%", "10%", "5%"), lengths=(512, 1024, 2048),
         depths=(0, 0.25, 0.5, 0.75, 1), samples=3, windows=8, tasks=("needle", "kld"), seed=0):
    return dict(policies=list(policies), budgets=list(budgets), lengths=list(lengths), depths=list(depths),
                samples=samples, windows=windows, tasks=list(tasks), seed=seed)


def keep_of(policy, budget):
    return 1.0 if policy == "none" else float(budget.rstrip("%")) / 100


def memory_of(policy, keep, length, answer):
    """Layer by layer while the prompt is read, then a token at a time with an eviction every 16."""
    row, points, evicted = BYTES_A_ROW * HEADS, [], 0
    for layer in range(LAYERS):
        held = layer * length * keep * row
        points.append([length * (layer + 0.5) / LAYERS, int(held + length * row), evicted])
        if policy != "none":
            evicted += int(length * (1 - keep)) * HEADS
            points.append([length * (layer + 1) / LAYERS, int(held + length * keep * row), evicted])
    for token in range(answer):
        full = policy == "none"
        extra = token if full else token % 16
        if not full and token and token % 16 == 0:
            evicted += 16 * HEADS * LAYERS
        points.append([length + token, int((length * keep + extra) * row * LAYERS), evicted])
    return points


def rows_of(policy, keep, length, rng):
    if policy in ("none", "streaming", "random", "knorm"):
        return [[int(length * keep)] * HEADS for _ in range(LAYERS)]
    return [[int(length * keep * min(1 / keep, 0.4 + 1.2 * math.exp(-layer / 9) + 0.3 * rng.random()))
             for _ in range(HEADS)] for layer in range(LAYERS)]


class Maker:
    def __init__(self, g):
        self.g, self.rng = g, random.Random(g["seed"])
        self.rows, self.journal = [], []

    def samples(self, task):
        for length in self.g["lengths"]:
            if task == "needle":
                for depth in self.g["depths"]:
                    for seed in range(self.g["samples"]):
                        yield f"needle-{length}-d{int(100 * depth)}-{seed}", length, depth, seed
            else:
                for seed in range(self.g["windows"]):
                    yield f"{task}-{length}-{seed}", length, None, seed

    def cell(self, task, sample, policy, budget):
        name, length, depth, seed = sample
        keep = keep_of(policy, budget)
        harm = HARM.get(policy, 0.5) * (1 - keep)
        full_bytes = length * LAYERS * HEADS * BYTES_A_ROW
        row = dict.fromkeys(COLUMNS, "") | dict(
            task=task, sample=name, length=length, depth="" if depth is None else depth, seed=seed, policy=policy,
            budget=budget, question=0, n_context=length, n_generated=48, keep=round(keep, 4),
            kv_live_bytes=int(full_bytes * keep), kv_full_bytes=full_bytes,
            kv_peak_bytes=int(full_bytes * keep + full_bytes / LAYERS * (1 - keep)),
            evicted_rows=int(length * (1 - keep)) * LAYERS * HEADS, prefill_s=round(length / 260, 3),
            decode_s=round(0.9 + keep * length / 900, 3),
            policy_ms=0 if policy == "none" else round(length / 40 + 3 * HARM.get(policy, 0.5), 2))
        if task == "needle":
            too_hard = length == 2048 and seed == 2 and depth == 0.5  # also for the full cache
            found = self.rng.random() > harm * (0.6 + 0.5 * (1 - abs(depth - 0.5))) and not too_hard
            row |= dict(metric="contains", score=int(found), answers=json.dumps(["84192"]),
                        prediction="The number is 84192." if found else NASTY)
        else:
            kld = 0 if policy == "none" else 0.002 + harm ** 2 * 0.9 * math.exp(self.rng.gauss(0, 0.25))
            row |= dict(nll=2.4 + kld, full_nll=2.4, kld_mean=kld, kld_p99=kld * 9, kld_max=kld * 30,
                        same_top=1 - min(0.9, kld))
        self.rows.append(row)
        line = dict(cell=f"{task}|{name}|{policy}|{budget}", rows=[{k: v for k, v in row.items() if v != ""}],
                    rows_per_head=rows_of(policy, keep, length, self.rng), rss_peak_bytes=400 << 20)
        if seed == 0 and depth in (None, 0):
            line["memory"] = memory_of(policy, keep, length, 48)
        self.journal.append(line)

    def all_cells(self):
        for task in self.g["tasks"]:
            for sample in self.samples(task):
                for policy in self.g["policies"]:
                    for budget in ["100%"] if policy == "none" else self.g["budgets"]:
                        self.cell(task, sample, policy, budget)

    def group(self, key, rows, full):
        task, policy, budget, length, depth = key
        out = dict(task=task, policy=policy, budget=budget, length=length, depth=depth, n=len(rows), n_errors=0)
        for name in ("keep", "kv_live_bytes", "kv_full_bytes", "evicted_rows"):
            out[name] = statistics.fmean(r[name] for r in rows)
        out["kv_peak_bytes"] = max(r["kv_peak_bytes"] for r in rows)
        error = lambda values: statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
        for name in ("score", "kld_mean", "kld_p99", "kld_max", "same_top"):
            values = [r[name] for r in rows if r[name] != ""]
            out[name] = statistics.fmean(values) if values else None
        if out["score"] is not None:
            scores = [r["score"] for r in rows]
            se = error(scores) or 0
            differences = [r["score"] - full[r["task"], r["sample"]]["score"] for r in rows]
            out |= dict(score_se=se, score_lo=max(0, out["score"] - 1.96 * se),
                        score_hi=min(1, out["score"] + 1.96 * se),
                        difference=statistics.fmean(differences), difference_se=error(differences))
        else:
            out |= dict(kld_se=error([r["kld_mean"] for r in rows]),
                        ppl=math.exp(statistics.fmean(r["nll"] for r in rows)), full_ppl=math.exp(2.4))
        return out

    def groups(self):
        members = {}
        full = {(r["task"], r["sample"]): r for r in self.rows if r["policy"] == "none"}
        for r in self.rows:
            for length in (None, r["length"]):
                for depth in {None, r["depth"] if r["depth"] != "" and length else None}:
                    members.setdefault((r["task"], r["policy"], r["budget"], length, depth), []).append(r)
        return [self.group(key, rows, full) for key, rows in members.items()]

    def timings(self):
        out = []
        for policy in self.g["policies"]:
            for budget in ["100%"] if policy == "none" else self.g["budgets"]:
                rows = [r for r in self.rows if (r["policy"], r["budget"]) == (policy, budget)]
                mean = {n: statistics.fmean(r[n] for r in rows) for n in ("prefill_s", "decode_s", "policy_ms")}
                out.append(dict(policy=policy, budget=budget, n=len(rows), rss_peak_bytes=400 << 20) | mean)
        return dict(schema="kedge-eval-1", groups=out, seconds_total=1234.5)

    def config(self):
        g = self.g
        return {"schema": "kedge-eval-1",
                "model": {"path": "/models/tiny.gguf", "sha256": "ab" * 32, "name": "SmolLM2 135M Instruct",
                          "architecture": "llama", "weight_type": "Q4_1", "n_layers": LAYERS, "n_kv_heads": HEADS,
                          "head_dim": 64},
                "tasks": [t + (":keys=1" if t == "needle" else "") for t in g["tasks"]], "file": "text.txt",
                "file_sha256": "cd" * 32,
                "policies": [{"name": p, "text": f"{p}:window=32/pooled:floor=0.1/every:n=64"} for p in g["policies"]],
                "budgets": g["budgets"], "lengths": g["lengths"], "depths": g["depths"], "samples": g["samples"],
                "seed": g["seed"], "continuation": 128, "question_aware": False, "decode_evicts": True, "chat": False,
                "reference": ""}

    def metrics(self):
        return {"schema": "kedge-eval-1", "groups": self.groups(),
                "noise_floor": {"kld_mean": 0.0031, "same_top": 0.98, "n_windows": 4,
                                "what": "prompt weights native against auto"},
                "switches": {"question_aware": False, "decode_evicts": True, "shared_prefix": True,
                             "seed": self.g["seed"]}}


def write_run(folder, g=None):
    """Writes a whole run folder; returns its Maker, whose rows the files are made of."""
    maker = Maker(g or grid())
    maker.all_cells()
    os.makedirs(folder, exist_ok=True)
    documents = {"config.json": maker.config(), "metrics.json": maker.metrics(), "timings.json": maker.timings(),
                 "environment.json": {"cpu": "Some CPU", "threads": 2}}
    for name, value in documents.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            json.dump(value, f, indent=1)
    with open(os.path.join(folder, "predictions.csv"), "w", encoding="utf-8", newline="") as f:
        writer = csv.DictWriter(f, COLUMNS)
        writer.writeheader()
        writer.writerows(maker.rows)
    with open(os.path.join(folder, "journal.jsonl"), "w", encoding="utf-8") as f:
        f.writelines(json.dumps(line) + "\n" for line in maker.journal)
    return maker


def big_grid():
    """10,000 cells and a little more: 10 policies, 10 budgets, 10 lengths."""
    for i in range(5):
        HARM[f"method{i}"] = 0.2 + 0.15 * i
    return grid(policies=list(HARM), budgets=[f"{p}%" for p in (90, 80, 70, 60, 50, 40, 30, 20, 10, 5)],
                lengths=[256 * i for i in range(1, 11)], samples=2, tasks=["needle"])


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    made = write_run(sys.argv[1], big_grid() if "--big" in sys.argv else None)
    print(f"{len(made.rows)} cells in {sys.argv[1]}")
