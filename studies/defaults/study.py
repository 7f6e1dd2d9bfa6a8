"""The study behind lazybb's default rule (training/learners/boosting/defaults.py): a few settings, many datasets, and
for every
dataset the rule that the others alone would have chosen.

    python -m studies.defaults.study --data DIR --out study.jsonl            # fits; goes on where a file ends
    python -m studies.defaults.study --out study.jsonl --report studies/defaults/default-rule.md

Every fit is a real one: exact samplers, add/remove, delta 1e-6, random 80/20 splits, AUROC on the held-out fifth. The
data of a study like this must be public: choosing by it spends no budget only because nobody's privacy rests on it.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from sklearn.metrics import log_loss, roc_auc_score

from benchmarks import datasets
from benchmarks.lines import append_lines, read_lines
from studies.defaults.auto import options
from training.learners import LazyBB

SETS = (
    *("adult", "bank", "telco", "mushroom", "codrna", "creditcardsmall", "page_blocks", "cardiotocography"),
    *("banknote", "firmteacher", "eeg", "yeast", "breast_wisconsin", "transfusion", "qsar"),
)
EPSILONS = ("0.1", "0.5", "2", "8")
BANDS = (0.0, 1000.0, 3000.0, 30_000.0, 1e12)
LINKS = tuple(2.0 ** (j / 4) for j in range(-16, 9))

# weighting, rate, slope, decay, and the factor of strength^0.4 in the number of rounds
SETTINGS: dict[str, tuple[str, float, float, float, float]] = {
    "default": ("auto", 0, 0, 0, 0),
    "equal votes": ("exponential", 0.4, 0.1, 0, 2.2),
    "exponential .15": ("exponential", 0.15, 0.05, 0.35, 3.5),
    "exponential .2": ("exponential", 0.2, 0.05, 0.35, 3.5),
    "exponential .3": ("exponential", 0.3, 0.05, 0.35, 3.5),
    "exponential .6": ("exponential", 0.6, 0.1, 0.5, 3.5),
    "exponential .2, few rounds": ("exponential", 0.2, 0.05, 0.35, 2.2),
    "exponential .2, slope .02": ("exponential", 0.2, 0.02, 0.35, 3.5),
    "exponential .2, decay .25": ("exponential", 0.2, 0.05, 0.25, 3.5),
    "logistic .4": ("logistic", 0.4, 0.05, 0.5, 3.5),
    "logistic .6": ("logistic", 0.6, 0.05, 0.5, 3.5),
    "logistic .6, slope .02": ("logistic", 0.6, 0.02, 0.5, 3.5),
}

Line = dict[str, Any]


def learner(name: str, strength: float) -> LazyBB:
    weighting, rate, slope, decay, factor = SETTINGS[name]
    if weighting == "auto":
        return LazyBB()
    rounds = round(min(400, max(5, factor * strength**0.4)))
    return LazyBB(weighting=weighting, rate=rate, slope=slope, decay=decay, rounds=rounds)  # type: ignore[arg-type]


def fit(data: datasets.Dataset, name: str, epsilon: str, seed: int) -> Line:
    """One fit and what it reached. `link`: the probability's slope per vote of the smallest held-out log loss."""
    schema, X, y, X_test, y_test = datasets.split(data, seed)
    model = learner(name, len(y) * float(epsilon)).set_params(schema=schema, epsilon=epsilon)
    model.fit(X, y)
    scores, truth = model.decision_function(X_test), y_test == model.classes_[1]
    per_vote = scores / abs(model.ensemble_.votes[0].weight)  # type: ignore[union-attr]
    losses = [log_loss(truth, 0.5 + 0.5 * np.tanh(link / 2 * per_vote)) for link in LINKS]
    chance = model.predict_proba(X_test)[:, 1]
    return {
        "strength": len(y) * float(epsilon),
        "rounds": model.rounds_for(model._public()),
        "auroc": float(roc_auc_score(truth, scores)),
        "log_loss": float(log_loss(truth, np.clip(chance, 1e-12, 1 - 1e-12))),
        "best_log_loss": float(min(losses)),
        "link": LINKS[int(np.argmin(losses))],
    }


def wanted(lines: Iterable[Line], sets: Iterable[str], seeds: int) -> Iterator[tuple[str, str, str, int]]:
    done = {(line["data"], line["setting"], line["epsilon"], line["seed"]) for line in lines}
    every = ((d, s, e, seed) for seed in range(seeds) for d in sets for e in EPSILONS for s in SETTINGS)
    return (each for each in every if each not in done)


def play(folder: str | None, out: Path, sets: tuple[str, ...], seeds: int) -> None:
    held = {name: datasets.load(name, folder) for name in sets}
    todo = list(wanted(read_lines(out), sets, seeds))
    for done, (data, setting, epsilon, seed) in enumerate(todo):
        line = {"data": data, "setting": setting, "epsilon": epsilon, "seed": seed}
        line |= fit(held[data], setting, epsilon, seed)
        append_lines(out, line)
        print(f"{done + 1}/{len(todo)} {data} {setting} {epsilon}: {line['auroc']:.4f}", file=sys.stderr)


Cells = dict[str, dict[tuple[str, str], float]]  # setting -> (data, epsilon) -> regret


def regrets(lines: Iterable[Line]) -> tuple[Cells, dict[tuple[str, str], float]]:
    """How far below the best setting each one is, mean over seeds; and every cell's strength."""
    sums: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    strengths = {}
    for line in lines:
        cell = line["data"], line["epsilon"]
        sums[cell][line["setting"]].append(line["auroc"])
        strengths[cell] = line["strength"]
    cells_of: Cells = {name: {} for name in SETTINGS}
    for cell, by in sums.items():
        best = max(mean(values) for values in by.values())
        for name, values in by.items():
            cells_of[name][cell] = best - mean(values)
    return cells_of, strengths


def chosen(regret: Cells, cells: list[tuple[str, str]]) -> str:
    """The setting of the smallest mean regret on these cells; the default rule is not among them."""
    return min((n for n in SETTINGS if n != "default"), key=lambda name: mean(regret[name][cell] for cell in cells))


def report(lines: list[Line]) -> str:
    regret, strengths = regrets(lines)
    sets = sorted({data for data, _ in strengths})
    out = ["| setting (weighting, rate) | " + " | ".join(band_names()) + " | all |", "|---|" + "---|" * len(BANDS)]
    for name in SETTINGS:
        per = [mean_of(regret[name], cells_in(strengths, low, high)) for low, high in bands()]
        out.append(f"| {name} | " + " | ".join(f"{x:.4f}" for x in (*per, mean(regret[name].values()))) + " |")
    out += ["", "| left out | chosen by the others, per band | its regret | the rule's regret |", "|---|---|---|---|"]
    for data in sets:
        out.append(left_out(data, regret, strengths))
    return "\n".join(out) + "\n"


def left_out(data: str, found: Cells, strengths: dict[tuple[str, str], float]) -> str:
    """One dataset's row: what all the others would have chosen in each band of strength, and what that costs here."""
    picks, regret = [], []
    for low, high in bands():
        cells = cells_in(strengths, low, high)
        mine = [cell for cell in cells if cell[0] == data]
        theirs = [cell for cell in cells if cell[0] != data]
        if mine and theirs:
            pick = chosen(found, theirs)
            picks.append(pick)
            regret += [found[pick][cell] for cell in mine]
    rule = mean(value for cell, value in found["default"].items() if cell[0] == data)
    return f"| {data} | {'; '.join(picks)} | {mean(regret):.4f} | {rule:.4f} |"


def bands() -> list[tuple[float, float]]:
    return list(pairwise(BANDS))


def band_names() -> list[str]:
    return [f"{low:,.0f} to {high:,.0f}" if high < 1e12 else f"from {low:,.0f}" for low, high in bands()]


def cells_in(strengths: dict[tuple[str, str], float], low: float, high: float) -> list[tuple[str, str]]:
    return [cell for cell, strength in strengths.items() if low <= strength < high]


def mean_of(values: dict[tuple[str, str], float], cells: list[tuple[str, str]]) -> float:
    return mean(values[cell] for cell in cells)


def main() -> None:
    parser = options(__doc__, 3)
    parser.add_argument("--sets", type=lambda text: tuple(text.split(",")), default=SETS)
    choices = parser.parse_args()
    if not choices.report:
        play(choices.data, choices.out, choices.sets, choices.seeds)
    print(report(read_lines(choices.out)))


if __name__ == "__main__":
    main()
