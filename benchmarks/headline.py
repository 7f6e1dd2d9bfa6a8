"""Say where `auto` stands beside the best private peer: the cells of benchmarks/utility.py, and one table of them, on
datasets that came when its first rules stood.

python -m benchmarks.headline    # the table of docs/results/measured.md; fits nothing
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from benchmarks import datasets, peers
from benchmarks.lines import read_lines

AUTO, OPEN = "auto", "hist-gradient-boosting"
ACCURACY = Path(__file__).resolve().parents[1] / "studies" / "accuracy"
RESULTS, LEFT_OUT = ACCURACY / "utility.jsonl.gz", ACCURACY / "left-out.jsonl.gz"
SHOWN = ("0.1", "0.5", "1", "4")
Line = dict[str, Any]
Cell = tuple[str, str]
Figures = dict[str, dict[int, Line]]  # method -> seed -> line


def cells_of(lines: Sequence[Line]) -> dict[Cell, Figures]:
    """By dataset and epsilon; what has no epsilon stands in every cell of its dataset."""
    found: dict[Cell, Figures] = defaultdict(lambda: defaultdict(dict))
    for line in lines:
        if line["epsilon"] is not None:
            found[line["dataset"], line["epsilon"]][line["method"]][line["seed"]] = line
    for line in lines:
        if line["epsilon"] is None:
            for (dataset, _), figures in found.items():
                if dataset == line["dataset"]:
                    figures[line["method"]][line["seed"]] = line
    order = {name: place for place, name in enumerate(datasets.names())}
    return dict(sorted(found.items(), key=lambda each: (order.get(each[0][0], 99), float(each[0][1]))))


def common(figures: Figures, *methods: str) -> list[int]:
    """Seeds that all of them have."""
    return sorted(set.intersection(*(set(figures.get(method, {})) for method in methods)))


def behind(figures: Figures) -> tuple[float, float | None, str, int] | None:
    """Of `auto` and the private peer with the best mean AUROC on the same splits: the mean difference, its standard
    error over splits (None of one), the peer, and how many splits."""
    rivals = [name for name in figures if peers.parse(name)[0].family == "peer" and common(figures, AUTO, name)]
    if not rivals:
        return None
    every = max(len(common(figures, AUTO, name)) for name in rivals)
    full = [name for name in rivals if len(common(figures, AUTO, name)) == every]

    def gaps(name: str) -> list[float]:
        return [figures[AUTO][s]["auroc"] - figures[name][s]["auroc"] for s in common(figures, AUTO, name)]

    best = min(full, key=lambda name: fmean(gaps(name)))
    found = gaps(best)
    return fmean(found), stdev(found) / sqrt(len(found)) if len(found) > 1 else None, best, len(found)


def headline(lines: Sequence[Line]) -> str:
    """Return the table: AUROC of `auto` by dataset and epsilon, and in brackets how far the best private peer is below
    it on the same splits, with the standard error of that; last what HistGradientBoosting reaches without privacy.
    """
    cells = {cell: figures for cell, figures in cells_of(lines).items() if AUTO in figures}
    head = ["dataset", *(f"epsilon {epsilon}" for epsilon in SHOWN), "not private"]
    rows = [head, ["---"] + ["---:"] * (len(head) - 1)]
    for name in dict.fromkeys(dataset for dataset, _ in cells):
        row = [name]
        for epsilon in SHOWN:
            figures = cells[name, epsilon]
            difference = behind(figures)
            mean = fmean(line["auroc"] for line in figures[AUTO].values())
            gap = "" if difference is None else f" ({difference[0]:+.3f} ± {difference[1] or 0:.3f})"
            row.append(f"{mean:.3f}{gap}")
        unprotected = [line["auroc"] for line in figures.get(OPEN, {}).values()]
        rows.append([*row, f"{fmean(unprotected):.3f}" if unprotected else ""])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    print(headline([line for line in read_lines(LEFT_OUT) if "error" not in line]), end="")
