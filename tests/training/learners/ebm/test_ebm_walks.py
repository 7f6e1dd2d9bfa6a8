"""Leaves with few rows: the noise of their sums does not add up over the epochs, and rows that there are still tell."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from dpserve_verify.privacy.budget import Budget, Relation
from models.features.features import CategoricalFeature
from training.learners.ebm.defaults import DOUBT, EbmDefaults, ebm_defaults
from training.learners.ebm.ebm import DPEBMRegressor
from training.learners.ebm.noise import noise_of
from training.learners.ebm.one_score import OneScore
from training.learners.ebm.residuals import GRID
from training.rows.partitions.partition import TARGET_GRID
from training.rows.schema.column_rules import Columns
from training.session.session import Public

TOWNS = tuple(f"town {at}" for at in range(20))
EPOCHS = 40


def public_of(pure: bool = False) -> Public:
    budget = Budget.of("1", "0" if pure else "0.000001")
    features = (CategoricalFeature("town", TOWNS),) * 2
    return Public(features, "y", None, 20_000, Relation.ADD_REMOVE, budget, pure, target_range=(0.0, 1.0))


def model_of(counts, pure: bool = False, **settings) -> OneScore:
    public = public_of(pure)
    given = EbmDefaults(EPOCHS, 8, 0.4, 0.0, 0.025, spread=2.0, doubt=DOUBT)
    given = EbmDefaults(**{**given.__dict__, **settings})
    return OneScore(public, given, noise_of(public, Decimal("0.1"), given), [np.asarray(counts, float)] * 2)


def walked(model: OneScore, target: float = 0.0, seed: int = 0) -> np.ndarray:
    """The terms of the first feature, in half ranges, after sums of what is left of `target` in each row, and noise."""
    random, leaves = np.random.default_rng(seed), np.arange(len(TOWNS) + 2)
    deviation = model.noise.summing.event.deviation * GRID
    rows = np.maximum(model.counts[0], 0)
    for _ in range(EPOCHS):
        worth = model.query(0, leaves).residuals.worth
        left = np.clip(target - model._terms[0] / TARGET_GRID, -1, 1)
        model.step(0, leaves, np.rint(rows * left / worth + random.normal(0, deviation, leaves.size)))
    return model._terms[0] / TARGET_GRID


@pytest.mark.parametrize("pure", [False, True])
def test_values_without_rows_stay_where_they_are(pure):
    """Their noisy counts do not stand out of the noise of counts; by a ridge alone they walk as far as any."""
    counting = model_of(np.zeros(22), pure).noise.counting.event.deviation
    counts = np.array([20_000.0] * 4 + [0.9 * counting] * 9 + [-counting] * 9)
    assert np.abs(walked(model_of(counts, pure))[4:]).max() == 0
    assert np.abs(walked(model_of(counts, pure, doubt=0.0, ridge=4.7))[4:]).max() > 0.1


def test_what_noise_adds_up_to_stays_below_what_there_is_to_explain():
    """The deviation over values of any number of rows; half a half range is there to explain (clip 1, spread 2)."""
    for rows in (30, 60, 120, 250, 500, 1_000, 4_000):
        terms = np.concatenate([walked(model_of(np.full(22, rows)), seed=seed) for seed in range(4)])
        assert terms.std() < 0.5 / DOUBT, rows


def test_values_with_many_rows_are_learnt_whole():
    terms = walked(model_of(np.full(22, 40_000.0)), target=0.3)
    assert terms == pytest.approx(np.full(22, 0.3), abs=0.03)


def test_more_rows_go_further_and_doubt_holds_back():
    fine, one = model_of(np.zeros(22)), np.ones(60, np.int64)
    rates = fine.rates_of(np.geomspace(10, 1e6, 60), one, 50.0)
    assert (np.diff(rates) >= 0).all()
    assert rates[0] < 1e-4
    assert rates[-1] == fine.settings.rate
    assert (model_of(np.zeros(22), doubt=100.0).rates_of(np.geomspace(10, 1e4, 60), one, 50.0) < rates).all()
    assert (model_of(np.zeros(22), doubt=0.0).rates_of(np.zeros(60), one, 50.0) == fine.settings.rate).all()


def test_numbers_are_doubted_by_the_rule_and_classes_have_their_ridge():
    number = ebm_defaults(public_of())
    two = ebm_defaults(replace(public_of(), classes=("no", "yes"), target_range=None))
    assert (number.doubt, number.ridge) == (DOUBT, 0.0)
    assert two.doubt == 0.0 < two.ridge


def test_squares_that_noise_drowns_leave_a_clip_to_learn_by():
    model = model_of(np.full(22, 1_000.0))
    model.narrow(np.array([-5 * TARGET_GRID]))
    noise = model.noise.starting.event.deviation
    assert model._clip == pytest.approx(min(1.0, 2 * np.sqrt(noise / model._rows())))


def test_columns_of_rare_values_do_not_drown_a_number():
    """30 columns of 25 values that say nothing, one number that says all. The error is .45 to .51 of the spread in six
    fits, and by a ridge alone .74 to .80; without noise .33."""
    random = np.random.default_rng(1)
    shares = 0.75 ** np.arange(25)
    X = {"x": random.uniform(size=2_500)}
    X |= {f"c{at}": random.choice([f"v{v}" for v in range(25)], 2_500, p=shares / shares.sum()) for at in range(30)}
    y = 10 * X["x"] + random.normal(size=2_500)
    words = {f"c{at}": {"type": "categorical", "values": [f"v{v}" for v in range(25)]} for at in range(30)}
    rule = Columns(low=0, high=1, target_range=(-3, 13), columns=words, records=2_000)
    train, test = (
        pa.table({name: column[part] for name, column in X.items()}) for part in (slice(2_000), slice(2_000, None))
    )
    made = DPEBMRegressor(schema=rule, epsilon=4).fit(train, y[:2_000])
    assert np.std(made.predict(test) - y[2_000:]) < 0.6 * y.std()
