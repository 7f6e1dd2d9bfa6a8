"""On the local paper's sets: the project's own learners, over its pure functions; the user alone; and central training.

Every learner asks as many owners for as many rows as the paper's nearest centroids do (`local-lr`: owners of more rows,
see the page). Owners draw as `dpserve owner` draws; seeds of splits make it uncertified.
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from accountant.noise.mechanisms import DiscreteGaussian
from dpserve_verify.privacy.budget import Budget
from local.reports.groups import GRID, LABEL, Groups
from local.reports.learning import coordinates_for, learn_from_reports
from local.reports.shared import AGGREGATORS, Aggregator, SharedDefinition, multiplier_for
from local.reports.shared_learning import groups_for, learn_shared
from local.reports.statistics import own_vectors
from models.features.features import NumericFeature
from models.forms.additive import AdditiveEnsemble
from studies.owners.local import defined, simulate
from studies.owners.local_sets import LocalSet

Floats = NDArray[np.float64]
EDGES, PUBLIC, DELTA = 65, 500, "0.000001"
OWN_ROWS = {"local-linear": 4, "local-lr": 20}


def features_of(data: LocalSet) -> tuple[NumericFeature, ...]:
    """What the schema says: numbers from -1 to 1."""
    return tuple(NumericFeature(f"x{j}", tuple(np.linspace(-1, 1, EDGES))) for j in range(data.features))


def codes_of(features: tuple[NumericFeature, ...], X: Floats) -> list[NDArray[np.uint16]]:
    """One array (n,) a feature."""
    return [feature.encode(X[:, at]) for at, feature in enumerate(features)]


def error_of(model: AdditiveEnsemble, features: tuple[NumericFeature, ...], data: LocalSet) -> float:
    X, y = data.test
    return float(np.mean((model.coded_scores(codes_of(features, X))[:, 0] > 0) != (y > 0)))


def one_round(data: LocalSet, learner: str, rows: int, each: int, epsilon: float, rng: np.random.Generator) -> float:
    """Error of `local-linear` or `local-lr`: `rows` rows, `each` of them one owner's; 500 of the user's rows are the
    public ones, without labels.
    """
    features, owners = features_of(data), rows // each
    X, y = _picked(data.owners, owners * each, rng)
    public = codes_of(features, _picked(data.user, PUBLIC, rng)[0])
    coordinates = coordinates_for(features, public, owners, epsilon)
    definition = defined(learner, coordinates, epsilon, owners, ("a", "b"))
    z = coordinates.of(codes_of(features, X))
    own = own_vectors(learner, z, y.astype(np.float64), np.full(owners, each))
    return error_of(learn_from_reports(definition, np.arange(owners), simulate(definition, own)), features, data)


def summed(layout: Groups, codes: list[NDArray[np.uint16]], y: Floats, each: int) -> NDArray[np.int64]:
    """The sum over owners of `each` rows of their statistics (numbers,): at once, for means of so many are exact."""
    if GRID % each:
        raise ValueError(f"each={each}: the mean of so many rows is cut, and sums of cut means are not cut sums")
    size, step = layout.size, GRID // each
    together, sums = np.zeros((size, size)), np.zeros(size)
    for start in range(0, len(y), 4096):
        part = slice(start, start + 4096)
        places = np.stack([table[code[part]] for table, code in zip(layout.tables, codes, strict=True)], axis=1)
        held = np.zeros((len(places), size), np.float32)
        held[np.arange(len(places))[:, np.newaxis], places] = 1
        together += held.T @ held
        sums += held.T @ y[part].astype(np.float32)
    found = np.concatenate([together[layout.pairs], np.diag(together), LABEL * sums])
    return np.asarray(np.rint(step * found), np.int64)


class TwoAggregators:
    """`shared-additive` on one choice of owners: summed up once, and the noise of both is drawn for each error."""

    def __init__(self, data: LocalSet, rows: int, each: int, rng: np.random.Generator) -> None:
        self.data, self.owners, self.each = data, rows // each, each
        self.features = features_of(data)
        X, self.y = _picked(data.owners, self.owners * each, rng)
        self.codes = codes_of(self.features, X)
        self.sums: dict[int, NDArray[np.int64]] = {}

    def error(self, epsilon: float) -> float:
        budget = Budget.of(str(epsilon), DELTA)
        groups = self.data.groups or groups_for(self.owners, epsilon)
        layout = Groups(self.features, groups)
        if groups not in self.sums:
            self.sums[groups] = summed(layout, self.codes, self.y, self.each)
        whom = tuple(Aggregator(name, f"{at + 1}" * 64, f"{at + 3}" * 64) for at, name in enumerate("ab"))
        definition = SharedDefinition(
            "simulated", "owners", "model", "shared-additive", Decimal(str(epsilon)), self.owners, self.owners, "label",
            ("a", "b"), self.features, budget.delta, groups, multiplier_for(layout, budget), None, whom,
        )  # fmt: skip
        mechanism, nothing = DiscreteGaussian(definition.noise_multiplier), np.zeros(layout.numbers, np.int64)
        noise = sum(mechanism.draw(nothing, layout.sensitivity) for _ in range(AGGREGATORS))
        return error_of(learn_shared(definition, self.sums[groups] + noise, self.owners), self.features, self.data)


def alone(data: LocalSet, rows: int, rng: np.random.Generator) -> float:
    """Error of the user's own logistic regression on so many labelled rows of its own."""
    return _regression(data, _picked(data.user, rows, rng))


def central(data: LocalSet, rows: int, rng: np.random.Generator) -> float:
    """Error of a logistic regression on as many rows as all owners have together: no privacy."""
    return _regression(data, _picked(data.owners, rows, rng))


def _regression(data: LocalSet, rows: tuple[Floats, Floats]) -> float:
    fit = LogisticRegression(max_iter=500).fit(*rows)
    return float(np.mean(fit.predict(data.test[0]) != data.test[1]))


def _picked(part: tuple[Floats, Floats], rows: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    order = rng.permutation(len(part[1]))[:rows]
    return part[0][order], part[1][order]
