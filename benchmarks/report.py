"""utility.md and its pictures from the lines of benchmarks/utility.py; nothing is run here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import yaml

from benchmarks import datasets, peers, plots

DEFAULTS = ("auto", "lazybb")  # the learner whose gap to the best peer is said: the first that was run
METRICS = {"auroc": "AUROC", "accuracy": "accuracy", "logloss": "log loss"}
LOWER_IS_BETTER = {"logloss"}
ELSEWHERE = datasets.HERE / "elsewhere.yaml"
TEXT = datasets.HERE / "report.md"
Line = dict[str, Any]
Column = str | None


@dataclass(frozen=True)
class Cell:
    """Mean and spread (sample standard deviation; None for one seed) over seeds."""

    mean: float
    spread: float | None
    seeds: int

    @property
    def text(self) -> str:
        return f"{self.mean:.4f}" + ("" if self.spread is None else f"<br>±{self.spread:.4f}")


Table = dict[str, dict[Column, Cell]]  # method -> epsilon -> cell


def write(lines: Sequence[Line], folder: Path) -> Path:
    """`folder`/utility.md and pictures beside it. Lines that carry an error count as not run."""
    folder.mkdir(parents=True, exist_ok=True)
    good = [line for line in lines if "error" not in line]
    names = ordered({line["dataset"] for line in good})
    parts = [
        TEXT.read_text(encoding="utf-8").rstrip(),
        splits(good),
        summary(good, names),
    ]
    for name in names:
        parts.append(section(good, name, folder))
    small = [name for name in names if name in datasets.others()]
    if small:
        others_picture(good, small, folder / "utility-others.svg")
        parts.append("## The others at a glance\n\n![AUROC against epsilon on the others](utility-others.svg)")
    parts += [cost(good, folder), elsewhere(good), failures(lines)]
    path = folder / "utility.md"
    path.write_text("\n\n".join(part for part in parts if part) + "\n", encoding="utf-8")
    return path


def splits(lines: Sequence[Line]) -> str:
    """Which splits, and what was not run on all of them."""
    seeds = sorted({line["seed"] for line in lines})
    methods = sorted({line["method"] for line in lines}, key=rank)
    names = len({line["dataset"] for line in lines})
    counts = missing(lines, methods)
    return (
        f"Splits of seeds {', '.join(map(str, seeds))}, {names} datasets. Splits that each method ran on, of "
        f"{names * len(seeds)}: {counts}. A cell that is empty was not run."
    )


def missing(lines: Iterable[Line], methods: Sequence[str]) -> str:
    """Which methods stand on fewer splits than others, in words."""
    seeds: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for line in lines:
        seeds[line["method"]].add((line["dataset"], line["seed"]))
    return "; ".join(f"`{name}` {len(seeds[name])}" for name in methods if name in seeds)


def default_of(table: Table) -> str:
    """Ours, of which is said how far it is ahead."""
    return next((name for name in DEFAULTS if name in table), DEFAULTS[-1])


def ordered(names: Iterable[str]) -> list[str]:
    found = set(names)
    return [name for name in datasets.names() if name in found] + sorted(found - set(datasets.names()))


def family_of(method: str) -> str:
    return peers.parse(method)[0].family


def title_of(method: str) -> str:
    head = method.partition(":")[0]
    given = peers.METHODS[head].title or f"{head} (ours)"
    return given if head == method else f"{given}, {method.partition(':')[2]}"


def rank(method: str) -> tuple[int, str]:
    """The order of METHODS."""
    return list(peers.METHODS).index(method.partition(":")[0]), method


def table_of(lines: Sequence[Line], dataset: str, metric: str) -> Table:
    """Cells of one dataset, methods in the order of METHODS."""
    values: dict[str, dict[Column, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        if line["dataset"] == dataset:
            values[line["method"]][line["epsilon"]].append(line[metric])
    methods = sorted(values, key=rank)
    return {method: {column: cell(found) for column, found in values[method].items()} for method in methods}


def cell(values: Sequence[float]) -> Cell:
    return Cell(fmean(values), stdev(values) if len(values) > 1 else None, len(values))


def columns_of(table: Table) -> list[str]:
    return sorted({column for cells in table.values() for column in cells if column is not None}, key=float)


def best_of(table: Table, column: str, metric: str, among: Callable[[str], bool]) -> str | None:
    """The method with the best mean at an epsilon; the first of equals."""
    have = {method: cells[column].mean for method, cells in table.items() if column in cells and among(method)}
    sign = -1 if metric in LOWER_IS_BETTER else 1
    return max(have, key=lambda method: sign * round(have[method], 4)) if have else None


def is_private(method: str) -> bool:
    return family_of(method) != "open"


def is_peer(method: str) -> bool:
    return family_of(method) == "peer"


def gap(table: Table, column: str, metric: str) -> tuple[float, str] | None:
    """How far the default learner is ahead (below 0: behind) of the best peer, and which peer that is."""
    peer = best_of(table, column, metric, is_peer)
    ours = table.get(default_of(table), {}).get(column)
    if peer is None or ours is None:
        return None
    ahead = round(ours.mean, 4) - round(table[peer][column].mean, 4)
    return (-ahead if metric in LOWER_IS_BETTER else ahead), peer


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    rule = ["---", *("---:" for _ in header[1:])]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, rule, *rows))


def rendered(table: Table, metric: str) -> str:
    """The private methods' means and spreads, the best bold, the gap below them, then the open ones."""
    columns = columns_of(table)
    bold = {column: best_of(table, column, metric, is_private) for column in columns}
    most = max(one.seeds for cells in table.values() for one in cells.values())

    def row(method: str) -> list[str]:
        found = [table[method].get(column) for column in columns]
        texts = ["" if one is None else one.text for one in found]
        marked = [
            emphasised(text) if bold[column] == method else text for text, column in zip(texts, columns, strict=True)
        ]
        least = min(one.seeds for one in table[method].values())
        return [title_of(method) + (f" ({least} of {most} splits)" if least < most else ""), *marked]

    gaps = [gap(table, column, metric) for column in columns]
    rows = [row(method) for method in table if is_private(method)]
    if any(gaps):
        told = ["" if one is None else f"{one[0]:+.4f}" for one in gaps]
        rows.append([f"*{default_of(table)} against the best peer*", *told])
    for method in table:
        if not is_private(method):
            rows.append([f"*{title_of(method)}*", table[method][None].text, *("" for _ in columns[1:])])
    return markdown([METRICS[metric], *columns], rows)


def emphasised(text: str) -> str:
    head, cut, tail = text.partition("<br>")
    return f"**{head}**{cut}{tail}"


def summary(lines: Sequence[Line], names: Sequence[str]) -> str:
    """The gaps of all datasets in one table per metric, and every place where a peer is ahead in words."""
    parts = ["## In short"]
    for metric in ("auroc", "accuracy"):
        tables = {name: table_of(lines, name, metric) for name in names}
        columns = sorted({column for table in tables.values() for column in columns_of(table)}, key=float)
        gaps = {name: [gap(table, column, metric) for column in columns] for name, table in tables.items()}
        shown = {name: found for name, found in gaps.items() if any(found)}
        if not shown:
            continue
        rows = [[name, *("" if one is None else f"{one[0]:+.4f}" for one in found)] for name, found in shown.items()]
        default = default_of(next(iter(tables.values())))
        parts.append(f"{METRICS[metric]} of {default} by its defaults less that of the best peer in this run:")
        parts.append(markdown(["dataset", *columns], rows))
        parts.append(behind(shown, tables, columns, metric))
    return "\n\n".join(parts)


def behind(shown: Any, tables: dict[str, Table], columns: Sequence[str], metric: str) -> str:
    said = []
    for name, found in shown.items():
        for column, one in zip(columns, found, strict=True):
            if one is not None and one[0] < 0:
                spread = tables[name][one[1]][column].spread
                beside = "" if spread is None else f" (its own spread is {spread:.4f})"
                said.append(f"- {name}, epsilon {column}: {title_of(one[1])} by {-one[0]:.4f}{beside}")
    if not said:
        return f"No peer of this run has a better mean {METRICS[metric]} anywhere."
    return f"A peer has the better mean {METRICS[metric]} here:\n\n" + "\n".join(said)


def section(lines: Sequence[Line], name: str, folder: Path) -> str:
    """One dataset: a picture and a table per metric."""
    mine = [line for line in lines if line["dataset"] == name]
    rows, features = mine[0]["rows"], mine[0]["features"]
    seeds = len({line["seed"] for line in mine})
    parts = [f"## {name}", f"{rows:,} training rows, {features} features, {seeds} split{'s' if seeds > 1 else ''}."]
    if name not in datasets.others():
        picture(mine, name, folder / f"utility-{name}.svg")
        parts.append(f"![AUROC and accuracy against epsilon on {name}](utility-{name}.svg)")
    parts += [rendered(table_of(lines, name, metric), metric) for metric in METRICS]
    return "\n\n".join(parts)


def points_of(lines: Sequence[Line], name: str, metric: str) -> list[plots.Point]:
    found = []
    for method, cells in table_of(lines, name, metric).items():
        for column, one in cells.items():
            spread = one.spread or 0.0
            point = {"dataset": name, "method": title_of(method), "metric": METRICS[metric], "mean": one.mean}
            point |= {"low": one.mean - spread, "high": one.mean + spread}
            found.append(point | {"epsilon": None if column is None else float(column)})
    return found


def scale_of(lines: Sequence[Line]) -> plots.Spec:
    methods = sorted({line["method"] for line in lines}, key=rank)
    return plots.colours([(title_of(method), family_of(method)) for method in methods])


def picture(lines: Sequence[Line], name: str, path: Path) -> None:
    scale = scale_of(lines)
    panels = [
        plots.panel(points_of(lines, name, metric), METRICS[metric], f"{name}: {METRICS[metric]}", scale, plots.SIZE)
        for metric in ("auroc", "accuracy")
    ]
    plots.draw(path, panels, 2)


def others_picture(lines: Sequence[Line], names: Sequence[str], path: Path) -> None:
    """The other datasets' AUROC, a small panel each."""
    scale = scale_of(lines)
    panels = [plots.panel(points_of(lines, name, "auroc"), "AUROC", name, scale, plots.SMALL) for name in names]
    plots.draw(path, panels, 4)


def cost(lines: Sequence[Line], folder: Path) -> str:
    """Median processor seconds of a fit per dataset and method, as a table and a picture."""
    spent: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        if line["method"] != "most-frequent":
            spent[line["method"]][line["dataset"]].append(line["cpu"])
    names, methods = ordered({line["dataset"] for line in lines}), sorted(spent, key=rank)
    found = {m: {name: median(seconds) for name, seconds in spent[m].items()} for m in methods}
    bars = [
        {"dataset": name, "method": title_of(method), "mean": max(found[method][name], 1e-3)}
        for method in methods
        for name in names
        if name in datasets.BOUND and name in found[method]
    ]
    parts = ["## Time of a fit", COST]
    if bars:
        plots.draw(folder / "utility-time.svg", [plots.times(bars, scale_of(lines))], 1)
        parts.append("![Processor seconds of a fit](utility-time.svg)")
    header = ["dataset", *(title_of(method) for method in methods)]
    rows = [[name, *(f"{found[m][name]:.2f}" if name in found[m] else "" for m in methods)] for name in names]
    return "\n\n".join([*parts, markdown(header, rows)])


COST = (
    "Median processor seconds of the fit alone, over epsilons and splits; encoding of the rows and calibration of the "
    "noise included, imports and compilation not. The pools of OpenMP and BLAS had one thread; a method's own threads "
    "count with what they use. Other work ran on the machine: read the ratios, and `speed.md` for more."
)


@cache
def _published() -> Any:
    return yaml.safe_load(ELSEWHERE.read_text(encoding="utf-8"))


def elsewhere(lines: Sequence[Line]) -> str:
    """Figures that were not measured in this run, beside ours."""
    body, parts = _published(), []
    for name, methods in body["auroc"].items():
        table = table_of(lines, name, "auroc")
        default = default_of(table)
        if default not in table:
            continue
        ours = [table[default].get(epsilon) for epsilon in body["epsilons"]]
        rows = [[title, *(f"{value:.4f}" for value in values)] for title, values in methods.items()]
        best = [max(values) for values in zip(*methods.values(), strict=True)]
        rows.append([f"{default} (ours, this run)", *("" if one is None else f"{one.mean:.4f}" for one in ours)])
        gaps = ["" if one is None else f"{round(one.mean, 4) - b:+.4f}" for one, b in zip(ours, best, strict=True)]
        rows.append([f"*{default} against the best of these*", *gaps])
        rows.append(["*EBM, not private*", f"{body['not_private_ebm'][name]:.4f}", *("" for _ in best[1:])])
        parts += [f"**{name}**", markdown(["AUROC", *body["epsilons"]], rows)]
    return "\n\n".join(["## Measured elsewhere in the same protocol", ELSEWHERE_TEXT, *parts]) if parts else ""


ELSEWHERE_TEXT = (
    "These learners are in no package registry, so `make bench-utility` cannot run them. Their authors' code was run "
    "before, in the same protocol (random 80/20 splits, 5 seeds, mean AUROC, add/remove, delta 1e-6, a public schema), "
    "on splits and bounds of its own: a figure here is to be compared with ours up to the spread of splits."
)


def failures(lines: Sequence[Line]) -> str:
    """What a peer could not do, in its own words."""
    said = sorted({f"- {line['dataset']}, {line['method']}: {line['error']}" for line in lines if "error" in line})
    return "\n\n".join(["## Could not be run", "\n".join(said)]) if said else ""
