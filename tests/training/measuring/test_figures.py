"""Figures of noisy counts: right without noise, within their intervals with it, and silent where it drowns them."""

from __future__ import annotations

import numpy as np
import pytest

from dpserve_verify.privacy.budget import Budget, Relation
from models.features.features import BooleanFeature, CategoricalFeature, NumericFeature
from models.profile.columns import Column
from models.profile.figures import LEVELS, Noise, table
from models.profile.stated import noise_of
from training.measuring.profile.counts import GRID, Profiler, TableCounts
from training.session.session import Public

COLUMNS = [
    Column(NumericFeature("age", tuple(range(0, 100, 4))), "feature", (0.0, 100.0)),
    Column(CategoricalFeature("town", ("a", "b", "c")), "feature"),
    Column(BooleanFeature("mail"), "feature"),
]
VALUES = np.random.default_rng(1).gamma(3, 12, 5000)
AGE = np.where(np.arange(5000) < 200, np.nan, VALUES)
CODES = [
    COLUMNS[0].feature.encode(AGE),
    np.random.default_rng(2).choice(5, 5000, p=[0.6, 0.3, 0.02, 0.07, 0.01]),
    np.arange(5000) % 2,
]
EXACT = [np.bincount(codes, minlength=column.bins).astype(float) for codes, column in zip(CODES, COLUMNS, strict=True)]


def told(counts, noise, known=None):
    return table(COLUMNS, counts, {}, noise, known, GRID)


def floats(triple):
    return [None if each is None else float(each) for each in triple]


def test_without_noise_the_figures_are_those_of_the_rows_to_the_width_of_a_bin():
    found = told(EXACT, Noise(1e-12, False))
    age, town, mail = found["columns"]
    true = np.clip(AGE[200:], 0, 100)
    assert floats(found["records"]) == pytest.approx([5000] * 3)
    assert floats(age["missing"])[0] == pytest.approx(0.04)
    assert float(age["mean"][1]) <= true.mean() <= float(age["mean"][2])
    assert float(age["mean"][0]) == pytest.approx(true.mean(), abs=0.2)
    for level, each in zip(LEVELS, age["quantiles"], strict=True):
        value, low, high = floats(each)
        assert low <= np.quantile(true, float(level)) <= high <= low + 4
        assert value == pytest.approx(np.quantile(true, float(level)), abs=1)
    shares = [float(each[0]) for each in town["shares"]]
    assert shares == pytest.approx((EXACT[1][:-1] / 5000).tolist())
    assert float(mail["shares"][1][0]) == 0.5


@pytest.mark.statistical
@pytest.mark.parametrize("laplace", [True, False])
def test_intervals_hold_as_often_as_they_say(laplace):
    """400 draws: at least 92.5 % where 95 % are promised; a false alarm has a chance of about 1 % for each figure."""
    random, spread, runs = np.random.default_rng(3), 40.0, 400
    noise = Noise(spread**2, laplace)
    clipped = np.clip(AGE[200:], 0, 100)
    truth = {"records": 5000.0, "missing": 0.04, "mean": clipped.mean(), "share": EXACT[1][0] / 5000}
    truth |= {level: float(np.quantile(clipped, float(level), method="inverted_cdf")) for level in LEVELS}
    held = dict.fromkeys(truth, 0)
    for _ in range(runs):
        draw = (lambda n: random.laplace(0, spread / 2**0.5, n)) if laplace else (lambda n: random.normal(0, spread, n))
        found = told([own + draw(len(own)) for own in EXACT], noise)
        age, town, _ = found["columns"]
        said = {"records": found["records"], "missing": age["missing"], "mean": age["mean"], "share": town["shares"][0]}
        said |= dict(zip(LEVELS, age["quantiles"], strict=True))
        for name, (_, low, high) in said.items():
            held[name] += float(low) <= truth[name] <= float(high)
    assert {name: count / runs for name, count in held.items() if count < 0.925 * runs} == {}


def test_where_the_noise_drowns_the_counts_the_interval_is_all_there_can_be():
    random = np.random.default_rng(4)
    for known in (None, 10):
        counts = [random.normal(0, 1e6, column.bins) for column in COLUMNS]
        age, town, _ = told(counts, Noise(1e12, False), known)["columns"]
        assert floats(age["mean"])[1:] == [0.0, 100.0]
        assert floats(town["shares"][0])[1:] == [0.0, 1.0]


def test_the_public_number_of_rows_is_used_where_there_is_one():
    found = told([own + 30 for own in EXACT], Noise(900.0, False), 5000)
    assert found["records"] == ["5000"] * 3
    share = floats(found["columns"][1]["shares"][0])
    assert share[0] == pytest.approx((EXACT[1][0] + 30) / 5000)
    assert share[2] - share[1] == pytest.approx(2 * 1.96 * 30 / 5000, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [2, 40])
def test_the_variance_that_is_stated_is_that_of_the_noise_that_is_drawn(columns):
    budget = Budget.of("1", "0.000001")
    public = Public((BooleanFeature("x"),), "y", ("a", "b"), 100, Relation.ADD_REMOVE, budget, False)
    for norm in ("l1", "l2"):
        profiler = Profiler(TableCounts((3,) * columns, (), norm))
        recipe = profiler.recipe(public)
        from training.rows.partitions.rows import Rows
        from training.session.session import Session

        rows = Rows(np.zeros((columns, 0), np.uint8), np.zeros(0, np.uint8), (3,) * columns)
        drawn = [profiler.learn(Session(public, recipe.unit, recipe.plan, rows)) for _ in range(6000 // columns)]
        stated = noise_of(recipe.plan, GRID)
        assert np.var(np.array(drawn) / GRID) == pytest.approx(stated.variance, rel=0.1)
        assert stated.laplace is (norm == "l1")
