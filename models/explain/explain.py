"""What an ensemble says, for people: how much each feature matters; of one whose scores are sums of what each feature
adds, the shape of each feature and one record's account; of votes their table, of trees their text.

All of it is arithmetic on released numbers. Of two classes, scores speak for classes[1]; of K, each for its class; of a
number, for the number. A voting ensemble's shapes are in votes; an additive one's in its own unit: log odds of
classes[1], or the target's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf

import numpy as np
from numpy.typing import NDArray

from accountant.errors import InputError
from models.additive import AdditiveEnsemble, middle
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
    """One value, or interval of values (low, high] of a numeric feature, and what it adds to the score.

    `error`: the standard error that the noise alone gives it. `count`: the released, noisy number of its records, which
    may be negative. None where these were not released.
    """

    label: str
    votes: float
    low: float | None = None
    high: float | None = None
    error: float | None = None
    count: int | None = None


@dataclass(frozen=True)
class Shape:
    """What one feature adds to the score for `label` (the target, if that is a number), bin by bin.

    Centred: with released counts, the mean over these is 0; else the largest and the smallest are equally far from 0.
    """

    feature: str
    kind: str
    label: ClassLabel
    bins: tuple[Bin, ...]

    @property
    def importance(self) -> float:
        """The mean of what it adds or takes away over the released counts; without, the most that it can."""
        weights = _weights(tuple(each.count or 0 for each in self.bins))
        sizes = [abs(each.votes) for each in self.bins]
        return max(sizes) if weights is None else float(weights @ sizes)


@dataclass(frozen=True)
class Contributions:
    """scores of record i = base + sum over features of votes[i]. `votes`: (n, features, outputs), `base`: (outputs,);
    of votes both in halves at the smallest; of an additive ensemble in its own unit, a number's before it is clipped to
    the target's range."""

    base: NDArray[np.float64]
    features: tuple[str, ...]
    votes: NDArray[np.float64]


def additive(ensemble: Ensemble) -> VotingEnsemble | AdditiveEnsemble:
    """The ensemble, if its scores are sums of what each feature adds; InputError else."""
    if not isinstance(ensemble, VotingEnsemble | AdditiveEnsemble):
        raise InputError(
            f"model of {ensemble.target}: its trees ask features together, so it has no votes, shapes or contributions "
            "of single ones; it has importances"
        )
    return ensemble


def spoken_for(ensemble: Ensemble) -> tuple[ClassLabel, ...]:
    """The class that each output speaks for; of a number, the target."""
    return ensemble.classes[-ensemble.outputs :] if ensemble.classes else (ensemble.target,)


def unit(ensemble: Ensemble) -> str:
    """What one more in `link` x score is."""
    if not ensemble.classes:
        return ensemble.target
    return f"log odds of {ensemble.classes[1]}" if ensemble.outputs == 1 else "logits"


def vote_table(ensemble: Ensemble) -> list[Row]:
    """Votes on the same test added up, the heaviest first (Table 4 of the LazyBB paper); nothing that cancels out."""
    labels, features = spoken_for(ensemble), ensemble.features
    totals: dict[Vote, int] = defaultdict(int)
    for vote in _voting(ensemble).votes:
        where = (vote.feature, vote.code) if vote.test != "always" else (0, 0)
        totals[Vote(vote.test, *where, 0, vote.output)] += vote.weight
    kept = [(test, votes) for test, votes in totals.items() if votes]
    kept.sort(key=lambda item: (-abs(item[1]), item[0].feature, item[0].code, item[0].output))
    return [Row(votes, _owner(test, features), describe(test, features), labels[test.output]) for test, votes in kept]


def _voting(ensemble: Ensemble) -> VotingEnsemble:
    found = additive(ensemble)
    if not isinstance(found, VotingEnsemble):
        raise InputError(f"model of {ensemble.target}: has terms, not votes; its shapes say what they add")
    return found


def _owner(test: Vote, features: Sequence[Feature]) -> str:
    return "" if test.test == "always" else features[test.feature].name


def importances(ensemble: Ensemble) -> dict[str, float]:
    """How far each feature can move a score, the most important first; features that move none are left out.

    Additive: `Shape.importance`. Trees: half the difference between the two sides of a split,
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
    found = additive(ensemble)
    tables, _ = centred(found)
    labels = spoken_for(found)
    groups = [
        [_shape(found, at, label, votes) for label, votes in zip(labels, table.T, strict=True) if votes.any()]
        for at, table in enumerate(tables)
        if table.any()
    ]
    groups.sort(key=lambda group: -max(shape.importance for shape in group))
    return [shape for group in groups for shape in group]


def contributions(ensemble: Ensemble, columns: Columns) -> Contributions:
    """What each feature adds to the scores of each record."""
    tables, base = centred(additive(ensemble))
    codes = encode_columns(ensemble.features, columns)
    votes = [table[code] for table, code in zip(tables, codes, strict=True)]
    return Contributions(base, tuple(feature.name for feature in ensemble.features), np.stack(votes, axis=1))


def logits(ensemble: Ensemble, columns: Columns) -> Contributions:
    """As `contributions`, in `unit(ensemble)` whatever the form."""
    found = contributions(ensemble, columns)
    if isinstance(ensemble, AdditiveEnsemble):
        return found
    return Contributions(found.base * ensemble.link, found.features, found.votes * ensemble.link)


def terms(ensemble: Ensemble) -> list[NDArray[np.float64]]:
    """What each feature adds, as released and not centred, in `unit(ensemble)`: (bins, outputs) each."""
    found = additive(ensemble)
    return [np.asarray(table * found.link, np.float64) for table in found.tables()[0]]


def errors(ensemble: Ensemble) -> list[NDArray[np.float64]] | None:
    """The standard error of each term from the noise alone, in `unit(ensemble)`: (bins,) each; None where not known."""
    if not isinstance(ensemble, AdditiveEnsemble) or not ensemble.errors:
        return None
    return [np.asarray(each) * ensemble.link for each in ensemble.errors]


def weights(ensemble: Ensemble, feature: int) -> NDArray[np.float64] | None:
    """Shares of the records in each bin of a feature by the released counts, or None."""
    counts = ensemble.counts if isinstance(ensemble, AdditiveEnsemble) else ()
    return _weights(counts[feature]) if counts else None


def _weights(counts: Sequence[int]) -> NDArray[np.float64] | None:
    """Noisy counts as shares; below 0 is none. None where nothing is left."""
    held = np.maximum(np.asarray(counts, np.float64), 0)
    return held / held.sum() if held.sum() > 0 else None


def centred(ensemble: VotingEnsemble | AdditiveEnsemble) -> tuple[list[NDArray[np.float64]], NDArray[np.float64]]:
    """Tables with their middles moved into the constant; votes as they are, in halves: exact; terms in their unit.

    The middle is the mean over the released counts, or the midpoint: the mean over the rows would be a statistic of
    private data.
    """
    tables, constant = ensemble.tables()
    middles = [_middle(ensemble, at, table) for at, table in enumerate(tables)]
    moved = [table - middle for table, middle in zip(tables, middles, strict=True)]
    base = constant + np.sum(middles, axis=0)
    if isinstance(ensemble, VotingEnsemble):
        return moved, base
    offset = middle(ensemble.target_range) if ensemble.target_range else 0.0
    return [table * ensemble.link for table in moved], base * ensemble.link + offset


def _middle(ensemble: Ensemble, feature: int, table: NDArray[np.int64]) -> NDArray[np.float64]:
    """(outputs,), in integers up to one division: the exported file holds it, the same on every machine."""
    counts = ensemble.counts[feature] if isinstance(ensemble, AdditiveEnsemble) and ensemble.counts else ()
    held = [max(count, 0) for count in counts]
    if not any(held):
        return np.asarray((table.max(axis=0) + table.min(axis=0)) / 2, np.float64)
    sums = [sum(n * term for n, term in zip(held, column, strict=True)) for column in table.T.tolist()]
    return np.array([each / sum(held) for each in sums])


def _shape(
    ensemble: VotingEnsemble | AdditiveEnsemble, at: int, label: ClassLabel, table: NDArray[np.float64]
) -> Shape:
    feature, votes = ensemble.features[at], [float(each) for each in table]
    if isinstance(ensemble, AdditiveEnsemble):
        return Shape(feature.name, feature.kind, label, tuple(_released(ensemble, at, votes)))
    if isinstance(feature, NumericFeature):
        return Shape(feature.name, feature.kind, label, tuple(_intervals(feature.edges, votes)))
    bins = tuple(Bin(feature.label(code), each) for code, each in enumerate(votes))
    return Shape(feature.name, feature.kind, label, bins)


def _released(ensemble: AdditiveEnsemble, at: int, votes: list[float]) -> list[Bin]:
    """Every bin by itself, with its error and count."""
    feature = ensemble.features[at]
    found = [Bin(label, each, low, high) for (label, low, high), each in zip(places(feature), votes, strict=True)]
    if ensemble.errors:
        found = [replace(b, error=e * ensemble.link) for b, e in zip(found, ensemble.errors[at], strict=True)]
    if ensemble.counts:
        found = [replace(b, count=n) for b, n in zip(found, ensemble.counts[at], strict=True)]
    return found


def places(feature: Feature) -> list[tuple[str, float | None, float | None]]:
    """Label, low and high of each code."""
    if not isinstance(feature, NumericFeature):
        return [(feature.label(code), None, None) for code in range(feature.bins)]
    ends = pairwise((-inf, *feature.edges, inf))
    return [*((_interval(low, high), low, high) for low, high in ends), ("missing", None, None)]


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
