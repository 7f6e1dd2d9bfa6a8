"""How many pieces the log-odds of trees, or of `ebm`, shall have (training/learners/boosting/probabilities.py): one fit
of each cell, and what each setting makes of noisy counts of its scores, drawn again and again; held-out calibration
error and log loss, and what the other datasets would have chosen. studies/defaults/bends.md.

    python -m studies.defaults.bends --data DIR --out FILE                  # fits; goes on where a file ends
    python -m studies.defaults.bends --data DIR --out FILE --learner ebm    # of curves that add up
    python -m studies.defaults.bends --out FILE --report                    # the table; fits nothing
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from statistics import mean
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from benchmarks import datasets
from benchmarks.lines import append_lines, read_lines
from benchmarks.utility import calibration
from models.parts.answers import Bends, probabilities_of
from studies.defaults.auto import log_loss, options, table
from training.learners import LEARNERS
from training.learners.boosting import probabilities as rule

SETS = ("adult", "bank", "codrna", "creditcardsmall", "eeg", "firmteacher", "mushroom", "page_blocks", "telco")
EPSILONS = ("0.5", "1", "2", "4", "8")
LEAST = 3000.0  # strength from which `auto` takes trees
DRAWS = 4
SETTINGS = {
    "straight": (),
    "bends at -2, 2": (-2.0, 2.0),
    "at -1, 1": (-1.0, 1.0),
    "at -2, 0, 2": (-2.0, 0.0, 2.0),
    "at -2, -1, 0, 1, 2": (-2.0, -1.0, 0.0, 1.0, 2.0),
}
PRIORS = (0.2, 0.3, 0.5)
PLACES = {"lazybb-tree": "boosting.smooth_boosting", "ebm": "ebm.one_score"}  # where the rule is asked
Line = dict[str, Any]


def lines_of(data: datasets.Dataset, epsilon: str, seed: int, learner: str) -> list[Line]:
    """One fit, and every setting on its scores."""
    schema, X, y, X_test, y_test = datasets.split(data, seed)
    model = LEARNERS[learner](schema=schema, epsilon=epsilon)
    asked: list[tuple[float, float, float, int]] = []

    def watched(noisy: Any, link: float, noise: float, offset: float, *most: int) -> tuple[float, int, Bends]:
        found = rule.fit_bends(noisy, link, noise, offset, *most)
        asked.append((link, noise, offset, found[1]))
        return found

    with patch(f"training.learners.{PLACES[learner]}.bent", watched):
        model.fit(X, y)
    link, noise, offset, constant = asked[-1]
    scores = [model.decision_function(part).astype(np.int64) - constant for part in (X, X_test)]
    known, truth = y == model.classes_[1], y_test == model.classes_[1]
    band = np.clip(np.ceil(link * scores[0] - rule.EDGES[0]), 0, rule.MIDDLES.size - 1).astype(int)
    exact = np.concatenate([np.bincount(band[known == k], minlength=rule.MIDDLES.size) for k in (False, True)])
    random, found = np.random.default_rng(seed), []
    for name, knots in SETTINGS.items():
        for prior in PRIORS:
            each = []
            with patch.multiple(rule, KNOTS=np.array(knots), PRIOR=prior):
                for _ in range(DRAWS):
                    noisy = np.rint(exact + random.laplace(0, noise / 2**0.5, exact.size)).astype(np.int64)
                    chance = chances(noisy, (link, noise, offset), scores[1], bool(knots))
                    each.append((*calibration(truth, chance), log_loss(truth, chance)))
            slope, error, loss = (round(float(x), 5) for x in np.mean(each, axis=0))
            found.append({"setting": f"{name}, {prior:g}", "slope": slope, "ece": error, "log_loss": loss})
    return found


def chances(
    noisy: NDArray[np.int64], known: tuple[float, float, float], scores: NDArray[np.int64], bending: bool
) -> NDArray[np.float64]:
    """Of the second class, as a model of these noisy counts says. `known`: link, noise and offset of the rule."""
    if not bending:
        slope, constant = rule.fit_link(noisy, *known)
        return probabilities_of(scores[:, None] + constant, slope)[:, 1]
    slope, constant, bends = rule.fit_bends(noisy, *known)
    return probabilities_of(scores[:, None] + constant, slope, bends)[:, 1]


def play(choices: argparse.Namespace) -> None:
    lines = read_lines(choices.out)
    done = {(line["data"], line["epsilon"], line["seed"]) for line in lines}
    for seed in range(choices.first_seed, choices.first_seed + choices.seeds):
        for name in SETS:
            data = datasets.load(name, choices.data)
            for epsilon in EPSILONS:
                if (name, epsilon, seed) in done or 0.8 * data.table.num_rows * float(epsilon) < LEAST:
                    continue
                about = {"data": name, "epsilon": epsilon, "seed": seed}
                append_lines(choices.out, *(about | line for line in lines_of(data, epsilon, seed, choices.learner)))


def report(lines: list[Line]) -> str:
    """Means over datasets of the means of their cells, and the settings that the others would have chosen."""
    cells: dict[str, dict[str, list[Line]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        cells[line["setting"]][line["data"]].append(line)
    names = sorted({line["data"] for line in lines})

    def of(setting: str, kind: str, among: list[str]) -> float:
        return float(mean(mean(line[kind] for line in cells[setting][name]) for name in among))

    rows = []
    for setting, by in cells.items():
        near = sum(0.9 <= line["slope"] <= 1.1 for each in by.values() for line in each)
        count = sum(len(each) for each in by.values())
        per = [f"{of(setting, 'ece', [name]):.4f}" for name in names]
        share = f"{100 * near / count:.0f}%"
        rows.append([setting, f"{of(setting, 'ece', names):.4f}", f"{of(setting, 'log_loss', names):.4f}", share, *per])
    out = table(["setting, prior", "error", "log loss", "slope in .9 to 1.1", *names], rows)
    chosen = []
    for name in names:
        others = [each for each in names if each != name]
        best = min(cells, key=lambda setting: of(setting, "ece", others))
        figures = [
            f"{of(setting, kind, [name]):.4f}" for kind in ("ece", "log_loss") for setting in ("straight, 0.3", best)
        ]
        chosen.append([name, best, *figures])
    head = ["left out", "chosen by the others", "error, straight", "so", "log loss, straight", "so"]
    return "\n".join([*out, "", *table(head, chosen)])


def main() -> None:
    parser = options(__doc__, 2)
    parser.add_argument("--learner", choices=PLACES, default="lazybb-tree")
    parser.add_argument("--first-seed", type=int, default=0)
    choices = parser.parse_args()
    if not choices.report:
        play(choices)
    print(report(read_lines(choices.out)))


if __name__ == "__main__":
    main()
