"""Judge `auto` by the bounds that were set for it, from the lines of benchmarks/utility.py: bounds.md beside this file.

python -m studies.accuracy.bounds    # writes the page and its picture; fits nothing
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from benchmarks import peers, plots
from benchmarks.headline import AUTO, OPEN, RESULTS, Cell, Figures, Line, behind, cells_of, common
from benchmarks.lines import read_lines
from studies.defaults.auto import fair, table

CONSTANT, OPEN_EBM = "most-frequent", "open-ebm"
OWN = ("ebm", "lazybb", "lazybb-tree", "bdpe", "forest")
BANDS = (0.0, 300.0, 1000.0, 3000.0, 10_000.0, 30_000.0, 1e12)
ADULT = {"1": 0.913, "4": 0.917}
SLOPES, ERRORS, ERRORS_FROM = (0.9, 1.1), {"adult": 0.015, "bank": 0.015, "telco": 0.03}, 0.5
CLOSED = ("eeg", "codrna", "bank", "page_blocks")
LOSS_FROM, LOSS_ROWS = 0.25, 2000


def sections(lines: Sequence[Line], folder: Path) -> str:
    """Empty where `auto` was not run."""
    cells = {cell: figures for cell, figures in cells_of(lines).items() if AUTO in figures}
    if not cells:
        return ""
    parts = [
        "# The bounds of `auto`",
        *ahead(cells),
        *regrets(cells),
        *closed(cells),
        *calibrated(cells),
        *losses(cells),
    ]
    drawn = pictures(cells, folder)
    return "\n\n".join([*parts, *drawn])


def ahead(cells: dict[Cell, Figures]) -> list[str]:
    """Never below the best private peer by more than one standard error."""
    found = {cell: one for cell, figures in cells.items() if (one := behind(figures)) is not None}
    below = {cell: one for cell, one in found.items() if one[0] < 0}
    missed = {cell: one for cell, one in below.items() if one[1] is not None and -one[0] > one[1]}
    single = {cell: one for cell, one in below.items() if one[1] is None}
    said = [
        f"**Never below the best private peer by more than one standard error.** Of {len(found)} cells `auto` is ahead "
        f"in {len(found) - len(below)}, behind in {len(below)}, of which {len(missed)} by more than one standard error "
        f"of the difference over the splits that both have, and {len(single)} on one split."
        " The peer is the one with the best mean of that cell, picked afterwards."
    ]
    if below:
        rows = [
            [name, epsilon, f"{gap:+.4f}", "" if error is None else f"{error:.4f}", f"`{peer}`", str(many),
             "missed" if (name, epsilon) in missed else "one split" if error is None else "within"]
            for (name, epsilon), (gap, error, peer, many) in below.items()
        ]  # fmt: skip
        head = ["dataset", "epsilon", "difference", "its standard error", "peer", "splits", "bound"]
        said.append("\n".join(table(head, rows)))
    return said


def regrets(cells: dict[Cell, Figures]) -> list[str]:
    """Against our own best learner per cell, by strength."""
    bands: dict[tuple[float, str], list[float]] = defaultdict(list)
    noise, fairly = [], []  # of each cell: what a rule that knows it loses, and what auto loses against that
    for (_, epsilon), figures in cells.items():
        every = max((len(common(figures, AUTO, name)) for name in OWN if name in figures), default=0)
        own = [name for name in OWN if name in figures and len(common(figures, AUTO, name)) == every]
        seeds = common(figures, AUTO, *own) if len(own) > 1 else []
        if not seeds:
            continue
        means = {name: fmean(figures[name][seed]["auroc"] for seed in seeds) for name in (AUTO, *own)}
        if len(seeds) > 1:
            known = fair({name: {seed: figures[name][seed]["auroc"] for seed in seeds} for name in own})
            noise.append(max(means[name] for name in own) - known)
            fairly.append(known - means[AUTO])
        power = next(iter(figures[AUTO].values()))["rows"] * float(epsilon)
        for low in {max(low for low in BANDS if low <= power), -1.0}:
            for name, reached in means.items():
                bands[low, name].append(max(means[each] for each in own) - reached)
    if not bands:
        return []
    lows = [*sorted({low for low, _ in bands if low >= 0}), -1.0]
    rows = [
        [f"`{name}`", *(f"{fmean(bands[low, name]):.4f}" if bands[low, name] else "" for low in lows)]
        for name in (AUTO, *OWN)
        if bands[-1.0, name]
    ]
    head = ["learner", *(f"from {low:,.0f}" if low >= 0 else "all" for low in lows)]
    count = len(bands[-1.0, AUTO])
    said = (
        "**Mean regret against our own best learner per cell at most .004.** It is "
        f"{fmean(bands[-1.0, AUTO]):.4f} over {count} cells, by records · epsilon below. `auto` is a fit of its own, "
        "so part of it is the noise of a second draw, and the best of several noisy figures is too high by as much."
    )
    if noise:
        said += (
            " A rule that knows each cell, and takes on every split what was best on the others, shows "
            f"{fmean(noise):.4f} over the {len(noise)} cells of two splits or more; against that rule, which no draw "
            "flatters, `auto` loses "
            f"{fmean(fairly):.4f}. What a user loses lies between the two ([why](../defaults/auto.md#which-learner))."
        )
    return [said, "\n".join(table(head, rows))]


def closed(cells: dict[Cell, Figures]) -> list[str]:
    """Adult's AUROC, and how far the distance from the best peer to the better of what is not private is closed at
    epsilon 1.
    """
    said = []
    for epsilon, bound in ADULT.items():
        if ("adult", epsilon) in cells:
            mean = fmean(line["auroc"] for line in cells["adult", epsilon][AUTO].values())
            word = "met" if mean >= bound else f"missed by {bound - mean:.4f}"
            said.append(f"Adult at epsilon {epsilon}: {mean:.4f}, asked for {bound:g}: {word}.")
    rows = []
    for name in CLOSED:
        figures = cells.get((name, "1"), {})
        one, seeds = behind(figures) if figures else None, common(figures, AUTO, OPEN) if figures else []
        if one is None or not seeds:
            continue
        own, trees = (fmean(figures[method][seed]["auroc"] for seed in seeds) for method in (AUTO, OPEN))
        curves = trees + fmean(lead) if (lead := leads(figures)) else None
        peer, best = own - one[0], max(trees, curves or 0)
        told = f"{curves:.4f} ({len(lead)})" if curves is not None else ""
        closed_by = f"{100 * (own - peer) / (best - peer):.0f} %"
        rows.append([name, f"{peer:.4f}", f"{own:.4f}", f"{trees:.4f}", told, closed_by])
    head = ["dataset", "best peer", "auto", "HistGradientBoosting", "EBM (splits)", "of the distance closed"]
    told = (
        "**Adult, and half of the distance to the better of what is not private, at epsilon 1, counted from the best "
        "private peer.** EBM is that of interpret without privacy, where it ran: HistGradientBoosting's mean and what "
        "EBM was ahead on the same splits, so many. "
    )
    return [told + " ".join(said)] + (["\n".join(table(head, rows))] if rows else [])


def leads(figures: Figures) -> list[float]:
    """How far EBM without privacy is ahead of HistGradientBoosting, on each split that both have."""
    both = common(figures, OPEN, OPEN_EBM)
    return [figures[OPEN_EBM][seed]["auroc"] - figures[OPEN][seed]["auroc"] for seed in both]


def calibrated(cells: dict[Cell, Figures]) -> list[str]:
    """Slope and calibration error of `auto` from epsilon .5 on, and the best peer's error."""
    rows = []
    for (name, epsilon), figures in cells.items():
        lines = [line for line in figures[AUTO].values() if "ece" in line]
        if name not in ERRORS or float(epsilon) < ERRORS_FROM or not lines:
            continue
        slope, error = (fmean(line[kind] for line in lines) for kind in ("slope", "ece"))
        theirs = {
            method: fmean(line["ece"] for line in by.values())
            for method, by in figures.items()
            if peers.parse(method)[0].family == "peer" and all("ece" in line for line in by.values())
        }
        good = SLOPES[0] <= slope <= SLOPES[1], error <= ERRORS[name]
        best = min(theirs, key=lambda method: theirs[method]) if theirs else ""
        rows.append([
            name, epsilon, f"{slope:.3f}{'' if good[0] else ' (missed)'}",
            f"{error:.4f}{'' if good[1] else f' (above {ERRORS[name]:g})'}",
            f"{theirs[best]:.4f} `{best}`" if best else "",
        ])  # fmt: skip
    if not rows:
        return []
    head = ["dataset", "epsilon", "slope", "error", "the best peer's error"]
    said = "**Calibration: slope .9 to 1.1, error at most .015 on Adult and Bank, .03 on Telco.** Means over splits."
    return [
        f"{said} [The error that right chances would have](../defaults/bends.md) is .007 to .027.",
        "\n".join(table(head, rows)),
    ]


def losses(cells: dict[Cell, Figures]) -> list[str]:
    """No log loss above the constant model's, and whether it falls as epsilon rises."""
    above, rising = [], []
    means: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for (name, epsilon), figures in cells.items():
        seeds = common(figures, AUTO, CONSTANT)
        if seeds and float(epsilon) >= LOSS_FROM and figures[AUTO][seeds[0]]["rows"] >= LOSS_ROWS:
            own, base = (fmean(figures[method][seed]["logloss"] for seed in seeds) for method in (AUTO, CONSTANT))
            above += [f"{name} at {epsilon}"] if own > base else []
            means[name].append((float(epsilon), own))
    for name, points in means.items():
        rising += [
            f"{name} {low:g} to {high:g} (+{after - before:.4f})"
            for (low, before), (high, after) in zip(sorted(points), sorted(points)[1:], strict=False)
            if after > before
        ]
    steps = sum(max(0, len(each) - 1) for each in means.values())
    return [
        f"**Log loss.** Above the constant model's, from epsilon {LOSS_FROM:g} on with {LOSS_ROWS:,} rows or more: "
        f"{', '.join(above) or 'nowhere'}. It falls at {steps - len(rising)} of {steps} steps of epsilon; it rises at "
        f"{', '.join(rising) or 'none'}."
    ]


def pictures(cells: dict[Cell, Figures], folder: Path) -> list[str]:
    """What share of rows is of the class, by what was said, on the sets that the bounds speak of."""
    panels = []
    for (name, epsilon), figures in cells.items():
        if name in ERRORS and epsilon in ("1", "4"):
            points = [
                {"method": peers.METHODS[method].title or f"{method} (ours)", "said": at[0], "true": at[1]}
                for method in (AUTO, "dp-ebm-best")
                for line in figures.get(method, {}).values()
                for at in line.get("bins", ())
            ]
            panels += [plots.calibration(points, f"{name}, epsilon {epsilon}")] if points else []
    if not panels:
        return []
    plots.draw(folder / "utility-calibration.svg", panels, 2)
    return [
        "What share of held-out rows is of the last class, by the mean chance of fifteen bins of equal mass; a point "
        "per bin and split:",
        "![Calibration of auto and of the best DP-EBM](utility-calibration.svg)",
    ]


def main() -> None:
    """Write the page from the lines that there are."""
    lines = [line for line in read_lines(RESULTS) if "error" not in line]
    (RESULTS.parent / "bounds.md").write_text(sections(lines, RESULTS.parent) + "\n", "utf-8")


if __name__ == "__main__":
    main()
