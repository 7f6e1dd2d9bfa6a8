"""Made-up rows of public features, of which the answer follows in part: nobody's, the same for the same name.

Features follow three things that nobody sees and one of their own; the answer shifts both. Half of the numbers lie
about the middle of their range, half are skewed towards its lower end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from local.reports.corners import corners
from models.features.features import BooleanFeature, CategoricalFeature, Feature
from models.worth.expected_width import normal, uniform

Floats = NDArray[np.float64]
HIDDEN = 3
SHARED = 0.5  # of a feature's variance that follows from what is hidden
OF_HIDDEN = 0.5  # of the answer's shift
FADING = 0.8  # of the shift of a feature's own, from one to the next
APART = 1.8  # of two classes' scores, in their deviations: AUROC .90 for who knows how rows are made
DEVIATION = 0.35  # of a number, in halves of its range


@dataclass(frozen=True)
class MadeUp:
    """Rows of `features` whose answer is one of so many classes; 0: a number in [-1, 1].

    Attributes:
        name: what all follows from.
        spans: the declared range of each number that is to be encoded by its value; () where codes alone are asked for.
    """

    features: tuple[Feature, ...]
    classes: int
    name: str
    spans: tuple[tuple[float, float] | None, ...] = ()

    @cached_property
    def loadings(self) -> Floats:
        """Return how each feature follows what is hidden, (features, HIDDEN)."""
        drawn = self._normal("loadings", len(self.features) * HIDDEN).reshape(-1, HIDDEN)
        return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True) * SHARED**0.5)

    @cached_property
    def shifts(self) -> Floats:
        """Return what an answer of 1 adds to each feature, (wide, features): as far apart whatever the features are."""
        count, wide = len(self.features), max(1, self.classes - 1)
        hidden = self._normal("hidden", wide * HIDDEN).reshape(wide, HIDDEN) @ self.loadings.T
        order = np.argsort(uniform(f"{self.name} order", count))
        own = self._normal("own", wide * count).reshape(wide, count) * FADING**order
        both = [part / np.linalg.norm(part, axis=1, keepdims=True) for part in (hidden, own)]
        shifts = OF_HIDDEN**0.5 * both[0] + (1 - OF_HIDDEN) ** 0.5 * both[1] if count > 1 else both[1]
        spread = self.loadings @ self.loadings.T + (1 - SHARED) * np.eye(count)
        length = np.sqrt(np.einsum("wf,wf->w", shifts, np.linalg.solve(spread, shifts.T).T))
        return np.asarray(shifts / length[:, np.newaxis] * APART / 2)

    def rows(
        self, count: int, part: str, features: Sequence[Feature] | None = None
    ) -> tuple[list[NDArray[Any]], Floats, NDArray[np.int64]]:
        """Make `count` rows: codes, one array (n,) a feature, of these features, a model's own, if given; answers (n,
        wide), corners or numbers; classes (n,), 0 of a number.
        """
        values, answers, labels = self.draw(count, part)
        places = {feature.name: at for at, feature in enumerate(self.features)}
        of = [(places[feature.name], feature) for feature in features or self.features]
        codes = [self.encode(at, feature, values[:, at]) for at, feature in of]
        return codes, answers, labels

    def draw(self, count: int, part: str) -> tuple[Floats, Floats, NDArray[np.int64]]:
        """Draw the values (n, features) that `encode` makes codes of; answers and classes as of `rows`."""
        features, wide = len(self.features), max(1, self.classes - 1)
        labels = np.zeros(count, np.int64)
        if self.classes:
            weights = 1 / (np.arange(self.classes) + 1.5)
            labels = np.searchsorted(np.cumsum(weights / weights.sum())[:-1], uniform(f"{self.name} {part}", count))
            answers = corners(self.classes)[labels]
            moves = answers @ self.shifts
        else:
            drawn = self._normal(f"answers {part}", count)[:, np.newaxis]
            answers, moves = np.clip(DEVIATION * drawn, -1, 1), drawn @ self.shifts
        hidden = self._normal(f"hidden {part}", count * HIDDEN).reshape(count, HIDDEN) @ self.loadings.T
        own = self._normal(f"own {part}", count * features).reshape(count, features) * (1 - SHARED) ** 0.5
        return hidden + own + moves, answers.reshape(count, wide), labels

    @cached_property
    def skewed(self) -> NDArray[np.bool_]:
        """Return which numbers are skewed, (features,)."""
        return np.asarray(uniform(f"{self.name} skewed", len(self.features)) < 0.5)

    def places(self, at: int, values: Floats) -> Floats:
        """Return where in its range each value (n,) of a number is, from 0 to 1."""
        return np.clip(np.exp(values) / 12 if self.skewed[at] else 0.5 + values / 6, 0.0, 1.0)

    def encode(self, at: int, feature: Feature, values: Floats) -> NDArray[Any]:
        """Return the codes (n,) of values (n,), of deviation 1 or so, of one feature."""
        if isinstance(feature, BooleanFeature):
            return (values > 0.5).astype(np.int64)
        if isinstance(feature, CategoricalFeature):
            weights = 1 / (np.arange(max(1, len(feature.values))) + 1.0)
            return np.searchsorted(np.cumsum(weights / weights.sum())[:-1], 1 / (1 + np.exp(-1.702 * values)))
        places, span = self.places(at, values), self.spans[at] if self.spans else None
        if span is not None:
            return feature.encode(span[0] + (span[1] - span[0]) * places)
        return np.minimum(np.floor(places * (feature.cuts + 1)), feature.cuts).astype(np.int64)

    def _normal(self, part: str, size: int) -> Floats:
        return normal(f"{self.name} {part}", size)


def auroc_of(scores: NDArray[Any], labels: NDArray[np.int64], classes: int) -> float:
    """Compute the AUROC of scores (n, outputs); of more than two classes the mean of each against the others."""
    found = []
    for label in range(1 if classes == 2 else 0, classes):
        values = scores[:, 0 if classes == 2 else label]
        order = np.argsort(values, kind="stable")
        _, first, counts = np.unique(values[order], return_index=True, return_counts=True)
        ranks = np.repeat(first + (counts - 1) / 2, counts)[np.argsort(order, kind="stable")]
        of_class = labels == label
        ones = int(of_class.sum())
        if 0 < ones < len(labels):
            found.append((ranks[of_class].sum() - ones * (ones - 1) / 2) / (ones * (len(labels) - ones)))
    return float(np.mean(found)) if found else 0.5


def worth_of_errors(missed: Floats, answers: Floats) -> float:
    """Compute from the errors (n,) of a number what compares with an AUROC: half of 1 and the root of the share of the
    variance that is explained; .5 as good as always answering the mean, and below where that is better.
    """
    explained = 1 - float(np.mean(missed**2)) / max(float(answers.var()), 1e-12)
    return float(np.clip((1 + np.sign(explained) * abs(explained) ** 0.5) / 2, 0.0, 1.0))
