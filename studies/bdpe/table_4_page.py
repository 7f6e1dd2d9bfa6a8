"""studies/bdpe/bdpe.md from lines: every number on the page is one of a line, or the paper prints it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

from studies import digests

EPSILONS = ("0.01", "0.1", "1", "10", "25")
STRATEGIES = {"O.C": (1.0, 0.1), "0.1": (0.1, 1.0), "1.0": (1.0, 1.0)}  # alpha, calibration
KINDS = {"votes": "RF-L, votes as printed", "counts": "RF-L, ours", "label": "RF-E"}
PUBLISHED = {  # Table 4: % of significant wins over depths 2, 4, 6: T = 2 | T = 20; (O.C, .1, 1.0) by RF-L, then RF-E
    "transfusion": "100 100 100 100 100 100 | 100 100 100 100 100 100",
    "banknote": "50 59 75 83 61 78 | 100 47 100 100 56 100",
    "breast_wisconsin": "0 3 0 25 28 25 | 34 22 45 41 33 44",
    "ionosphere": "25 25 25 33 35 32 | 53 25 51 64 28 64",
    "sonar": "36 38 34 45 52 44 | 85 26 85 92 32 88",
    "yeast": "100 100 100 100 100 100 | 100 100 100 100 100 100",
    "winered": "45 46 48 60 61 70 | 100 20 100 100 36 100",
    "cardiotocography": "100 100 100 100 100 100 | 100 100 100 100 100 100",
    "creditcardsmall": "100 100 100 100 100 100 | 100 100 100 100 100 100",
    "abalone": "8 14 11 14 17 21 | 64 39 45 67 45 61",
    "qsar": "100 83 100 75 75 75 | 100 83 100 78 78 78",
    "winewhite": "75 75 75 75 75 75 | 100 75 100 100 75 100",
    "page_blocks": "100 100 100 100 100 100 | 100 100 100 100 100 100",
    "mice": "26 39 52 46 55 61 | 100 0 100 100 31 100",
    "firmteacher": "11 19 7 11 19 8 | 47 11 47 47 23 65",
    "eeg": "7 8 5 5 0 0 | 0 0 8 17 0 0",
}
TABLE_1 = dict(zip(EPSILONS, ((14, 3, 5), (13, 2, 6), (9, 3, 9), (5, 4, 11), (8, 6, 6)), strict=True))  # of 19 sets
TABLE_3 = {  # (depth, trees) of the best private results, by the paper: small or big
    **dict.fromkeys(("breast_wisconsin", "ionosphere", "yeast", "abalone", "firmteacher"), ("small", "big")),
    **dict.fromkeys(("transfusion", "banknote", "sonar", "qsar", "mice", "winered", "winewhite"), ("big", "big")),
    "page_blocks": ("small", "small"),
    "cardiotocography": ("big", "small"),
}
CHANCE = 0.02  # an error so far below the majority's, or less, is no better than it
NO_NOISE = "none"
Line = Mapping[str, Any]


def wins(verdicts: Sequence[int]) -> str:
    """The percentage of those that tell the two apart."""
    decided = [each for each in verdicts if each]
    return f"{100 * sum(each > 0 for each in decided) / len(decided):.0f}" if decided else "-"


def of_row(name: str, trees: int, lines: Sequence[Line]) -> list[Line]:
    """The lines of so many trees, of one set or ("") of all."""
    return [line for line in lines if line["trees"] == trees and name in ("", line["set"])]


def _row(name: str, trees: int, lines: Sequence[Line]) -> str:
    mine, cells = of_row(name, trees, lines), []
    for kind, strategy in product(KINDS, STRATEGIES):
        cells.append(wins([line["verdicts"][kind] for line in mine if line["strategy"] == strategy]))
    if name and trees in (2, 20):
        theirs = PUBLISHED[name].split(" | ")[trees == 20].split()
        printed = [*theirs[:3], *([""] * 3), *theirs[3:]]
        cells = [f"{cell} ({known})" if known else cell for cell, known in zip(cells, printed, strict=True)]
    return f"| {name or '**all of these**'} | {trees} | " + " | ".join(cells) + " |"


def least(lines: Iterable[Line], *by: str) -> dict[tuple[Any, ...], dict[str, float]]:
    """The least error of each strategy, by the values of these keys."""
    found: dict[tuple[Any, ...], dict[str, float]] = defaultdict(dict)
    for line in lines:
        best = found[tuple(line[key] for key in by)]
        best[line["strategy"]] = min(best.get(line["strategy"], 1.0), line["error"])
    return found


def table_1(fits: Sequence[Line], most: Mapping[str, float]) -> str:
    """On how many sets each strategy has the best model, and how many settings are no better than the majority."""
    best, rows = least(fits, "set", "epsilon"), []
    for epsilon in EPSILONS:
        held = [by for (_, at), by in best.items() if at == epsilon]
        wins_of = [sum(by[one] <= min(by.values()) + 1e-9 for by in held) for one in STRATEGIES]
        apart = [max(by.values()) - min(by.values()) for by in held]
        settings = [line for line in fits if line["epsilon"] == epsilon]
        at_chance = [line["error"] > most[line["set"]] - CHANCE for line in settings]
        cells = [*(f"{ours} ({theirs})" for ours, theirs in zip(wins_of, TABLE_1[epsilon], strict=True))]
        cells += [f"{fmean(apart):.3f}", f"{100 * fmean(at_chance):.0f} %"]
        rows.append(f"| {epsilon} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def decided(fits: Sequence[Line]) -> str:
    """The share of comparisons that are significant, by epsilon."""
    shares = []
    for epsilon in EPSILONS:
        verdicts = [one for line in fits if line["epsilon"] == epsilon for one in line["verdicts"].values()]
        shares.append(f"{100 * sum(map(bool, verdicts)) / max(1, len(verdicts)):.0f} % at {epsilon}")
    return ", ".join(shares)


def table_3(fits: Sequence[Line], names: Sequence[str]) -> str:
    """Depth and number of trees of the least mean error over epsilons, of the best strategy."""
    rows = []
    for name in names:
        mine = [line for line in fits if line["set"] == name]
        mean: dict[tuple[int, int], float] = {}
        for depth, trees in {(line["depth"], line["trees"]) for line in mine}:
            here = least((x for x in mine if (x["depth"], x["trees"]) == (depth, trees)), "epsilon")
            mean[depth, trees] = fmean(min(by.values()) for by in here.values())
        depth, trees = min(sorted(mean), key=mean.__getitem__)
        rows.append(f"| {name} | {depth} | {trees} | {mean[depth, trees]:.3f} | {', '.join(TABLE_3.get(name, ()))} |")
    return "\n".join(rows)


def wider(lines: Sequence[Line]) -> tuple[list[str], list[Line]]:
    """The sets that were run wider, and their lines of 2 and 20 trees at the epsilons that all have, or at none."""
    names = sorted({line["set"] for line in lines if line["kind"] == "alone"}, key=list(PUBLISHED).index)
    fits = [line for line in lines if "strategy" in line and line["set"] in names and line["trees"] in (2, 20)]
    return names, [line for line in fits if line["epsilon"] in (*EPSILONS[1:4], NO_NOISE)]


def varied(lines: Sequence[Line]) -> str:
    """Mean errors by depth, and at depth 4 by share and cut points."""
    names, every = wider(lines)
    every = [line for line in every if line["epsilon"] != NO_NOISE]
    plain = [line for line in every if (line["share"], line["values"]) == (0.5, 10)]
    parts: dict[str, list[Line]] = {f"depth {d}": [x for x in plain if x["depth"] == d] for d in range(1, 7)}
    parts["depth 4: share .1"] = [x for x in every if x["share"] == 0.1]
    parts["depth 4: share .9"] = [x for x in every if x["share"] == 0.9]
    parts["depth 4: v_q 50"] = [x for x in every if x["values"] == 50]
    rows = []
    for what, chosen in parts.items():
        cells = []
        for name, strategy in product(names, STRATEGIES):
            errors = [x["error"] for x in chosen if (x["set"], x["strategy"]) == (name, strategy)]
            cells.append(f"{fmean(errors):.3f}" if errors else "-")
        rows.append(f"| {what} | " + " | ".join(cells) + " |")
    head = [f"{name}: {one}" if one == "O.C" else one for name, one in product(names, STRATEGIES)]
    return "\n".join(["| mean error | " + " | ".join(head) + " |", "|---" * (len(head) + 1) + "|", *rows])


def figure_2(lines: Sequence[Line]) -> str:
    """Percentage of settings with at most so large an error, without noise and with it."""
    names, every = wider(lines)
    rows = []
    for name, strategy in product(names, STRATEGIES):
        mine = [x for x in every if (x["set"], x["strategy"], x["share"], x["values"]) == (name, strategy, 0.5, 10)]
        cells = []
        for noise in (False, True):
            errors = [x["error"] for x in mine if (x["epsilon"] != NO_NOISE) == noise]
            cells += [f"{100 * fmean(error <= most for error in errors):.0f}" for most in (0.1, 0.2, 0.3, 0.4)]
            cells.append(f"{min(errors):.3f}")
        rows.append(f"| {name} | {strategy} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def errors_table(lines: Sequence[Line], fits: Sequence[Line], names: Sequence[str], most: Mapping[str, float]) -> str:
    own = {(line["set"], line["epsilon"]): line["error"] for line in lines if line["kind"] == "lazybb-tree"}
    table = []
    for name, epsilon in product(names, EPSILONS):
        cell = [line for line in fits if (line["set"], line["epsilon"]) == (name, epsilon)]
        if cell:
            by = [fmean(line["error"] for line in cell if line["strategy"] == one) for one in STRATEGIES]
            by += [fmean(line["forests"][kind] for line in cell) for kind in KINDS]
            by += [own[name, epsilon], most[name]]
            table.append(f"| {name} | {epsilon} | " + " | ".join(f"{x:.3f}" for x in by) + " |")
    return "\n".join(table)


def page(lines: Sequence[Line]) -> str:
    """Verdicts, then errors; what was run is what the lines say."""
    fits = [line for line in lines if line["kind"] == "bdpe"]
    most = {line["set"]: line["error"] for line in lines if line["kind"] == "majority"}
    names = [name for name in PUBLISHED if any(line["set"] == name for line in fits)]
    counts = sorted({line["trees"] for line in fits})
    each = [verdict for line in fits for verdict in line["verdicts"].values()]
    every = {(name, eps, depth) for name in names for eps in EPSILONS for depth in (2, 4, 6)}
    missing = sorted(every - {(line["set"], line["epsilon"], line["depth"]) for line in fits})
    left = ", ".join(f"{name} at {eps}, depth {depth}" for name, eps, depth in missing[:30])
    texts: dict[str, Callable[[], str]] = {
        "sets": lambda: ", ".join(names),
        "absent": lambda: ", ".join(name for name in PUBLISHED if name not in names) or "none",
        "missing": lambda: (left + (f" and {len(missing) - 30} more" if len(missing) > 30 else "")) or "none",
        "trees": lambda: ", ".join(map(str, counts)),
        "depths": lambda: ", ".join(map(str, sorted({line["depth"] for line in fits}))),
        "epsilons": lambda: ", ".join(EPSILONS),
        "decided": lambda: str(sum(map(bool, each))),
        "total": lambda: str(len(each)),
        "percent": lambda: f"{100 * sum(map(bool, each)) / len(each):.0f}",
        "by_epsilon": lambda: decided(fits),
        "table_1": lambda: table_1(fits, most),
        "many": lambda: str(len(names)),
        "rows": lambda: "\n".join(_row(*each, fits) for each in product((*names, ""), counts) if of_row(*each, fits)),
        "errors": lambda: errors_table(lines, fits, names, most),
        "table_3": lambda: table_3(fits, names),
        "varied": lambda: varied(lines),
        "wide_sets": lambda: ", ".join(wider(lines)[0]),
        "figure_2": lambda: figure_2(lines),
        "older": lambda: digests.older("bdpe/bdpe.md"),
    }
    text = Path(__file__).with_name("bdpe_page.md").read_text(encoding="utf-8")
    for name, write in texts.items():
        text = text.replace("{" + name + "}", write())
    return text
