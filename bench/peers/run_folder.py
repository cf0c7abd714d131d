"""The folder of a run, as docs/eval-format.md describes it: written for kvpress, read for both sides."""
import csv
import json
import math
from pathlib import Path

COLUMNS = ("task sample length depth seed policy budget question metric score prediction answers n_context n_generated "
           "nll full_nll kld_mean kld_p99 kld_max same_top keep kv_live_bytes kv_peak_bytes kv_full_bytes evicted_rows "
           "prefill_s decode_s policy_ms error").split()
TEXTS = {"task", "sample", "policy", "budget", "metric", "prediction", "answers", "error"}
RESAMPLES = 2000


# ---- statistics, as apps/eval/statistics.cpp -------------------------------------------------------------------------
class SplitMix64:
    """apps/eval/random.h."""
    MASK = (1 << 64) - 1

    def __init__(self, seed, name):
        hash_ = 0xCBF29CE484222325
        for byte in name.encode():
            hash_ = ((hash_ ^ byte) * 0x100000001B3) & self.MASK
        self.state = (seed ^ hash_) & self.MASK

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & self.MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & self.MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & self.MASK
        return z ^ (z >> 31)

    def below(self, n):
        return ((self.next() >> 32) * n) >> 32


def mean(values):
    return sum(values) / len(values) if values else 0.0


def quantile(values, q):
    ordered = sorted(values)
    at = q * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def bootstrap(values, seed):
    """Mean, standard error and 95 % interval of the mean: (mean, se, lo, hi), or Nones for no value."""
    if not values:
        return None, None, None, None
    if len(values) < 2:
        return values[0], 0.0, values[0], values[0]
    random = SplitMix64(seed, "bootstrap")
    means = [mean([values[random.below(len(values))] for _ in values]) for _ in range(RESAMPLES)]
    centre = mean(means)
    se = math.sqrt(sum((m - centre) ** 2 for m in means) / (RESAMPLES - 1))
    return mean(values), se, quantile(means, 0.025), quantile(means, 0.975)


# ---- groups, as apps/eval/groups.cpp ---------------------------------------------------------------------------------
def known(rows, field):
    return [row[field] for row in rows if row[field] is not None]


def mean_or_none(rows, field):
    values = known(rows, field)
    return mean(values) if values else None


def perplexity(rows, field):
    scored = [row for row in rows if row[field] is not None]
    n = sum(row["n_generated"] for row in scored)
    return math.exp(sum(row[field] * row["n_generated"] for row in scored) / n) if n else None


def group(key, cells, full, seed):
    """One entry of metrics.json. cells: rows of one sample each; full: (task, sample) -> score of the full cache."""
    rows = [row for cell in cells for row in cell]
    scores, differences, divergences = [], [], []
    for cell in cells:
        score, kld = mean_or_none(cell, "score"), mean_or_none(cell, "kld_mean")
        if score is not None:
            scores.append(score)
            of_full = full.get((cell[0]["task"], cell[0]["sample"]))
            if of_full is not None:
                differences.append(score - of_full)
        if kld is not None:
            divergences.append(kld)
    out = dict(zip(("task", "policy", "budget", "length", "depth"), key))
    out |= {"n": max(len(scores), len(divergences)), "n_errors": sum(any(r["error"] for r in c) for c in cells)}
    rows = [row for row in rows if not row["error"]]
    out |= dict(zip(("score", "score_se", "score_lo", "score_hi"), bootstrap(scores, seed)))
    out["keep"] = mean([row["keep"] for row in rows])
    out["kv_live_bytes"] = mean([row["kv_live_bytes"] for row in rows])
    out["kv_peak_bytes"] = max((row["kv_peak_bytes"] for row in rows), default=0)
    out["kv_full_bytes"] = mean([row["kv_full_bytes"] for row in rows])
    out["evicted_rows"] = mean([row["evicted_rows"] for row in rows])
    out |= {"ppl": perplexity(rows, "nll"), "full_ppl": perplexity(rows, "full_nll")}
    out |= dict(zip(("kld_mean", "kld_se"), bootstrap(divergences, seed)))
    out["kld_p99"] = mean_or_none(rows, "kld_p99")
    out["kld_max"] = max(known(rows, "kld_max"), default=None)
    out["same_top"] = mean_or_none(rows, "same_top")
    return out | dict(zip(("difference", "difference_se"), bootstrap(differences, seed)))


def groups_of(rows, seed, full_policy):
    """All groups of a run, in the order in which tasks, policies, budgets, lengths and depths first appear."""
    cells = {}
    for row in rows:
        cells.setdefault((row["task"], row["sample"], row["policy"], row["budget"]), []).append(row)
    full = {(k[0], k[1]): mean_or_none(c, "score") for k, c in cells.items() if k[2] == full_policy}
    rank = {}
    for row in rows:
        for field in ("task", "policy", "budget"):
            rank.setdefault((field, row[field]), len(rank))
    found = {}
    for cell in cells.values():
        first = cell[0]
        for length in (None, first["length"]):
            for depth in {None, first["depth"]}:
                found.setdefault((first["task"], first["policy"], first["budget"], length, depth), []).append(cell)

    def order(key):
        task, policy, budget, length, depth = key
        return (rank["task", task], rank["policy", policy], rank["budget", budget], depth is not None,
                -1 if length is None else length, -1 if depth is None else depth)

    return [group(key, found[key], full, seed) for key in sorted(found, key=order)]


# ---- files -----------------------------------------------------------------------------------------------------------
def read_json(path):
    return json.loads(Path(path).read_text(encoding="utf-8"))


def write_json(path, value):
    temporary = Path(str(path) + ".tmp")
    temporary.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    temporary.replace(path)


def read_rows(folder):
    """predictions.csv as a list of {column: text, number or None}."""
    rows = []
    with open(Path(folder) / "predictions.csv", newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            row = {}
            for name in COLUMNS:
                text = line[name]
                row[name] = text if name in TEXTS else None if text == "" else float(text)
            rows.append(row)
    return rows


def write_rows(folder, rows):
    path = Path(folder) / "predictions.csv"
    temporary = Path(str(path) + ".tmp")
    with open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in rows:
            writer.writerow(["" if row[name] is None else row[name] for name in COLUMNS])
    temporary.replace(path)


def timings_of(rows, rss_peak_bytes, seconds_total):
    groups = {}
    for row in rows:
        groups.setdefault((row["policy"], row["budget"]), []).append(row)
    return {"schema": "kedge-eval-1",
            "groups": [{"policy": policy, "budget": budget, "n": len(of),
                        **{name: mean([row[name] for row in of]) for name in ("prefill_s", "decode_s", "policy_ms")},
                        "rss_peak_bytes": rss_peak_bytes} for (policy, budget), of in groups.items()],
            "seconds_total": seconds_total}
