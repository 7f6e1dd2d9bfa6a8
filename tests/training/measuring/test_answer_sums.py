"""The release of a query: a row moves it by what is charged, no less and no more; too little noise is caught."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from draws import drawn

from accountant.noise.mechanisms import DiscreteGaussian
from dpserve_verify.privacy.budget import Budget, Relation
from models.answers.question import Measure
from models.answers.sql import read_question
from models.answers.table import Released
from models.features.features import BooleanFeature, NumericFeature
from models.profile.columns import Column
from models.profile.figures import Noise
from training.calibration.calibrate import rehearse
from training.measuring.answers.sums import GRID, Addend, CellSums
from training.measuring.profile.counts import Profiler
from training.rows.partitions.rows import Rows
from training.session.session import Public, Session, sensitivity_of

WIDTHS = (2, 3, 4)  # a group, a column with a condition, a number in three cells and a missing one
EVERY = list(product(*map(range, WIDTHS)))  # every row that there can be
SUM = np.array([-GRID, 100, GRID, 0])
THERE = np.array([GRID, GRID, GRID, 0])
MET = ((1, np.array([True, True, False])),)
OWN = ((1, np.array([True, False, True])),)  # a condition of one figure alone
ROWS, COUNT, TOTAL = Addend(), Addend((2, THERE)), Addend((2, SUM))
MEASURES = [
    (ROWS,), (COUNT,), (COUNT, TOTAL), (ROWS, COUNT, TOTAL), (ROWS, Addend(None, OWN)),
    (COUNT, TOTAL, Addend((2, THERE), OWN), Addend((2, SUM), OWN)),
]  # fmt: skip


def table(rows) -> Rows:
    codes = np.array(rows, np.uint8).reshape(-1, len(WIDTHS)).T.copy()
    return Rows(codes, np.zeros(codes.shape[1], np.uint8), WIDTHS)


def query_of(measures, norm, tests=MET) -> CellSums:
    return CellSums(WIDTHS[:1], tests, measures, norm)


def public(relation=Relation.ADD_REMOVE, contributions=1, budget=None) -> Public:
    budget = budget or Budget.of("1", "0.000001")
    return Public((BooleanFeature("x"),), "y", ("a", "b"), 100, relation, budget, False, contributions)


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("measures", MEASURES)
@pytest.mark.parametrize("relation", list(Relation))
def test_a_row_moves_the_sums_by_what_is_charged(relation, measures, norm):
    """Every row that there can be, and every pair of them, on a rest: at most the sensitivity, which is attained."""
    query, rest = query_of(measures, norm), [EVERY[0], EVERY[7], EVERY[-1]]
    order = 1 if norm == "l1" else 2

    def moved(one, other):
        return float(np.linalg.norm(query(table(one)) - query(table(other)), order))

    if relation is Relation.ADD_REMOVE:
        found = [moved([*rest, each], rest) for each in EVERY]
    else:
        found = [moved([*rest, a], [*rest, b]) for a in EVERY for b in EVERY]
    assert max(found) <= query.sensitivity(relation) < max(found) + 1
    assert min(found) == 0  # a row that the condition leaves out
    assert query(table([])).sum() == 0


def test_a_sum_without_a_count_of_its_own_would_move_further():
    """Why `measures_of` puts one beside each: within one cell a sum alone moves by two."""
    query = query_of((TOTAL,), "l2")
    moved = np.linalg.norm(query(table([(0, 0, 0)])) - query(table([(0, 0, 2)])))
    assert moved == 2 * GRID > query.sensitivity(Relation.REPLACE_ONE)


def test_sums_are_those_of_a_plain_loop():
    random = np.random.default_rng(0)
    rows = [EVERY[each] for each in random.integers(0, len(EVERY), 500)]
    found = query_of(MEASURES[3], "l1")(table(rows)).reshape(3, 2)
    with_own = query_of(MEASURES[-1], "l1")(table(rows)).reshape(4, 2)
    for group in (0, 1):
        met = [row for row in rows if row[0] == group and row[1] < 2]
        assert found[:, group].tolist() == [
            GRID * len(met), sum(int(THERE[row[2]]) for row in met), sum(int(SUM[row[2]]) for row in met)
        ]  # fmt: skip
        own = [row for row in met if row[1] == 0]
        assert with_own[:, group].tolist()[2:] == [sum(int(w[row[2]]) for row in own) for w in (THERE, SUM)]


@pytest.mark.statistical
@pytest.mark.parametrize("contributions", [1, 3])
def test_the_black_box_keeps_its_promise_and_a_factor_of_two_is_caught(contributions, monkeypatch):
    """The sum of all that a person at the end of the range moves, which is what an attacker would look at. Each bound
    of a frequency errs with a chance of 1e-4.
    """
    from scipy.stats import beta

    count, budget = 2500, Budget.of("1", "0.01")
    about, measures = public(contributions=contributions, budget=budget), MEASURES[3]
    profiler = Profiler(query_of(measures, "l2", ()))
    unit = profiler.recipe(about).unit
    plan = rehearse(profiler, about, unit)
    person = [(0, 0, 2)]
    toward = profiler.query(table(person))

    def runs(present):
        held = table(person * present)
        play = lambda: profiler.learn(Session(about, unit, plan, held))  # noqa: E731
        return drawn(play, DiscreteGaussian, count, toward != 0) @ toward[toward != 0] / GRID**2

    def loss():
        with_it, without, middle = runs(contributions), runs(0), 3 * contributions * 1.7
        above, below = int((with_it > middle).sum()), int((without > middle).sum())
        low = beta.ppf(1e-4, above, count - above + 1) - 0.01
        return float(np.log(low / beta.ppf(1 - 1e-4, below + 1, count - below)))

    assert sensitivity_of(profiler.query, about) >= contributions * np.linalg.norm(toward)
    assert loss() <= 1
    draw = DiscreteGaussian.draw
    halved = lambda self, values, size: draw(DiscreteGaussian(self.noise_multiplier / 2), values, size)  # noqa: E731
    monkeypatch.setattr(DiscreteGaussian, "draw", halved)
    assert loss() > 1


@pytest.mark.statistical
@pytest.mark.parametrize("laplace", [False, True])
def test_intervals_hold_the_truth_as_often_as_they_say(laplace):
    """In 6,000 groups each: 95 %, to five standard deviations of .0028 (a false alarm in 2e-6); sums of Laplace noise
    hold more often. Twice the variance is caught.
    """
    random = np.random.default_rng(3)
    columns = {
        "g": Column(BooleanFeature("g"), "feature"),
        "x": Column(NumericFeature("x", (2.0,)), "feature", (0.0, 10.0)),
    }
    question = read_question(
        "select g, count(*), sum(x), avg(x), avg(case when h then 1 else 0 end) s from t group by g", "t",
        columns | {"h": Column(BooleanFeature("h"), "feature")}, lambda column: (),
    )  # fmt: skip
    # rows, rows with x, the sum of x from -1 to 1, rows where h is true
    truth = np.array([[400.0, 90, 30], [400, 90, 30], [100, -50, 10], [120, 85, 12]])
    own = question.outputs[-1].where
    measures = (Measure(), Measure("x"), Measure("x", True, (0.0, 10.0), 0.0), Measure(where=own))
    exact = {"count": truth[0], "sum x": 5 * truth[2] + 5 * truth[1], "avg x": 5 + 5 * truth[2] / truth[1]}
    exact["s"] = truth[3] / truth[0]
    noise = Noise(36.0, laplace)

    def share_held(variance):
        held = dict.fromkeys(exact, 0)
        for _ in range(2000):
            spread = np.sqrt(variance)
            drawn_noise = (
                random.laplace(0, spread / np.sqrt(2), (4, 3)) if laplace else random.normal(0, spread, (4, 3))
            )
            rows = (
                Released((columns["g"],), (), measures, truth + drawn_noise, noise).answer(question).to_json()["rows"]
            )
            for name, values in exact.items():
                held[name] += sum(
                    float(row[name][1]) <= value <= float(row[name][2]) for row, value in zip(rows, values, strict=True)
                )
        return {name: count / 6000 for name, count in held.items()}

    low, high = (0.936, 0.995) if laplace else (0.936, 0.964)
    assert all(low < share < high for share in share_held(36.0).values()), share_held(36.0)
    assert max(share_held(72.0).values()) < low
