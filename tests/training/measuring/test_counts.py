"""The query of a profile: a row moves it by what is charged, no less and no more; too little noise is caught."""

from __future__ import annotations

from decimal import Decimal
from itertools import product

import numpy as np
import pytest
from draws import drawn

from accountant.noise.mechanisms import DiscreteGaussian, DiscreteLaplace
from dpserve_verify.privacy.budget import Budget, Relation
from models.features.features import BooleanFeature
from training.calibration.calibrate import rehearse
from training.measuring.profile.counts import GRID, Profiler, TableCounts
from training.rows.partitions.rows import Rows
from training.session.session import Public, Session, sensitivity_of

WIDTHS = (3, 4, 2)
PAIRS = ((0, 1), (2, 0))
EVERY = list(product(*map(range, WIDTHS)))  # every row that there can be


def table(rows) -> Rows:
    codes = np.array(rows, np.uint8).reshape(-1, len(WIDTHS)).T.copy()
    return Rows(codes, np.zeros(codes.shape[1], np.uint8), WIDTHS)


def public(relation=Relation.ADD_REMOVE, contributions=1, budget=None) -> Public:
    feature = BooleanFeature("x")
    budget = budget or Budget.of("1", "0.000001")
    return Public((feature,), "y", ("a", "b"), 100, relation, budget, False, contributions)


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("pairs", [(), PAIRS])
@pytest.mark.parametrize("relation", list(Relation))
def test_a_row_moves_the_counts_by_what_is_charged(relation, pairs, norm):
    """Every row that there can be, on a rest: at most the sensitivity, attained up to the rounding of the root."""
    query, rest = TableCounts(WIDTHS, pairs, norm), [EVERY[0], EVERY[7], EVERY[-1]]
    order = 1 if norm == "l1" else 2

    def moved(one, other):
        return float(np.linalg.norm(query(table(one)) - query(table(other)), order))

    if relation is Relation.ADD_REMOVE:
        found = [moved([*rest, each], rest) for each in EVERY]
        assert min(found) == max(found)  # every row is as bad as any
    else:
        found = [moved([*rest, a], [*rest, b]) for a in EVERY for b in EVERY]
    assert max(found) <= query.sensitivity(relation) < max(found) + 1
    assert query(table(rest)).sum() == GRID * len(rest) * (len(WIDTHS) + len(pairs))
    assert query(table([])).sum() == 0


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_a_person_with_three_rows_moves_them_three_times_as_far(norm):
    query = TableCounts(WIDTHS, PAIRS, norm)
    moved = np.linalg.norm(query(table([EVERY[5]] * 3)), 1 if norm == "l1" else 2)
    charged = sensitivity_of(query, public(contributions=3))
    assert moved <= charged < moved + 3


def test_counts_are_those_of_a_plain_loop():
    random = np.random.default_rng(0)
    rows = [EVERY[each] for each in random.integers(0, len(EVERY), 500)]
    found = TableCounts(WIDTHS, PAIRS, "l1")(table(rows)) // GRID
    expected = [sum(row[at] == code for row in rows) for at, width in enumerate(WIDTHS) for code in range(width)]
    for a, b in PAIRS:
        cells = product(range(WIDTHS[a]), range(WIDTHS[b]))
        expected += [sum((row[a], row[b]) == cell for row in rows) for cell in cells]
    assert found.tolist() == expected


def played(norm, unit, count, contributions, present):
    """`count` releases on a table without the person or with all their rows: how far towards these the counts lie."""
    profiler = Profiler(TableCounts((2, 2), ((0, 1),), norm))
    about = public(contributions=contributions)
    plan = rehearse(profiler, about, unit)
    held = Rows(np.ones((2, present), np.uint8), np.zeros(present, np.uint8), (2, 2))
    toward = profiler.query(Rows(np.ones((2, 1), np.uint8), np.zeros(1, np.uint8), (2, 2)))
    moved = toward != 0
    released = drawn(lambda: profiler.learn(Session(about, unit, plan, held)), DiscreteGaussian, count, moved)
    return released @ toward[moved] / GRID**2


def loss(with_it, without, middle, delta) -> float:
    """The least log-ratio that the frequencies above the middle allow for, at 1e-4 each."""
    from scipy.stats import beta

    above, below = int((with_it > middle).sum()), int((without > middle).sum())
    low = beta.ppf(1e-4, above, len(with_it) - above + 1) - delta
    high = beta.ppf(1 - 1e-4, below + 1, len(without) - below)
    return float(np.log(low / high))


@pytest.mark.statistical
@pytest.mark.parametrize("contributions", [1, 3])
def test_the_black_box_keeps_its_promise_and_a_factor_of_two_is_caught(contributions, monkeypatch):
    """A sum of all counts that the person moves, which is what an attacker would look at."""
    count, middle = 2500, 3 * contributions * 1.7
    budget = Budget.of("1", "0.01")
    query = TableCounts((2, 2), ((0, 1),), "l2")
    unit = Profiler(query).recipe(public(contributions=contributions, budget=budget)).unit
    runs = lambda present: played("l2", unit, count, contributions, present)  # noqa: E731
    assert loss(runs(contributions), runs(0), middle, 0.01) <= 1
    draw = DiscreteGaussian.draw
    halved = lambda self, values, size: draw(DiscreteGaussian(self.noise_multiplier / 2), values, size)  # noqa: E731
    monkeypatch.setattr(DiscreteGaussian, "draw", halved)
    assert loss(runs(contributions), runs(0), middle, 0.01) > 1


@pytest.mark.statistical
def test_laplace_noise_too(monkeypatch):
    """Of one histogram, where one count tells all: else no single event comes near the pure bound."""

    def runs(present):
        profiler = Profiler(TableCounts((2,), (), "l1"))
        plan = rehearse(profiler, public(), Decimal(1))
        rows = Rows(np.ones((1, present), np.uint8), np.zeros(present, np.uint8), (2,))
        play = lambda: profiler.learn(Session(public(), Decimal(1), plan, rows))  # noqa: E731
        return drawn(play, DiscreteLaplace, 2000)[:, 1] / GRID

    assert loss(runs(1), runs(0), 1, 0) <= 1
    draw = DiscreteLaplace.draw
    halved = lambda self, values, size: draw(DiscreteLaplace(2 * self.epsilon), values, size)  # noqa: E731
    monkeypatch.setattr(DiscreteLaplace, "draw", halved)
    assert loss(runs(1), runs(0), 1, 0) > 1
