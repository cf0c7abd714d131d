#!/usr/bin/env python3
"""compare.py OURS OURS_F32 THEIRS: runs of ours beside kvpress's on the same windows, as Markdown on stdout.

OURS_F32: ours from the same weights dequantised (dequantise.py), as kvpress's side has them.
"""
import json
import math
import sys
from pathlib import Path

import run_folder

PAIRS = {  # ours -> theirs, with the same options
    "snapkv": "kvpress:snapkv-32",
    "streaming": "kvpress:streaming",
    "random": "kvpress:random",
    "tova": "kvpress:tova",
    "knorm": "kvpress:knorm",
    "keydiff": "kvpress:keydiff",
    "lagkv": "kvpress:lagkv-128",
    "criticalkv": "kvpress:critical-32",
    "chunkkv": "kvpress:chunkkv-32",  # theirs keeps whole chunks: up to one fewer
    "expected:recent=0": "kvpress:expected",  # theirs protects no newest row
    "kvzip:recent=0/pooled-all:norm=none": "kvpress:kvzip",  # and one budget over all layers
}
MAX_STANDARD_ERRORS = 2


def standard_error(values):
    if len(values) < 2:
        return 0.0
    centre = run_folder.mean(values)
    return math.sqrt(sum((v - centre) ** 2 for v in values) / (len(values) - 1) / len(values))


def figure_of(row):
    """What is compared: the divergence of a continuation, or the score of an answer."""
    return row["kld_mean"] if row["kld_mean"] is not None else row["score"]


def by_cell(rows):
    """(policy, budget) -> {(task, sample, question): figure}."""
    cells = {}
    for row in rows:
        if figure_of(row) is not None:
            key = row["task"], row["sample"], row["question"]
            cells.setdefault((row["policy"], row["budget"]), {})[key] = figure_of(row)
    return cells


def difference(a, b):
    """Of two cells: (n, mean of a - b over what both have, its standard error)."""
    shared = [key for key in a if key in b]
    differences = [a[key] - b[key] for key in shared]
    return len(shared), run_folder.mean(differences), standard_error(differences)


def within(mean, error):
    return abs(mean) <= MAX_STANDARD_ERRORS * error if error > 0 else mean == 0


def pair_lines(ours, theirs):
    for policy, press in PAIRS.items():
        for (name, budget), cell in ours.items():
            if name == policy and (press, budget) in theirs:
                n, mean, error = difference(cell, theirs[press, budget])
                verdict = "yes" if within(mean, error) else "**no**"
                values, others = list(cell.values()), list(theirs[press, budget].values())
                alone = standard_error(values)
                yield (f"| `{policy}` - `{press}` | {budget} | {n} | {run_folder.mean(values):.5f} | "
                       f"{run_folder.mean(others):.5f} | {mean:+.5f} | {alone:.4f} | "
                       f"{'yes' if within(mean, alone) else '**no**'} | {error:.5f} | {verdict} |")


def against_lines(ours, theirs):
    """Our best known policy against every press at the same budget."""
    for (name, budget), cell in ours.items():
        if name == "andpro":
            for (press, of), other in theirs.items():
                if of == budget:
                    _, mean, error = difference(cell, other)
                    yield f"| `{press}` | {budget} | {mean:+.4f} | {error:.4f} |"


def group_lines(metrics):
    for group in metrics["groups"]:
        if group["length"] is None or group["depth"] is not None:
            continue
        mean, error = ((group["kld_mean"], group["kld_se"]) if group["kld_mean"] is not None
                       else (group["score"], group["score_se"]))
        top = "" if group["same_top"] is None else f"{100 * group['same_top']:.1f} %"
        nll = "" if group["ppl"] is None else f"{group['ppl']:.3f}"
        yield (f"| `{group['policy']}` | {group['budget']} | {group['n']} | {mean:.4f} +- {error:.4f} | {top} | "
               f"{nll} | {100 * group['keep']:.1f} % | {group['kv_live_bytes'] / 2**20:.2f} |")


def pair_table(ours, theirs):
    yield "| pair | budget | windows | ours | theirs | difference | s.e. of ours | within 2 | paired s.e. | within 2 |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    yield from pair_lines(ours, theirs)


def table(ours_folder, f32_folder, theirs_folder):
    ours, f32, theirs = (by_cell(run_folder.read_rows(f)) for f in (ours_folder, f32_folder, theirs_folder))
    config = run_folder.read_json(Path(theirs_folder) / "config.json")
    yield (f"{config['engine']}, {', '.join(config['tasks'])}, lengths {config['lengths']}, seed {config['seed']}. "
           "KLD in nats a token.")
    yield "\n## The same method on both sides\n"
    yield "Mean KLD to each side's own full cache. `s.e. of ours`: over windows; `paired`: of the differences.\n"
    yield from pair_table(ours, theirs)
    yield "\n## The same, ours with f32 weights\n"
    yield from pair_table(f32, theirs)
    yield "\n## Everything\n"
    yield "`KV MiB` is held after the eviction: f16 and per-row data of ours, f32 tensors of kvpress.\n"
    yield "| policy | budget | n | KLD | same top | PPL | kept | KV MiB |"
    yield "|---|---|---|---|---|---|---|---|"
    for folder in (ours_folder, theirs_folder):
        yield from group_lines(run_folder.read_json(Path(folder) / "metrics.json"))
    yield "\n## `andpro` against each press\n"
    yield "Paired difference of KLD; negative: `andpro` is nearer to its full cache.\n"
    yield "| press | budget | difference | its s.e. |"
    yield "|---|---|---|---|"
    yield from against_lines(ours, theirs)
    yield "\n## Full caches\n"
    yield f"`{json.dumps(config['checks'])}`"


if __name__ == "__main__":
    if len(sys.argv) != 4:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    print("\n".join(table(*sys.argv[1:])))
