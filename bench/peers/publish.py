#!/usr/bin/env python3
"""publish.py FOLDER DESTINATION [--rows-only]: the small files of the runs that `make peers` or `make fidelity` wrote,
with paths reduced to file names. --rows-only: without what can be computed anew from a run's rows."""
import shutil
import sys
from pathlib import Path

import run_folder

ROWS = ("config.json", "environment.json", "predictions.csv")
SUMS = ("metrics.json", "timings.json")
TABLES = ("table.md", "winners.md")


def publish(folder, destination, files):
    for run in sorted(path.parent for path in folder.glob("*/predictions.csv")):
        target = destination / run.name
        target.mkdir(parents=True, exist_ok=True)
        for name in files:
            shutil.copyfile(run / name, target / name)
        config = run_folder.read_json(target / "config.json")
        config["file"] = Path(config["file"]).name
        config["model"]["path"] = Path(config["model"]["path"]).name
        run_folder.write_json(target / "config.json", config)
    for name in TABLES:
        if (folder / name).exists():
            shutil.copyfile(folder / name, destination / name)


if __name__ == "__main__":
    paths = [argument for argument in sys.argv[1:] if argument != "--rows-only"]
    if len(paths) != 2:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    publish(Path(paths[0]), Path(paths[1]), ROWS if "--rows-only" in sys.argv else ROWS + SUMS)
