"""studies/lazybb/paper.md from records: every number on the page is one of a record or one that the paper prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from studies import digests
from studies.lazybb import paper_charts as charts
from studies.lazybb import paper_fits as fits
from studies.lazybb import paper_published as published
from studies.lazybb.paper_fits import Cell
from studies.lazybb.paper_published import EPSILONS, FIGURE_2, FIGURE_2_MEASURED, SETTINGS, Setting

PAGE = Path(__file__).with_name("paper_page.md")

Records = Mapping[str, dict[str, Any]]
TITLES = {
    "adult": "Adult",
    "codrna": "Cod-RNA",
    "codrna, observed range": "Cod-RNA, observed range",
    "mushroom": "Mushroom",
}
DELTA = "0.00001"
NONE = "—"
TREE_SETS, TREE_EPSILONS = ("adult", "codrna, observed range"), ("0.1", "0.5", "1", "5")
TREE_SETTINGS = tuple(Setting(0.3, 0.4, rounds) for rounds in (5, 15, 25))


def write(records: Records, folder: Path) -> None:
    """paper.md and its pictures into `folder`."""
    sections: dict[str, Callable[[Records], str]] = {
        "summary": summary,
        "repository": repository_table,
        "curves": lambda found: "\n\n".join(curve_table(found, name) for name in TITLES),
        "prices": price_table,
        "sparsity": lambda found: "\n\n".join(sparsity_table(found, name) for name in TITLES),
        "sparsity_gaps": sparsity_gaps,
        "model": model_table,
        "figure2": figure_2_table,
        "figure3": figure_3_table,
        "figure3_gain": figure_3_gain,
        "figure1": figure_1_table,
        "trees": tree_table,
        "defaults_codrna": lambda found: smallest(found, "codrna"),
        "defaults_adult": lambda found: smallest(found, "adult"),
        "peers": peer_table,
        "rademacher": rademacher_table,
        "fits": fit_count,
        "older": lambda _: digests.older("lazybb/paper.md"),
        "pool": lambda _: str(len(set(SETTINGS["adult"].values()))),
    }
    page = PAGE.read_text(encoding="utf-8")
    for name, section in sections.items():
        page = page.replace("{" + name + "}", section(records))
    (folder / "paper.md").write_text(page, encoding="utf-8")
    draw(records, folder)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Markdown; the first column is to the left, all others to the right."""
    marks = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, marks, *rows))


def accuracies(records: Records, cell: Cell) -> list[float]:
    found: list[float] = records.get(cell.key, {}).get("accuracy_of_fits", [])
    return found


def spread(numbers: Sequence[float], digits: int = 4) -> str:
    """Mean ± standard deviation of one fit."""
    return f"{fmean(numbers):.{digits}f} ± {pstdev(numbers):.{digits - 1}f}" if numbers else NONE


def curve_cell(name: str, variant: str, epsilon: str) -> Cell:
    at = None if variant == fits.DEFAULTS else SETTINGS[name.partition(",")[0]][epsilon]
    return Cell("curves", name, variant, epsilon, "0", at)


def curve_table(records: Records, name: str) -> str:
    base = name.partition(",")[0]
    columns = [kind for kind in fits.VARIANTS if any(accuracies(records, curve_cell(name, kind, e)) for e in EPSILONS)]
    rows = []
    for epsilon in EPSILONS:
        at, printed = SETTINGS[base][epsilon], published.ACCURACY.get((base, epsilon))
        found = [spread(accuracies(records, curve_cell(name, kind, epsilon))) for kind in columns]
        told = f"{printed[0]:.2f} ({printed[1]})" if printed else ""
        rows.append([epsilon, f"{at.density}, {at.rate}, {at.rounds}", told, *found])
    lines = table(["epsilon", "kappa, lambda, tau", "paper", *columns], rows)
    view = f"![Accuracy against epsilon on {TITLES[name]}]({picture(name)})"
    return "\n\n".join((f"### {TITLES[name]}", view, lines, baseline_line(records, name))).rstrip()


def baseline_line(records: Records, name: str) -> str:
    found = records.get(f"baselines|{name}")
    if not found:
        return ""
    return (
        f"Not private: majority {found['majority']:.4f}, best single 1-rule {found['1-rule']:.4f}, scikit-learn's "
        f"gradient-boosted trees {found['trees']:.4f}."
    )


def picture(name: str) -> str:
    return f"paper-{name.replace(', ', '-').replace(' ', '-')}.svg"


def repository_cell(line: published.Measured, variant: str) -> Cell:
    name = line.set if line.set == "adult" else f"{line.set}, observed range"
    return Cell("repository", name, variant, line.epsilon, line.delta, line.setting, "folds")


def repository_table(records: Records) -> str:
    columns = (fits.CODED, fits.THEOREM, fits.OURS)
    rows = []
    for line in published.BEST:
        found = [spread(accuracies(records, repository_cell(line, kind))) for kind in columns]
        at = line.setting
        measured = f"{line.accuracy:.4f} ± {line.spread:.3f}"
        rows.append([TITLES[line.set], line.epsilon, f"{at.density}, {at.rate}, {at.rounds}", measured, *found])
    return table(["set", "epsilon", "kappa, lambda, tau", "authors' repository", *columns], rows)


def gaps(records: Records, name: str, variant: str) -> list[float]:
    """Ours minus the repository's, per line."""
    pairs = [(line, accuracies(records, repository_cell(line, variant))) for line in published.BEST if line.set == name]
    return [fmean(found) - line.accuracy for line, found in pairs if found]


def gain(records: Records, name: str, better: str, worse: str) -> list[float]:
    """Accuracy of one variant minus another's, per epsilon of the curves."""
    pairs = [[accuracies(records, curve_cell(name, kind, e)) for kind in (better, worse)] for e in EPSILONS]
    return [fmean(a) - fmean(b) for a, b in pairs if a and b]


def points(numbers: Sequence[float]) -> str:
    """Differences of accuracy, in hundredths."""
    return f"{100 * fmean(numbers):+.2f} ({100 * min(numbers):+.2f} to {100 * max(numbers):+.2f})" if numbers else NONE


COMPARISONS = (
    ("the corrected price, all else equal", fits.CORRECTED, fits.THEOREM),
    ("permute-and-flip and the sharper first rounds", fits.OURS, fits.CORRECTED),
    ("lambda as printed in place of half of it", fits.PRINTED, fits.OURS),
    ("ordered cut points in place of ten intervals", fits.CUTS, fits.OURS),
    ("scheduled weights under add/remove", fits.SCHEDULED, fits.OURS),
    ("our defaults, against the paper's settings by Theorem 4.2", fits.DEFAULTS, fits.THEOREM),
)


def summary(records: Records) -> str:
    rows = []
    for words, better, worse in COMPARISONS:
        rows.append([words, *[points(gain(records, name, better, worse)) for name in TITLES]])
    for variant in (fits.CODED, fits.THEOREM):
        found = [points(gaps(records, name, variant)) for name in ("adult", "codrna")]
        rows.append([f"*{variant}* minus the authors' repository", found[0], NONE, found[1], NONE])
    return table(["hundredths of accuracy", *TITLES.values()], rows)


def price_table(records: Records) -> str:
    """What the noise of Theorem 4.2 costs by our accountant, at the setting of Figure 2."""
    rows = []
    for epsilon in dict.fromkeys(line.epsilon for line in FIGURE_2_MEASURED):
        cells = [Cell("figure 2", "adult", fits.THEOREM, epsilon, delta, FIGURE_2, "folds") for delta in ("0", DELTA)]
        found = [records.get(cell.key, {}).get("priced") for cell in cells]
        shown = [f"{float(price):.4f}" if price else NONE for price in found]
        rows.append([epsilon, *shown, f"{float(epsilon) / float(found[1]):.1f}" if found[1] else NONE])
    return table(["epsilon claimed", "costs, delta 0", "costs, delta 1e-5", "claimed / cost, delta 1e-5"], rows)


def sparsity_table(records: Records, name: str) -> str:
    base = name.partition(",")[0]
    columns = (fits.THEOREM, fits.CORRECTED, fits.OURS, fits.PRINTED, fits.LIMIT)
    rows = []
    for epsilon, (mean, deviation) in zip(EPSILONS, published.SPARSITY[base], strict=True):
        rules = [records.get(curve_cell(name, kind, epsilon).key, {}).get("rules_of_fits", []) for kind in columns]
        share = f"{100 * mean / published.LITERALS[base]:.1f} %"
        shown = [spread(found, 2) for found in rules]
        rows.append([epsilon, str(SETTINGS[base][epsilon].rounds), f"{mean} ± {deviation:.1f}", share, *shown])
    lines = table(["epsilon", "tau", "paper", "of its columns", *columns], rows)
    return f"**{TITLES[name]}**\n\n{lines}"


def sparsity_gaps(records: Records) -> str:
    """How far from the paper's numbers of features, on average over its thirteen epsilons."""
    rows = []
    for kind in (fits.CORRECTED, fits.THEOREM, fits.PRINTED):
        row = [f"*{kind}*"]
        for name in TITLES:
            pairs = zip(EPSILONS, published.SPARSITY[name.partition(",")[0]], strict=True)
            found = [(records.get(curve_cell(name, kind, e).key, {}).get("rules_of_fits"), told) for e, told in pairs]
            off = [fmean(rules) - told[0] for rules, told in found if rules]
            row.append(f"{fmean(map(abs, off)):.1f} ({fmean(off):+.1f})" if off else NONE)
        rows.append(row)
    return table(["distance from the paper's mean (with sign)", *TITLES.values()], rows)


def model_table(records: Records) -> str:
    cell = Cell("table 4", "adult", fits.OURS, "0.4", "0", SETTINGS["adult"]["0.4"])
    found = records.get(cell.key)
    if not found:
        return ""
    printed = [[f"{votes:+d}", rule] for votes, rule in published.MODEL]
    ours = [[f"{votes:+d}", rule] for votes, rule in found["votes"]]
    length = max(len(printed), len(ours))
    both = [[*a, *b] for a, b in zip(_padded(printed, length), _padded(ours, length), strict=True)]
    head = ["paper: votes", "rule (accuracy 0.82)", "ours: votes", f"rule (accuracy {found['accuracy']:.3f})"]
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---:", "---", "---:", "---"], *both))


def _padded(rows: list[list[str]], length: int) -> list[list[str]]:
    return rows + [["", ""]] * (length - len(rows))


def figure_2_cell(variant: str, epsilon: str, delta: str) -> Cell:
    return Cell("figure 2", "adult", variant, epsilon, delta, FIGURE_2, "folds")


def figure_2_table(records: Records) -> str:
    kinds = [(kind, delta) for kind in (fits.CODED, fits.THEOREM, fits.OURS) for delta in ("0", DELTA)]
    rows = []
    for epsilon in dict.fromkeys(line.epsilon for line in FIGURE_2_MEASURED):
        measured = [line for line in FIGURE_2_MEASURED if line.epsilon == epsilon]
        told = [f"{line.accuracy:.4f} ± {line.spread:.3f}" for line in measured]
        rows.append(
            [epsilon, *told, *[spread(accuracies(records, figure_2_cell(kind, epsilon, d))) for kind, d in kinds]]
        )
    names = [f"{kind}, {'0' if delta == '0' else '1e-5'}" for kind, delta in kinds]
    return table(["epsilon", "repository, 0", "repository, 1.1e-5", *names], rows)


def best_of(records: Records, epsilon: str, delta: str) -> tuple[Setting, list[float]] | None:
    """The setting of the pool with the best mean over folds, as the paper selects: at no charge, so not private."""
    pool = dict.fromkeys(SETTINGS["adult"].values())
    found = {at: accuracies(records, Cell("figure 3", "adult", fits.OURS, epsilon, delta, at, "folds")) for at in pool}
    held = {at: numbers for at, numbers in found.items() if numbers}
    return max(held.items(), key=lambda each: fmean(each[1])) if held else None


def figure_3_table(records: Records) -> str:
    rows = []
    for epsilon in EPSILONS:
        row = [epsilon]
        for delta in ("0", DELTA):
            best = best_of(records, epsilon, delta)
            at = best[0] if best else None
            row += [spread(best[1]) if best else NONE, f"{at.density}, {at.rate}, {at.rounds}" if at else NONE]
        rows.append(row)
    return table(["epsilon", "delta 0", "kappa, lambda, tau", "delta 1e-5", "kappa, lambda, tau"], rows)


def figure_3_gain(records: Records) -> str:
    """What delta 1e-5 adds where both are tuned: hundredths, and the epsilons at which that is beyond one deviation."""
    gains, beyond = [], []
    for epsilon in EPSILONS:
        pure, approximate = (best_of(records, epsilon, delta) for delta in ("0", DELTA))
        if pure and approximate:
            gains.append(fmean(approximate[1]) - fmean(pure[1]))
            beyond += [epsilon] if gains[-1] > pstdev(pure[1]) else []
    return (
        f"{points(gains)} hundredths, beyond one standard deviation of a fit at {len(beyond)} of {len(gains)} epsilons"
    )


def figure_1_records(records: Records) -> dict[str, dict[str, Any]]:
    prefixes = {kind: f"figure 1|adult|{kind}|" for kind in (fits.LIMIT, fits.OURS, fits.PRINTED, fits.THEOREM)}
    found = {
        kind: [value for key, value in records.items() if key.startswith(prefix)] for kind, prefix in prefixes.items()
    }
    return {kind: each[0] for kind, each in found.items() if each}


def figure_1_table(records: Records) -> str:
    rows = []
    for kind, found in figure_1_records(records).items():
        for what in ("released", "best"):
            smooth = _smooth(found[what])
            below = next((str(t + 1) for t, number in enumerate(smooth) if number < 0.05), "never")
            at = [f"{smooth[min(t, len(smooth)) - 1]:.3f}" for t in (1, 50, 100, 250, 500)]
            rows.append([f"{kind}, {what} rule", *at, below])
    return table(["advantage", *[f"round {t}" for t in (1, 50, 100, 250, 500)], "first below .05"], rows)


def tree_table(records: Records) -> str:
    """The best of the three settings, as the paper selects."""
    kinds, rows = (*fits.TREES, fits.OURS), []
    for name in TREE_SETS:
        for epsilon in TREE_EPSILONS:
            row = [TITLES[name], epsilon]
            for kind in kinds:
                cells = {at: accuracies(records, Cell("trees", name, kind, epsilon, "0", at)) for at in TREE_SETTINGS}
                held = {at: numbers for at, numbers in cells.items() if numbers}
                best = max(held.items(), key=lambda each: fmean(each[1])) if held else None
                row.append(f"{spread(best[1])} (tau {best[0].rounds})" if best else NONE)
            rows.append(row)
    return table(["set", "epsilon", *fits.TREES, "1-rules (dpserve)"], rows)


def smallest(records: Records, name: str) -> str:
    """What our defaults reach at the three smallest epsilons."""
    found = [accuracies(records, curve_cell(name, fits.DEFAULTS, epsilon)) for epsilon in EPSILONS[:3]]
    shown = [f"{fmean(each):.3f}".lstrip("0") if each else NONE for each in found]
    return f"{shown[0]}, {shown[1]} and {shown[2]}"


def peer_table(records: Records) -> str:
    """DP-LR beside the paper's learner by its theorem and by our price, at the paper's settings, and our defaults."""
    kinds, rows = (fits.THEOREM, fits.OURS, fits.DEFAULTS), []
    for name in published.PRINTED_ESTIMATES:
        for epsilon in ("0.1", "0.5", "1", "5"):
            peer = records.get(f"peers|{name}|DP-LR|{epsilon}|0", {})
            ridge = f" (ridge {peer['ridge']:g})" if peer else ""
            own = [spread(accuracies(records, curve_cell(name, kind, epsilon))) for kind in kinds]
            rows.append([TITLES[name], epsilon, spread(peer.get("accuracy_of_fits", ())) + ridge, *own])
    return table(["set", "epsilon", "DP-LR", *kinds], rows)


def rademacher_table(records: Records) -> str:
    rows = []
    for name, told in published.PRINTED_ESTIMATES.items():
        found = records.get(f"peers|{name}|rademacher|1|0")
        if found:
            reached = spread(accuracies(records, curve_cell(name, fits.OURS, "1")))
            rows.append(
                [TITLES[name], f"{told:.2f}", f"{found['accuracy']:.2f}", f"{found['complexity']:.4f}", reached]
            )
    return table(["set", "estimate, paper", "estimate", "Rademacher complexity", "accuracy reached (dpserve)"], rows)


def fit_count(records: Records) -> str:
    """Fits behind a figure of the curves, those without noise left out."""
    curves = (record for key, record in records.items() if key.startswith("curves|") and fits.LIMIT not in key)
    counts = sorted({len(record["accuracy_of_fits"]) for record in curves})
    return " to ".join(map(str, dict.fromkeys((counts[0], counts[-1])))) if counts else NONE


def _smooth(numbers: Sequence[float], width: int = 25) -> list[float]:
    """Mean over the last `width` rounds."""
    return [fmean(numbers[max(0, at + 1 - width) : at + 1]) for at in range(len(numbers))]


def draw(records: Records, folder: Path) -> None:
    for name in TITLES:
        draw_curves(records, name, folder / picture(name))
    draw_figure_2(records, folder / "paper-delta.svg")
    draw_figure_1(records, folder / "paper-advantage.svg")
    draw_margins(records, folder / "paper-margins.svg")


def draw_curves(records: Records, name: str, file: Path) -> None:
    wanted = (fits.THEOREM, fits.CORRECTED, fits.OURS, fits.CUTS, fits.SCHEDULED, fits.DEFAULTS)
    found = {(kind, e): accuracies(records, curve_cell(name, kind, e)) for kind in wanted for e in EPSILONS}
    held = {at: numbers for at, numbers in found.items() if numbers}
    kinds = [kind for kind in wanted if any(kind == each for each, _ in held)]
    dots: charts.Points = [{"x": float(e), "y": fmean(numbers), "kind": kind} for (kind, e), numbers in held.items()]
    if not dots:
        return
    base, told = records.get(f"baselines|{name}", {}), published.ACCURACY
    printed = [{"x": float(e), "y": told[at, e][0], "kind": "paper"} for at, e in told if at == name.partition(",")[0]]
    low = min(dot["y"] for dot in dots)
    layers = [charts.lines(dots, charts.EPSILON_AXIS, charts.accuracy_axis(low - 0.01, _top(dots, base)), kinds)]
    layers += [charts.crosses(printed)] if printed else []
    layers += [
        charts.level(base[key], label) for key, label in (("trees", "boosted trees, not private"),) if key in base
    ]
    charts.save(file, layers)


def _top(dots: charts.Points, base: Mapping[str, Any]) -> float:
    return float(max([base.get("trees", 0), *[dot["y"] for dot in dots]])) + 0.01


def draw_figure_2(records: Records, file: Path) -> None:
    dots, kinds = [], []
    for kind in (fits.THEOREM, fits.OURS):
        for delta, label in (("0", f"{kind}, delta 0"), (DELTA, f"{kind}, delta 1e-5")):
            kinds.append(label)
            for epsilon in dict.fromkeys(line.epsilon for line in FIGURE_2_MEASURED):
                numbers = accuracies(records, figure_2_cell(kind, epsilon, delta))
                dots += [{"x": float(epsilon), "y": fmean(numbers), "kind": label}] if numbers else []
    for delta, label in (("0", "authors' repository, delta 0"), ("n^-1.1", "authors' repository, delta 1.1e-5")):
        kinds.append(label)
        dots += [{"x": float(e.epsilon), "y": e.accuracy, "kind": label} for e in FIGURE_2_MEASURED if e.delta == delta]
    charts.save(file, [charts.lines(dots, charts.EPSILON_AXIS, charts.accuracy_axis(0.6, 0.86), kinds)])


def draw_figure_1(records: Records, file: Path) -> None:
    dots: charts.Points = []
    for kind, found in figure_1_records(records).items():
        for what in ("released", "best"):
            smooth = _smooth(found[what])[::10]
            dots += [{"x": 10 * at + 1, "y": y, "kind": kind, "what": f"{what} rule"} for at, y in enumerate(smooth)]
    if dots:
        y = {"title": "advantage, mean of 10 runs and 25 rounds"}
        kinds = list(figure_1_records(records))
        layer = charts.lines(dots, {"title": "round"}, y, kinds, marks=False)
        layer["encoding"]["strokeDash"] = {"field": "what", "type": "nominal", "legend": {"title": None}}
        charts.save(file, [layer, charts.level(0.05, "gamma = 1/20")])


def draw_margins(records: Records, file: Path) -> None:
    dots: charts.Points = []
    for kind, found in figure_1_records(records).items():
        shares = found["margins"]
        dots += [{"x": (2 * at + 1) / len(shares) - 1, "y": share, "kind": kind} for at, share in enumerate(shares)]
    if dots:
        x, y = {"title": "margin / rounds"}, {"title": "share of the training rows"}
        charts.save(file, [charts.lines(dots, x, y, list(figure_1_records(records)), marks=False)], height=180)
