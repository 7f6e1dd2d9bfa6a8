"""The release of a query: a row moves it by what is charged, no less and no more; too little noise is caught."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from draws import drawn

from accountant.noise.mechanisms import DiscreteGaussian
from dpserve_verify.privacy.budget import Budget, Relation
from models.answers.question import ENDS, Measure
from models.answers.sql import read_question
from models.answers.table import Released
from models.features.features import BooleanFeature, NumericFeature
from models.profile.columns import Column
from models.profile.figures import Noise
from models.profile.stated import noise_of
from training.calibration.calibrate import rehearse
from training.measuring.answers.cells import Axis, TableCells
from training.measuring.answers.sums import GRID, Addend, CellSums, measures_of
from training.measuring.answers.sums import query_of as query_of_question
from training.measuring.profile.counts import Profiler
from training.rows.partitions.rows import Rows
from training.session.session import Public, Session, sensitivity_of

WIDTHS = (2, 3, 4)  # a group, a column with a condition, a number in three cells and a missing one
EVERY = list(product(*map(range, WIDTHS)))  # every row that there can be
LOW, HIGH = np.array([GRID, GRID - 100, 0, 0]), np.array([0, 100, GRID, 0])
THERE = LOW + HIGH
MET = ((1, np.array([True, True, False])),)
OWN = ((1, np.array([True, False, True])),)  # a condition of one figure alone
ROWS, COUNT, NUMBER = Addend(), Addend(2, (THERE,)), Addend(2, (LOW, HIGH))
FIGURES = [
    (ROWS,), (COUNT,), (NUMBER,), (ROWS, NUMBER), (ROWS, COUNT, NUMBER), (ROWS, Addend(tests=OWN)),
    (NUMBER, NUMBER, Addend(2, (LOW, HIGH), OWN)),
]  # fmt: skip


class Cells(TableCells):
    """Two numbers that may be missing, a third that nobody is without, and a truth."""

    def __init__(self):
        numbers = {name: NumericFeature(name, (2.0,)) for name in "xyz"}
        self.columns = {name: Column(each, "feature", (0.0, 4.0), ("missing",) * (name == "z"))
                        for name, each in numbers.items()}  # fmt: skip
        self.columns["b"], self.targets = Column(BooleanFeature("b"), "feature"), {}

    def edges(self, column):
        return [*np.linspace(0, 4, 401)[1:-1]]

    def axis(self, name, fine):
        return Axis(self.columns[name], fine, 401 if fine else self.columns[name].bins)


def table(rows) -> Rows:
    codes = np.array(rows, np.uint8).reshape(-1, len(WIDTHS)).T.copy()
    return Rows(codes, np.zeros(codes.shape[1], np.uint8), WIDTHS)


def query_of(figures, norm, tests=MET) -> CellSums:
    return CellSums(WIDTHS[:1], tests, figures, norm)


def public(relation=Relation.ADD_REMOVE, contributions=1, budget=None) -> Public:
    budget = budget or Budget.of("1", "0.000001")
    return Public((BooleanFeature("x"),), "y", ("a", "b"), 100, relation, budget, False, contributions)


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("figures", FIGURES)
@pytest.mark.parametrize("relation", list(Relation))
def test_a_row_moves_the_sums_by_what_is_charged(relation, figures, norm):
    """Every row that there can be, and every pair of them, on a rest: at most the sensitivity, which is attained: by
    two sums of a number as by one count.
    """
    query, rest = query_of(figures, norm), [EVERY[0], EVERY[7], EVERY[-1]]
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
    assert query.sensitivity(relation) < 2.5 * GRID * len(figures)


@pytest.mark.parametrize("parts", [(LOW, HIGH + 1), (LOW - 1, HIGH)])
def test_parts_that_are_no_parts_of_a_row_are_refused(parts):
    """A part below nothing, as of a sum about the middle, would move further where a row is replaced."""
    with pytest.raises(ValueError, match="together at most"):
        query_of((Addend(2, parts),), "l2")


def test_sums_are_those_of_a_plain_loop():
    random = np.random.default_rng(0)
    rows = [EVERY[each] for each in random.integers(0, len(EVERY), 500)]
    found = query_of(FIGURES[4], "l1")(table(rows)).reshape(4, 2)
    with_own = query_of(FIGURES[-1], "l1")(table(rows)).reshape(6, 2)
    for group in (0, 1):
        met = [row for row in rows if row[0] == group and row[1] < 2]
        assert found[:, group].tolist() == [
            GRID * len(met), *(sum(int(w[row[2]]) for row in met) for w in (THERE, LOW, HIGH))
        ]  # fmt: skip
        own = [row for row in met if row[1] == 0]
        assert with_own[:, group].tolist()[4:] == [sum(int(w[row[2]]) for row in own) for w in (LOW, HIGH)]


@pytest.mark.parametrize(
    ("figures", "moved"),
    [("count(*), avg(x), sum(y)", 3), ("avg(x)", 1), ("count(x), sum(x), avg(x)", 1), ("count(*), avg(z)", 1),
     ("count(*) filter (where b), avg(z)", 2), ("count(x), avg(x) filter (where b)", 2)],
)  # fmt: skip
def test_each_figure_has_the_price_of_one(figures, moved):
    """A number's rows are counted by its two sums, all rows by those of a number that nobody is without."""
    cells = Cells()
    question = read_question(f"select {figures} from t", "t", cells.columns, cells.edges)
    query = query_of_question(question, cells, "l1")
    assert query.sensitivity(Relation.ADD_REMOVE) == moved * GRID
    assert query.sums == len(measures_of(question, cells))


def test_a_mean_has_the_width_of_its_two_sums():
    """At delta 0 and .5, Laplace's: three figures have the noise of three counts, a mean alone that of one."""
    cells = Cells()

    def widths(figures):
        question = read_question(f"select {figures} from t", "t", cells.columns, cells.edges)
        plan = Profiler(query_of_question(question, cells, "l1")).recipe(public(budget=Budget.of("0.5", "0"))).plan
        measures = measures_of(question, cells)
        sums = np.full(len(measures), 500.0)
        table = Released((), (), measures, sums, noise_of(plan, GRID)).answer(question).to_json()["rows"][0]
        return {name: (float(each[2]) - float(each[1])) / 2 for name, each in table.items() if name != "group"}

    one, half_range, within = np.log(20) / 0.5, 2.0, 0.006
    three = widths("avg(x) m, count(*) n, sum(y) s")
    assert three["n"] == pytest.approx(3 * one, rel=1e-3)
    assert three["m"] == pytest.approx(half_range * 3 * one * 2**0.5 / 1000, abs=within)
    assert three["s"] == pytest.approx(half_range * 2 * 3 * one, abs=within * 1100)
    assert widths("avg(x) m")["m"] == pytest.approx(half_range * one * 2**0.5 / 1000, abs=within)


@pytest.mark.statistical
@pytest.mark.parametrize("contributions", [1, 3])
def test_the_black_box_keeps_its_promise_and_a_factor_of_two_is_caught(contributions, monkeypatch):
    """The sum of all that a person at the end of the range moves, which is what an attacker would look at. Each bound
    of a frequency errs with a chance of 1e-4.
    """
    from scipy.stats import beta

    count, budget = 2500, Budget.of("1", "0.01")
    about, figures = public(contributions=contributions, budget=budget), (ROWS, COUNT, NUMBER)
    profiler = Profiler(query_of(figures, "l2", ()))
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
    ends = [Measure("x", True, (0.0, 10.0), 0.0, end=end) for end in ENDS]
    measures = (Measure(), *ends, Measure(where=own))
    released = np.array([truth[0], (truth[1] - truth[2]) / 2, (truth[1] + truth[2]) / 2, truth[3]])
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
                Released((columns["g"],), (), measures, released + drawn_noise, noise)
                .answer(question)
                .to_json()["rows"]
            )
            for name, values in exact.items():
                held[name] += sum(
                    float(row[name][1]) <= value <= float(row[name][2]) for row, value in zip(rows, values, strict=True)
                )
        return {name: count / 6000 for name, count in held.items()}

    low, high = (0.936, 0.995) if laplace else (0.936, 0.964)
    assert all(low < share < high for share in share_held(36.0).values()), share_held(36.0)
    assert max(share_held(72.0).values()) < low
