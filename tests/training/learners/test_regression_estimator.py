"""Learners of numbers as scikit-learn estimators: what is declared, what comes back, and what is refused."""

from __future__ import annotations

import pickle
import warnings
from collections import defaultdict
from decimal import Decimal
from importlib.util import find_spec

import numpy as np
import pyarrow as pa
import pytest
from mean_by_bin import MeanByBin
from sklearn.base import clone, is_regressor
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator

from accountant.errors import DataError, SchemaError
from dpserve_verify.errors import BudgetRefused, InputError
from training.learners import LEARNERS, LazyBB
from training.notebook import CHECKS_OF_NUMBERS, Account, Columns, PublicWarning, RowFolds, uniform_schema

REGRESSORS = [MeanByBin]
if find_spec("training.learners.ebm.ebm"):
    from training.learners.ebm.ebm import DPEBMRegressor

    REGRESSORS.append(DPEBMRegressor)
EVERY = pytest.mark.parametrize("kind", REGRESSORS, ids=lambda kind: kind.__name__)
CHANCE = [name for name, why in CHECKS_OF_NUMBERS.items() if "noise" in why.lower()]
SECRET = 31.4159265


def data(rows: int = 600, seed: int = 0):
    """y = 10 + 10 x0 and a little noise."""
    random = np.random.default_rng(seed)
    X = random.uniform(0, 1, (rows, 3))
    return X, 10 + 10 * X[:, 0] + random.normal(0, 0.5, rows)


def make(kind, **parameters):
    rule = Columns(low=0, high=1, target_range=(5, 25), records=600)
    return kind(**{"schema": rule, "epsilon": "10", **parameters})


@EVERY
def test_a_number_is_learnt_within_its_range_and_its_budget(kind):
    X, y = data()
    model = make(kind)
    assert model.fit(X, y) is model
    assert is_regressor(model)
    unseen, truth = data(300, seed=1)
    values = model.predict(unseen)
    assert (values.dtype, values.shape) == (np.float64, (300,))
    assert ((values >= 5) & (values <= 25)).all()
    assert model.score(unseen, truth) > 0.7  # R^2; the mean of all has 0
    assert Decimal("9.7") < model.spent_.epsilon <= 10
    assert model.ensemble_.classes == ()
    assert not hasattr(model, "classes_")
    assert not hasattr(model, "predict_proba")


@EVERY
def test_targets_outside_the_range_are_clipped_and_infinities_with_them(kind):
    """Half of the rows lie far above the range, and count as its end."""
    X, _ = data()
    y = np.where(X[:, 0] > 0.5, np.inf, -np.inf)
    y[::2] = np.sign(y[::2]) * 1e300
    values = make(kind, schema=Columns(0, 1, target_range=(0, 1), records=600)).fit(X, y).predict(X)
    assert np.abs(values - (X[:, 0] > 0.5)).mean() < 0.2


@EVERY
def test_answers_move_with_the_range(kind):
    """The same rows a hundred higher, in a range a hundred higher: the middle is public, and costs nothing."""
    X, y = data()
    model = make(kind, schema=Columns(0, 1, target_range=(105, 125), records=600)).fit(X, y + 100)
    assert model.score(X, y + 100) > 0.7


FORMS = {
    "list": list,
    "column": lambda y: pa.chunked_array([y[:100], y[100:]]),
    "whole": lambda y: y.round().astype(np.int64),
    "small": lambda y: y.round().astype(np.uint8),
    "objects": lambda y: y.astype(object),
    "float32": lambda y: y.astype(np.float32),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_targets_of_every_form_are_read(form):
    X, y = data()
    assert make(MeanByBin).fit(X, form(y)).score(X, y) > 0.7


BAD = {
    "texts": ["a", "b", "c", "d"],
    "truth values": [True, False, True, False],
    "mixed": np.array([1.5, "a", 2, 3], object),
    "complex": [1j, 2, 3, 4],
    "None": None,
    "a matrix": np.ones((4, 2)),
    "too few": [1.0, 2.0],
    "texts of arrow": pa.array(["1", "two", "3", "4"]),
    "truth values of arrow": pa.array([True] * 4),
}


@EVERY
@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_what_is_no_column_of_numbers_is_refused(kind, bad):
    model = make(kind)
    with pytest.raises((ValueError, DataError)):
        model.fit(np.zeros((4, 3)), bad)
    assert not hasattr(model, "recipe_")


@EVERY
@pytest.mark.parametrize("hole", [float("nan"), None])
def test_a_missing_target_is_refused_by_its_row_alone(kind, hole):
    model = make(kind)
    with pytest.raises(ValueError, match="target, row 4 .*: missing") as caught:
        model.fit(np.zeros((4, 3)), [SECRET, SECRET, hole, SECRET])
    assert "31.4" not in str(caught.value)
    assert not hasattr(model, "recipe_")


@EVERY
def test_classes_and_numbers_are_not_mistaken_for_each_other(kind):
    X, y = data()
    with pytest.raises(InputError, match=r"classes|range"):
        make(kind, schema=Columns(0, 1, [0, 1])).fit(X, y)
    for learner in LEARNERS.values():
        with pytest.raises(InputError, match="classes"):
            make(learner).fit(X, y)


@pytest.mark.parametrize(
    "wrong", [{}, {"classes": [0, 1], "target_range": (0, 1)}, {"target_range": (1, 0)}, {"target_range": 3}], ids=str
)
def test_a_rule_says_classes_or_a_range(wrong):
    with pytest.raises((SchemaError, TypeError)):
        Columns(0, 1, **wrong).schema(["a"])


def test_a_rule_and_a_schema_say_the_same_range():
    rule = Columns(0, 1, target_range=np.array([0, 5]))
    schema = uniform_schema(1, 0, 1, None, 1000, target_range=(0, 5))
    assert rule.schema(["x0"]) == schema
    assert (schema.classes, schema.target_range) == (None, (0.0, 5.0))


@EVERY
def test_replace_one_takes_the_public_count(kind):
    X, y = data()
    schema = uniform_schema(3, 0, 1, None, 599, target_range=(5, 25))
    with pytest.raises(ValueError, match="records=599") as caught:
        make(kind, schema=schema, relation="replace-one").fit(X, y)
    assert "600" not in str(caught.value)
    rule = Columns(0, 1, target_range=(5, 25))
    assert (
        make(kind, schema=rule, relation="replace-one").fit(X, y).public_facts(rule.schema(["a"], 600)).records == 600
    )


@EVERY
@pytest.mark.parametrize("delta", ["0", "0.000001"])
def test_a_plan_of_sums_that_noise_drowns_is_warned_of_by_public_numbers(kind, delta):
    few = uniform_schema(1, 0, 1, None, 2, target_range=(5, 25))
    with pytest.warns(PublicWarning, match="noise drowns the signal. With records=2 and epsilon=0.5"):
        make(kind, schema=few, epsilon="0.5", delta=delta).fit([[0.0], [1.0]], [5, 25])
    with warnings.catch_warnings():
        warnings.simplefilter("error", PublicWarning)
        make(kind, delta=delta).fit(*data())


@EVERY
def test_a_clone_is_a_new_release_and_an_account_adds_up(kind):
    X, y = data()
    model = make(kind).fit(X, y)
    with pytest.raises(BudgetRefused):
        model.fit(X, y)
    assert (pickle.loads(pickle.dumps(model)).predict(X) == model.predict(X)).all()
    assert not hasattr(clone(model), "ensemble_")
    account = Account("40", rowwise=True)
    line = make_pipeline(FunctionTransformer(np.square), make(kind, account=account))
    assert cross_val_score(line, X, y, cv=RowFolds(2), error_score="raise").shape == (2,)
    assert account.fits == 2


@pytest.mark.slow
@EVERY
def test_check_estimator_passes_but_for_the_listed_exceptions(kind):
    rule = Columns(low=-5, high=5, target_range=(-4, 4), records=100)
    estimator = kind(schema=rule, epsilon="2", account=Account(100, rowwise=True))
    assert get_tags(estimator).estimator_type == "regressor"
    found = defaultdict(set)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for each in check_estimator(estimator, on_fail=None, expected_failed_checks=CHECKS_OF_NUMBERS):
            found[each["status"]].add(each["check_name"] if each["status"] != "failed" else repr(each))
    assert found["failed"] == set()
    assert found["xfail"] | set(CHANCE) | found["skipped"] & set(CHECKS_OF_NUMBERS) == set(CHECKS_OF_NUMBERS)
    assert len(found["passed"]) >= 38


def test_a_classifier_says_so_where_its_learner_could_do_more():
    with pytest.raises(InputError, match="classes"):
        make(LazyBB).fit(*data())
