#!/usr/bin/env python3
"""winners.py FOLDER: our default policy beside the best of kvpress's, per task and budget, as Markdown on stdout.
winners.py --carry N RUN...: the presses that are among the best N of these screening runs at any budget.

FOLDER is what tools/run_fidelity wrote: runs NAME, NAME-screen and NAME-kvpress; names that begin alike up to a hyphen
and a number (kld-1, kld-2) are one task over several texts. The best press is chosen after the fact, by its mean, which
favours it. Exit: 0 ours is nowhere behind by more than two paired standard errors, 1 it is, 2 usage.
"""
import sys
from pathlib import Path

import compare
import run_folder

OURS = "echo"
CONTROLS = ("kvpress:none", "kvpress:random")


def cells_of(folder):
    """task -> (policy, budget) -> {(text, task, sample, question): figure}, over all its texts and both sides."""
    tasks = {}
    for run in sorted(path.parent for path in Path(folder).glob("*/predictions.csv")):
        if not run.name.endswith("-screen"):
            add_cells(tasks, run, run.name.removesuffix("-kvpress"))
    return tasks


def add_cells(tasks, run, name):
    task = name.rsplit("-", 1)[0] if name.rsplit("-", 1)[-1].isdigit() else name
    for key, cell in compare.by_cell(run_folder.read_rows(run)).items():
        whole = tasks.setdefault(task, {}).setdefault(key, {})
        whole.update({(name, *sample): figure for sample, figure in cell.items()})


def carried(runs, n_best):
    """Presses among the best n_best of a task at any budget, in the order of the first."""
    tasks = {}
    for run in map(Path, runs):
        add_cells(tasks, run, run.name.removesuffix("-screen"))
    found = {}
    for task, cells in tasks.items():
        for budget in dict.fromkeys(budget for policy, budget in cells if policy not in CONTROLS):
            for _, policy in ranked(cells, budget, is_score(task))[:n_best]:
                found[policy.removeprefix("kvpress:")] = True
    return list(found)


def is_score(task):
    """Scores are better when higher, divergences when lower."""
    return not task.startswith(("kld", "ppl"))


def budgets_of(cells):
    return list(dict.fromkeys(budget for policy, budget in cells if policy == OURS))


def mean_of(cell):
    return run_folder.mean(list(cell.values()))


def ranked(cells, budget, higher_is_better):
    """Presses at a budget, best first: (mean, policy)."""
    found = [(mean_of(cell), policy) for (policy, of), cell in cells.items()
             if of == budget and policy.startswith("kvpress:") and policy not in CONTROLS]
    return sorted(found, reverse=higher_is_better)


def summary(tasks):
    """One line a task and budget, and whether ours is behind anywhere."""
    yield f"| task | budget | n | `{OURS}` | best of kvpress | its figure | `{OURS}` less it | paired s.e. | |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for task, cells in tasks.items():
        for budget in budgets_of(cells):
            ours = cells[OURS, budget]
            figure, press = ranked(cells, budget, is_score(task))[0]
            n, lead, error = compare.difference(ours, cells[press, budget])
            behind = lead < 0 if is_score(task) else lead > 0
            verdict = "behind" if behind and abs(lead) > 2 * error else "level" if abs(lead) <= 2 * error else "ahead"
            yield (f"| {task} | {budget} | {n} | {mean_of(ours):.4f} | `{press}` | {figure:.4f} | {lead:+.4f} | "
                   f"{error:.4f} | {verdict} |")


def everything(tasks):
    for task, cells in tasks.items():
        budgets = budgets_of(cells)
        better = "score, higher is better" if is_score(task) else "KLD in nats a token, lower is better"
        yield f"\n## {task}: {better}\n"
        yield "| policy | " + " | ".join(budgets) + " |"
        yield "|---" * (len(budgets) + 1) + "|"
        policies = list(dict.fromkeys(policy for policy, _ in cells))
        first = {policy: mean_of(cells[policy, budgets[0]]) for policy in policies if (policy, budgets[0]) in cells}
        for policy in sorted(first, key=first.get, reverse=is_score(task)):
            figures = []
            for budget in budgets:
                cell = cells.get((policy, budget), {})
                error = compare.standard_error(list(cell.values()))
                figures.append(f"{mean_of(cell):.4f} +- {error:.4f}" if cell else "")
            yield f"| `{policy}` | " + " | ".join(figures) + " |"


def report(folder):
    tasks = cells_of(folder)
    return "\n".join([*summary(tasks), *everything(tasks)])


def main(folder):
    text = report(folder)
    print(text)
    return "| behind |" in text


if __name__ == "__main__":
    if len(sys.argv) > 3 and sys.argv[1] == "--carry" and sys.argv[2].isdigit():
        print(",".join(carried(sys.argv[3:], int(sys.argv[2]))))
        sys.exit(0)
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    sys.exit(main(sys.argv[1]))
