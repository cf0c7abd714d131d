#!/usr/bin/env python3
"""The output of probe_gate_pressure as a picture: bench/plot_pressure.py pressure.csv > pressure.svg

Three panels over the tokens decoded, one after the other where the sequence went back: the share of the budget in use
with the threshold that follows it, the share of rows that stayed when they left the window, and the divergence from a
full cache.
"""
import csv
import sys

WIDTH, LEFT, RIGHT, PANEL, GAP, TOP = 760, 60, 20, 120, 34, 24
COLOURS = {"used": "#555555", "threshold": "#c0392b", "kept": "#1f6fb2", "kld": "#7d3c98"}
PANELS = ((("used", "threshold"), "share of the budget in use, threshold", 1.0),
          (("kept",), "share of the rows leaving the window that stay", 1.0),
          (("kld",), "KL divergence from the full cache, nats a token", None))


def scaled(rows, name, top, x_of, y0):
    return " ".join(f"{x_of(i):.1f},{y0 + PANEL * (1 - min(float(row[name]) / top, 1)):.1f}"
                    for i, row in enumerate(rows))


def main():
    with open(sys.argv[1], newline="", encoding="utf-8") as f:
        rows = list(csv.DictReader(f))

    def x_of(index):
        return LEFT + (WIDTH - LEFT - RIGHT) * index / max(len(rows) - 1, 1)
    back = [i for i in range(1, len(rows)) if rows[i]["phase"] != rows[i - 1]["phase"]]
    height = TOP + len(PANELS) * (PANEL + GAP)
    print(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
          'font-size="11">')
    print(f'<rect width="{WIDTH}" height="{height}" fill="white"/>')
    for at, (names, title, top) in enumerate(PANELS):
        y0 = TOP + at * (PANEL + GAP)
        top = top or max(float(row[names[0]]) for row in rows) or 1
        print(f'<text x="{LEFT}" y="{y0 - 6}" fill="#333">{title}</text>')
        for part in (0, 0.5, 1):
            y = y0 + PANEL * (1 - part)
            print(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
                  f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="#333">{part * top:.2g}</text>')
        for i in back:
            x = x_of(i - 0.5)
            print(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y0}" y2="{y0 + PANEL}" stroke="#333" stroke-dasharray="3 3"/>')
        for order, name in enumerate(names):
            print(f'<polyline fill="none" stroke="{COLOURS[name]}" stroke-width="1.6" '
                  f'points="{scaled(rows, name, top, x_of, y0)}"/>')
            if len(names) > 1:
                print(f'<text x="{WIDTH - RIGHT - 4}" y="{y0 - 6}" dx="{-70 * order}" text-anchor="end" '
                      f'fill="{COLOURS[name]}">{name}</text>')
    step = max(len(rows) // 8, 1)
    for i in range(0, len(rows), step):
        print(f'<text x="{x_of(i):.1f}" y="{height - 14}" text-anchor="middle" fill="#333">{rows[i]["tokens"]}</text>')
    print(f'<text x="{WIDTH - RIGHT}" y="{height - 2}" text-anchor="end" fill="#333">tokens of the sequence</text>')
    print("</svg>")


if __name__ == "__main__":
    main()
