"""What of the paper is not a table of accuracies: advantage per round (Figure 1), a model in words (Table 4), and the
baselines of Table 2. The first and the last look at rows without noise: diagnostics on public benchmark rows, not
private, and never part of a release.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.preprocessing import OneHotEncoder

from models.parts.votes import Vote, describe
from studies.lazybb.paper_fits import LIMIT, OURS, PRINTED, THEOREM, Cell, digest_of, fit, labels_of, plan_of
from studies.lazybb.paper_published import SETTINGS, Setting
from studies.lazybb.paper_sets import Coded, coded

Numbers = NDArray[np.float64]
GAMMA = 1 / 20  # the advantage that the paper supposes
FIGURE_1 = Setting(density=0.5, rate=GAMMA / 4, rounds=500)
FIGURE_1_RUNS = 10
ADVANTAGE_VARIANTS = (LIMIT, OURS, PRINTED, THEOREM)


def advantage_cell(variant: str) -> Cell:
    return Cell("figure 1", "adult", variant, "1", "0", FIGURE_1)


def model_cell(epsilon: str = "0.4") -> Cell:
    return Cell("table 4", "adult", OURS, epsilon, "0", SETTINGS["adult"][epsilon])


def advantage_record(variant: str, folder: str | Path | None, runs: int = FIGURE_1_RUNS) -> dict[str, Any]:
    """Mean over runs of, per round, the released rule's and the best rule's advantage on that round's weights; and of
    the final normalised margins, the shares in 40 intervals of [-1, 1]. Not private."""
    data = coded("adult", "paper", folder)
    train = np.arange(data.test or data.labels.size)
    cell = advantage_cell(variant)
    planned = plan_of(cell, data, train.size)
    found = [advantages(fit(planned, data, train).votes, data, train, cell) for _ in range(runs)]
    released, best, margins = (np.mean(each, axis=0) for each in zip(*found, strict=True))
    return {
        "key": cell.key,
        "digest": digest_of(cell.variant, cell.delta),
        "released": [round(float(number), 4) for number in released],
        "best": [round(float(number), 4) for number in best],
        "margins": [round(float(number), 4) for number in margins],
    }


def advantages(
    votes: tuple[Vote, ...], data: Coded, train: NDArray[np.intp], cell: Cell
) -> tuple[Numbers, Numbers, Numbers]:
    """(released, best, margins): see `advantage_record`. Written from the paper, apart from the learner's own code."""
    assert cell.setting is not None
    bins, signs = data.bins[:, train], np.where(data.labels[train] > 0, 1, -1)
    margins, released, best = np.zeros(train.size, np.int64), [], []
    for vote in votes:
        weights = projected(margins, cell.rate, cell.setting.density)
        says = vote.table(data.widths[vote.feature])[bins[vote.feature]] * signs
        released.append(float(weights @ says) / 2)
        best.append(best_advantage(weights * signs, bins, data.widths))
        margins += says
    shares = np.histogram(margins / len(votes), 40, (-1, 1))[0] / train.size
    return np.array(released), np.array(best), shares


def projected(margins: NDArray[np.int64], rate: float, density: float) -> Numbers:
    """The smallest c >= 1 with mean of min(1, c kappa exp(-rate margin)) at least kappa; normalised to sum 1: (n,)."""
    values, where, counts = np.unique(margins, return_inverse=True, return_counts=True)
    shape = density * np.exp(-rate * values.astype(float))
    low, high = 1.0, max(1.0, 1 / float(shape.min()))
    for _ in range(100):
        middle = (low * high) ** 0.5
        enough = np.minimum(1, middle * shape) @ counts >= density * margins.size
        low, high = (low, middle) if enough else (middle, high)
    if np.minimum(1, shape) @ counts >= density * margins.size:
        high = 1.0
    weights = np.minimum(1, high * shape)[where]
    return np.asarray(weights / weights.sum())


def best_advantage(signed: Numbers, bins: NDArray[np.uint8], widths: list[int]) -> float:
    """max over 1-rules h of the sum of w y h / 2; `signed` (n,) holds w y."""
    total = signed.sum()
    sums = np.concatenate([np.bincount(codes, signed, width) for codes, width in zip(bins, widths, strict=True)])
    return float(max(abs(total), np.abs(2 * sums - total).max())) / 2


def model_record(folder: str | Path | None, epsilon: str = "0.4") -> dict[str, Any]:
    """One released model on Adult at the paper's setting, the first that came: votes and rules in words."""
    data = coded("adult", "paper", folder)
    assert data.test is not None
    every = np.arange(data.labels.size)
    cell = model_cell(epsilon)
    model = fit(plan_of(cell, data, data.test), data, every[: data.test])
    test = every[data.test :]
    right = labels_of(model, data, test) == data.labels[test]
    about = {"key": cell.key, "digest": digest_of(cell.variant, cell.delta)}
    return about | {"accuracy": round(float(np.mean(right)), 4), "votes": in_words(model.votes, data)}


def in_words(votes: tuple[Vote, ...], data: Coded) -> list[tuple[int, str]]:
    """Votes for the last class, summed by rule, the most decisive first."""
    total: Counter[str] = Counter()
    for vote in votes:
        total[describe(vote, data.features)] += vote.weight
    return sorted(((weight, rule) for rule, weight in total.items()), key=lambda each: (-abs(each[0]), each[1]))


def baseline_record(name: str, folder: str | Path | None) -> dict[str, Any]:
    """The paper's baselines, not private: the majority, the best 1-rule, scikit-learn's gradient-boosted trees."""
    data = coded(name, "paper", folder)
    splits = list(data.splits(1))[: 1 if data.test is not None else None]
    found: dict[str, list[float]] = {"majority": [], "1-rule": [], "trees": []}
    for train, test in splits:
        found["majority"].append(float(max(np.mean(data.labels[test]), 1 - np.mean(data.labels[test]))))
        found["1-rule"].append(best_rule(data, train, test))
        found["trees"].append(boosted_trees(data, train, test))
    return {"key": f"baselines|{name}", **{key: round(float(np.mean(each)), 4) for key, each in found.items()}}


def best_rule(data: Coded, train: NDArray[np.intp], test: NDArray[np.intp]) -> float:
    """Accuracy on `test` of the 1-rule that agrees best with `train`."""

    def sums(rows: NDArray[np.intp]) -> Numbers:
        signs = np.where(data.labels[rows] > 0, 1.0, -1.0) / rows.size
        parts = [np.bincount(codes[rows], signs, width) for codes, width in zip(data.bins, data.widths, strict=True)]
        return np.append(2 * np.concatenate(parts) - signs.sum(), signs.sum())

    seen, fresh = sums(train), sums(test)
    best = int(np.argmax(np.abs(seen)))
    return float((1 + np.sign(seen[best]) * fresh[best]) / 2)


def boosted_trees(data: Coded, train: NDArray[np.intp], test: NDArray[np.intp]) -> float:
    columns = OneHotEncoder(sparse_output=False, dtype=np.float32).fit_transform(data.bins.T)
    model = GradientBoostingClassifier(random_state=0).fit(columns[train], data.labels[train])
    return float(model.score(columns[test], data.labels[test]))
