"""The study behind rate, rounds, depth and bins of `lazybb-tree` by default: settings on many datasets at the strengths
where weights are logistic, and below, and what the others alone would have chosen for each. Tables are in
studies/defaults/auto.md.

    python -m studies.defaults.tree_rule --data DIR --out tree-rule.jsonl.gz    # fits; goes on where a file ends
    python -m studies.defaults.tree_rule --out tree-rule.jsonl.gz --report      # the tables; fits nothing
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks import datasets
from benchmarks.lines import append_lines, read_lines
from studies.defaults.auto import Line, fit, options, table

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
    asked = options(__doc__, 2).parse_args()
    if not asked.report:
        play(asked.out, asked.data, asked.seeds)
    print(report(read_lines(asked.out)))


if __name__ == "__main__":
    main()
