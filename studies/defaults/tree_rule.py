"""The study behind rate, rounds, depth and bins of `lazybb-tree` by default: settings on many datasets at the strengths
where weights are logistic, and below, and what the others alone would have chosen for each. Tables are in
studies/defaults/auto.md.

    python -m studies.defaults.tree_rule --data DIR --out tree-rule.jsonl.gz    # fits; goes on where a file ends
    python -m studies.defaults.tree_rule --out tree-rule.jsonl.gz --report      # the tables; fits nothing
    python -m studies.defaults.tree_rule --mixed --data DIR --out mixed.jsonl.gz  # by the rule of mixed features, and
        # beside the rule before on the same splits, `choice.jsonl.gz`; with --report likewise
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from benchmarks import datasets
from benchmarks.lines import append_lines, read_lines
from models.features.features import share_of_numbers
from studies.defaults.auto import Line, fit, load, options, schema_of, table
from training.learners.boosting.defaults import MANY_RECORDS, ONLY_NUMBERS, WEAK
from training.rows.schema.schema import parse_schema

SETTINGS: dict[str, dict[str, Any]] = {
    "rate .6": {"rate": 0.6},
    "rate .4": {"rate": 0.4},
    "rate .3": {"rate": 0.3},
    "rate .15": {"rate": 0.15},
    "rate .6, depth 3": {"rate": 0.6, "depth": 3},
    "rate .3, depth 3": {"rate": 0.3, "depth": 3},
    "rate .6, 255 bins": {"rate": 0.6, "bins": 255},
}
"""Where weights are logistic by the rule."""
BELOW: dict[str, dict[str, Any]] = {
    "exponential .3": {"rate": 0.3},
    "exponential .2": {"rate": 0.2},
    "logistic .3": {"weighting": "logistic", "rate": 0.3},
    "logistic .2": {"weighting": "logistic", "rate": 0.2},
}
ROUNDS: dict[str, dict[str, Any]] = {
    "400 rounds, rate .3": {"most": 400, "rate": 0.3},
    "300 rounds, rate .3": {"most": 300, "rate": 0.3},
    "250 rounds, rate .3": {"most": 250, "rate": 0.3},
    "250 rounds, rate .4": {"most": 250, "rate": 0.4},
    "200 rounds, rate .4": {"most": 200, "rate": 0.4},
    "200 rounds, rate .5": {"most": 200, "rate": 0.5},
    "150 rounds, rate .6": {"most": 150, "rate": 0.6},
}
"""Where weights are logistic, at most so many rounds; what stands above was fitted before log-odds bent."""
STRONG = (
    *(("telco", "8"), ("creditcardsmall", "8"), ("page_blocks", "8"), ("bank", "4"), ("adult", "4"), ("eeg", "4")),
    *(("codrna", "2"), ("adult", "8"), ("bank", "8"), ("eeg", "8"), ("codrna", "8"), ("bank", "1")),
)
WEAKER = (
    *(("adult", "1"), ("bank", "0.5"), ("telco", "2"), ("eeg", "1"), ("codrna", "0.25"), ("creditcardsmall", "1")),
    *(("page_blocks", "2"), ("adult", "0.25"), ("firmteacher", "1")),
)
GROUPS = (("Where weights are logistic", SETTINGS), ("Below", BELOW), ("At most so many rounds", ROUNDS))
FIGURES = ("auroc", "log_loss", "slope", "ece")
Means = dict[tuple[str, str], dict[str, dict[str, float]]]  # dataset and epsilon -> setting -> figures


def play(out: Path, folder: str | None, seeds: int) -> None:
    """Every fit that `out` does not hold yet."""
    done = {(line["data"], line["epsilon"], line["seed"], line["setting"]) for line in read_lines(out)}
    for seed in range(seeds):
        for cells, settings in ((STRONG, SETTINGS), (WEAKER, BELOW), (STRONG, ROUNDS)):
            for (name, epsilon), setting in ((cell, each) for cell in cells for each in settings):
                if (name, epsilon, seed, setting) in done:
                    continue
                data = datasets.load(name, folder)
                parameters = parameters_of(settings[setting], int(0.8 * data.table.num_rows) * float(epsilon))
                found = fit(data, "lazybb-tree", epsilon, seed, **parameters)
                line = {"data": name, "epsilon": epsilon, "seed": seed, "setting": setting, **found}
                append_lines(out, line)


def parameters_of(setting: dict[str, Any], strength: float) -> dict[str, Any]:
    """What a learner is given for a setting: where that says how many rounds at most, as many as the rule has, or so
    many."""
    if "most" not in setting:
        return setting
    return {"rate": setting["rate"], "rounds": min(setting["most"], round(3.5 * strength**0.4))}


BEFORE = Path(__file__).with_name("choice.jsonl.gz")
BANDS = (WEAK, 10_000, 30_000, 1e12)


def is_mixed(name: str) -> bool:
    """Return whether trees on a dataset vote by the smaller steps."""
    return share_of_numbers(parse_schema(schema_of(name)).features) <= ONLY_NUMBERS


def before() -> dict[tuple[str, str, int], Line]:
    """Return the fits of trees by the rule before, where today's is another: dataset, epsilon, split -> line."""
    lines = [line for line in read_lines(BEFORE) if line["learner"] == "lazybb-tree"]
    fit_for = [line for line in lines if line["records"] < MANY_RECORDS and strength_of(line) >= WEAK]
    mixed = {name for name in {line["data"] for line in fit_for} if is_mixed(name)}
    return {(line["data"], line["epsilon"], line["seed"]): line for line in fit_for if line["data"] in mixed}


def strength_of(line: Line) -> float:
    return float(line["records"] * float(line["epsilon"]))


def play_mixed(out: Path, folder: str | None) -> None:
    """Every fit of `before`, by the defaults of today, that `out` does not hold yet."""
    done = {(line["data"], line["epsilon"], line["seed"]) for line in read_lines(out)}
    for name, epsilon, seed in sorted(before().keys() - done, key=lambda key: key[2]):
        found = fit(load(name, folder), "lazybb-tree", epsilon, seed)
        append_lines(out, {"data": name, "epsilon": epsilon, "seed": seed, **found})


def changes(lines: Iterable[Line], low: float = WEAK, high: float = 1e12) -> dict[str, dict[str, float]]:
    """dataset -> figure -> how far today's rule is above the rule before, in the mean over the splits and epsilons of
    such strength."""
    earlier, by = before(), defaultdict[str, list[Line]](list)
    for line in lines:
        other = earlier[line["data"], line["epsilon"], line["seed"]]
        if low <= strength_of(line) < high:
            by[line["data"]].append({key: line[key] - other[key] for key in FIGURES})
    return {name: {key: mean(line[key] for line in own) for key in FIGURES} for name, own in by.items()}


def report_mixed(lines: list[Line]) -> str:
    """The tables of smaller steps."""
    rows = []
    for low, high in pairwise(BANDS):
        found = changes(lines, low, high)
        row = [f"from {low:,.0f}", str(len(found)), str(sum(each["auroc"] > 0 for each in found.values()))]
        for key in ("auroc", "log_loss", "ece"):
            those = [each[key] for each in found.values()]
            row.append(f"{mean(those):+.4f} ± {stdev(those) / len(those) ** 0.5:.4f}")
        rows.append(row)
    out = table(["strength", "sets", "AUROC higher in", "AUROC", "log loss", "calibration error"], rows)
    each = [
        [name, *(f"{by[key]:+.4f}" for key in ("auroc", "log_loss", "ece"))]
        for name, by in sorted(changes(lines).items())
    ]
    return "\n".join([*out, "", *table(["dataset", "AUROC", "log loss", "calibration error"], each)])


def means(lines: Iterable[Line]) -> Means:
    """Over seeds."""
    held: dict[tuple[str, str], dict[str, list[Line]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        held[line["data"], line["epsilon"]][line["setting"]].append(line)
    return {
        cell: {setting: {key: mean(line[key] for line in own) for key in FIGURES} for setting, own in by.items()}
        for cell, by in held.items()
    }


def regrets(found: Means, settings: Iterable[str]) -> dict[str, dict[str, float]]:
    """dataset -> setting -> how far its AUROC is below the best setting's of the cell, in the mean over the dataset's
    cells; of cells where all of them were fitted."""
    lost: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (name, _), by in found.items():
        if not by.keys() >= set(settings):
            continue
        best = max(by[setting]["auroc"] for setting in settings)
        for setting in settings:
            lost[name][setting].append(best - by[setting]["auroc"])
    return {name: {setting: mean(each) for setting, each in by.items()} for name, by in lost.items()}


def report(lines: list[Line]) -> str:
    """The tables of studies/defaults/auto.md."""
    found, out = means(lines), list[str]()
    for title, settings in GROUPS:
        common = [each for each in settings if sum(each in by for by in found.values()) > 1]
        lost = regrets(found, common)
        cells = [by for by in found.values() if by.keys() >= set(common)]
        rows = []
        for setting in common:
            figures = [mean(by[setting][key] for by in cells) for key in FIGURES]
            near = sum(0.9 <= by[setting]["slope"] <= 1.1 for by in cells)
            regret = mean(by[setting] for by in lost.values())
            rows.append([setting, f"{regret:.4f}", f"{figures[1]:.4f}", f"{figures[3]:.4f}", f"{near} of {len(cells)}"])
        out += [f"{title} (the same {len(cells)} cells for every setting):", ""]
        out += [*table(["setting", "regret", "log loss", "calibration error", "slope in .9 to 1.1"], rows), ""]
        rows = []
        for name in sorted(lost):
            others = [by for other, by in lost.items() if other != name]
            chosen = min(common, key=lambda each: mean(by[each] for by in others))
            rows.append([name, chosen, f"{lost[name][chosen]:.4f}", *(f"{lost[name][each]:.4f}" for each in common)])
        out += [*table(["left out", "chosen by the others", "its regret", *common], rows), ""]
    return "\n".join(out)


def main() -> None:
    """Fit, then print the tables."""
    parser = options(__doc__, 2)
    parser.add_argument("--mixed", action="store_true", help="of mixed features, beside the rule before")
    asked = parser.parse_args()
    if asked.mixed:
        if not asked.report:
            play_mixed(asked.out, asked.data)
        print(report_mixed(list(read_lines(asked.out))))
        return
    if not asked.report:
        play(asked.out, asked.data, asked.seeds)
    print(report(read_lines(asked.out)))


if __name__ == "__main__":
    main()
