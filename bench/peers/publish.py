#!/usr/bin/env python3
"""publish.py FOLDER DESTINATION: the small files of a `make peers` run, with paths reduced to file names."""
import shutil
import sys
from pathlib import Path

import run_folder

FILES = ("config.json", "environment.json", "metrics.json", "predictions.csv", "timings.json")


def publish(folder, destination):
    for side in ("ours", "ours-f32", "kvpress"):
        target = destination / side
        target.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            shutil.copyfile(folder / side / name, target / name)
        config = run_folder.read_json(target / "config.json")
        config["file"] = Path(config["file"]).name
        config["model"]["path"] = Path(config["model"]["path"]).name
        run_folder.write_json(target / "config.json", config)
    shutil.copyfile(folder / "table.md", destination / "table.md")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    publish(Path(sys.argv[1]), Path(sys.argv[2]))
