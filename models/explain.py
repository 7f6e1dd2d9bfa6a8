"""What an ensemble says, for people: how much each feature matters; of a voting ensemble the table of its votes, the
shape of each feature and one record's account; of trees their text.

All of it is arithmetic on released numbers. Of two classes, votes speak for classes[1]; of K, each for the class whose
score it moves.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from accountant.errors import InputError
from models.answers import ClassLabel
from models.ensemble import Ensemble, Vote, VotingEnsemble, describe
from models.features import Columns, Feature, NumericFeature, encode_columns, number_text
from models.trees import Leaf, Tree, TreeEnsemble


@dataclass(frozen=True)
class Row:
    """One line of the vote table: so many votes for `label` where `test` holds, and as many against where not."""

    votes: int
    feature: str
    test: str
    label: ClassLabel


@dataclass(frozen=True)
class Bin:
    """One value, or interval of values (low, high] of a numeric feature, and what it adds to the score."""

    label: str
    votes: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Shape:
    """What one feature adds to the score for `label`, bin by bin, centred: the largest and the smallest are equally far
    from 0."""

    feature: str
    kind: str
    label: ClassLabel
    bins: tuple[Bin, ...]

    @property
    def importance(self) -> float:
        """The most that this feature can add or take away."""
        return max(abs(each.votes) for each in self.bins)


@dataclass(frozen=True)
class Contributions:
    """scores of record i = base + sum over features of votes[i]. `votes`: (n, features, outputs), `base`: (outputs,),
    both in halves at the smallest."""

    base: NDArray[np.float64]
    features: tuple[str, ...]
    votes: NDArray[np.float64]


def additive(ensemble: Ensemble) -> VotingEnsemble:
    """The ensemble, if its scores are sums of what each feature adds; InputError else."""
    if not isinstance(ensemble, VotingEnsemble):
        raise InputError(
            f"model of {ensemble.target}: its trees ask features together, so it has no votes, shapes or contributions "
            "of single ones; it has importances"
        )
    return ensemble


def spoken_for(ensemble: Ensemble) -> tuple[ClassLabel, ...]:
    """The class that each output speaks for."""
    return ensemble.classes[-ensemble.outputs :]


def vote_table(ensemble: Ensemble) -> list[Row]:
    """Votes on the same test added up, the heaviest first (Table 4 of the LazyBB paper); nothing that cancels out."""
    labels, features = spoken_for(ensemble), ensemble.features
    totals: dict[Vote, int] = defaultdict(int)
    for vote in additive(ensemble).votes:
        where = (vote.feature, vote.code) if vote.test != "always" else (0, 0)
        totals[Vote(vote.test, *where, 0, vote.output)] += vote.weight
    kept = [(test, votes) for test, votes in totals.items() if votes]
    kept.sort(key=lambda item: (-abs(item[1]), item[0].feature, item[0].code, item[0].output))
    return [Row(votes, _owner(test, features), describe(test, features), labels[test.output]) for test, votes in kept]


def _owner(test: Vote, features: Sequence[Feature]) -> str:
    return "" if test.test == "always" else features[test.feature].name


def importances(ensemble: Ensemble) -> dict[str, float]:
    """How far each feature can move a score, the most important first; features that move none are left out.

    Votes: the most that the feature can add or take away. Trees: half the difference between the two sides of a split,
    if every other test were a fair coin, summed over the feature's splits. How often a test holds among people would be
    a statistic of private data.
    """
    found: dict[str, float] = defaultdict(float)
    if isinstance(ensemble, TreeEnsemble):
        for tree in ensemble.trees:
            _coin(tree, 1.0, ensemble.features, found)
    else:
        for shape in shapes(ensemble):
            found[shape.feature] = max(found[shape.feature], shape.importance)
    return dict(sorted(((name, size) for name, size in found.items() if size), key=lambda item: -item[1]))


def _coin(tree: Tree, reached: float, features: Sequence[Feature], found: dict[str, float]) -> float:
    """The mean of a tree whose tests are fair coins; adds to `found` what its splits move, reached as often as said."""
    if isinstance(tree, Leaf):
        return float(tree.weight)
    yes, no = (_coin(side, reached / 2, features, found) for side in (tree.yes, tree.no))
    found[features[tree.feature].name] += reached * abs(yes - no) / 2
    return (yes + no) / 2


def tree_text(tree: Tree, features: Sequence[Feature], indent: str = "", lead: str = "") -> list[str]:
    """A tree as lines: tests as questions, leaves as what they add to the score."""
    if isinstance(tree, Leaf):
        return [f"{indent}{lead}{tree.weight:+d}"]
    deeper = indent + "  "
    yes, no = tree_text(tree.yes, features, deeper, "yes: "), tree_text(tree.no, features, deeper, "no: ")
    return [f"{indent}{lead}{describe(tree, features)}?", *yes, *no]


def shapes(ensemble: Ensemble) -> list[Shape]:
    """The features that move a score, the most important first; of each, one shape per class that it moves."""
    tables, _ = _centred(additive(ensemble))
    moving = [(f, table) for f, table in zip(ensemble.features, tables, strict=True) if table.any()]
    moving.sort(key=lambda item: -np.abs(item[1]).max())
    labels = spoken_for(ensemble)
    return [
        _shape(f, label, votes)
        for f, table in moving
        for label, votes in zip(labels, table.T, strict=True)
        if votes.any()
    ]


def contributions(ensemble: Ensemble, columns: Columns) -> Contributions:
    """What each feature adds to the scores of each record."""
    tables, base = _centred(additive(ensemble))
    codes = encode_columns(ensemble.features, columns)
    votes = [table[code] for table, code in zip(tables, codes, strict=True)]
    return Contributions(base, tuple(feature.name for feature in ensemble.features), np.stack(votes, axis=1))


def _centred(ensemble: VotingEnsemble) -> tuple[list[NDArray[np.float64]], NDArray[np.float64]]:
    """Tables with their midpoints moved into the constant. Halves of integers: exact.

    The midpoint, and not the mean over the rows, because the latter would be a statistic of private data.
    """
    tables, constant = ensemble.tables()
    middles = [(table.max(axis=0) + table.min(axis=0)) / 2 for table in tables]
    centred = [table - middle for table, middle in zip(tables, middles, strict=True)]
    return centred, constant + np.sum(middles, axis=0)


def _shape(feature: Feature, label: ClassLabel, table: NDArray[np.float64]) -> Shape:
    votes = [float(each) for each in table]
    if isinstance(feature, NumericFeature):
        return Shape(feature.name, feature.kind, label, tuple(_intervals(feature.edges, votes)))
    bins = tuple(Bin(feature.label(code), each) for code, each in enumerate(votes))
    return Shape(feature.name, feature.kind, label, bins)


def _intervals(edges: tuple[float, ...], votes: list[float]) -> list[Bin]:
    """Neighbouring intervals of equal votes merged; the missing bin last."""
    ends = (*edges, inf)
    merged: list[Bin] = []
    low = -inf
    for j, high in enumerate(ends):
        if high < inf and votes[j] == votes[j + 1]:
            continue
        merged.append(Bin(_interval(low, high), votes[j], low, high))
        low = high
    return [*merged, Bin("missing", votes[-1])]


def _interval(low: float, high: float) -> str:
    if low == -inf:
        return "any number" if high == inf else f"up to {number_text(high)}"
    return f"above {number_text(low)}" if high == inf else f"above {number_text(low)}, up to {number_text(high)}"
