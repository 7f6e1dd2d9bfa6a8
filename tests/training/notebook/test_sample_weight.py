"""Weights of rows in `fit`, as scikit-learn's users give them: by a declared most, which the rows never say."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from accountant.errors import SchemaError
from accountant.home import Home
from dpserve.learners import Account, AutoRegressor, Columns, DPEBMClassifier, LazyBB, RowFolds
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget, Relation
from dpserve_verify.privacy.weights import PARTS
from tests.helpers.ledgers import place
from training.datasets.datasets import register
from training.notebook.without_noise import unprotected
from training.rows.schema.schema import parse_schema

RANDOM = np.random.default_rng(3)
X = RANDOM.uniform(0, 1, (900, 2))
HEAVY = X[:, 1] > 0.5  # of the heavy rows the large ones are yes, of the light ones the small ones
Y = np.where((X[:, 0] > 0.5) == HEAVY, "yes", "no")
WEIGHTS = np.where(HEAVY, 3.0, 0.1)
RULE = Columns(low=0, high=1, classes=["no", "yes"], records=900, weight={"most": 3}, ignore=["x1"])


def learner(**more) -> LazyBB:
    return LazyBB(**{"schema": RULE, "epsilon": 4, "rounds": 5, **more})


def test_a_fit_goes_by_what_rows_weigh():
    """By the first column alone the rows say nothing; the heavy ones do."""
    model = learner().fit(X, Y, sample_weight=WEIGHTS)
    assert model.score(X, Y, sample_weight=WEIGHTS) > 0.8
    assert model.score(X[HEAVY], Y[HEAVY]) > 0.9
    assert model.predict_proba(X[HEAVY & (X[:, 0] > 0.7)])[:, 1].min() > 0.5
    free = unprotected(learner(), X, Y, WEIGHTS)
    assert np.mean(free.predict(X[:, :1]) == np.where(X[:, 0] > 0.5, "yes", "no")) > 0.95


def test_the_most_bounds_what_is_drawn_and_claimed_of_the_plan():
    model = learner().fit(X, Y, sample_weight=WEIGHTS)
    assert all(int(release.sensitivity) % PARTS == 0 for release, _ in model.recipe_.plan.runs)
    alike = learner(schema=Columns(low=0, high=1, classes=["no", "yes"], records=900, ignore=["x1"])).fit(X, Y)
    moves = [[int(release.sensitivity) for release, _ in each.recipe_.plan.runs] for each in (model, alike)]
    assert [moves[0][at] for at in (0, -1)] == [PARTS * moves[1][at] for at in (0, -1)]  # counts
    assert model.spent_.epsilon == alike.spent_.epsilon


@pytest.mark.parametrize("given", [list, pa.array, np.asarray, lambda each: pa.chunked_array([each[:9], each[9:]])])
def test_weights_in_whatever_they_are_held_are_the_column_of_a_schema_file(given):
    rows = pa.table({"a": X[:, 0], "target": Y, "w": WEIGHTS})
    file = Columns(low=0, high=1, classes=["no", "yes"], records=900, weight={"column": "w", "most": 3}).text(
        ["a", "w"]
    )
    schema = parse_schema(file.encode())
    beside = DPEBMClassifier(schema=schema).declared(rows.select(["a"]), Y, given(WEIGHTS))[2]
    within = DPEBMClassifier(schema=schema).declared(rows.select(["a", "w"]), Y)[2]
    assert np.array_equal(beside.class_counts(0), within.class_counts(0))
    assert beside.class_counts(0).sum() == np.rint(WEIGHTS / 3 * PARTS).sum()


def test_no_most_is_ever_taken_from_the_rows():
    bare = learner(schema=Columns(low=0, high=1, classes=["no", "yes"]))
    with pytest.raises(InputError, match=r'never from these rows.*Columns\(..., weight=\{"most": 10\}\)') as refused:
        bare.fit(X, Y, sample_weight=WEIGHTS)
    remedy = eval(str(refused.value).split("Columns(..., ")[1].split(")")[0].removeprefix("weight="))
    LazyBB(schema=Columns(low=0, high=1, classes=["no", "yes"], weight=remedy)).fit(X, Y, sample_weight=WEIGHTS)
    with pytest.raises(SchemaError, match="weight"):
        learner(schema=Columns(low=0, high=1, classes=["no", "yes"], weight={})).fit(X, Y, sample_weight=WEIGHTS)


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        (WEIGHTS + 0.01, "a weight above the most, 3"),
        (-WEIGHTS, "a weight below 0"),
        (np.where(HEAVY, np.nan, 1), "nothing where a weight must stand"),
        (WEIGHTS[1:], "899 weights for 900 rows"),
        (WEIGHTS[:, None] * np.ones(2), "1d array"),
        ([{}] * 900, "sample_weight"),
        (None, "fit may have it as sample_weight=..."),
    ],
)
def test_what_is_no_weight_is_refused_and_nothing_is_spent(weights, says):
    model = learner(account=Account(5))
    with pytest.raises(ValueError, match=says):
        model.fit(X, Y, sample_weight=weights)
    assert model.account.fits == 0


def test_weights_are_said_once_and_under_add_remove():
    rows = {"x0": X[:, 0], "sample_weight": WEIGHTS}
    model = learner(schema=Columns(low=0, high=1, classes=["no", "yes"], weight={"most": 3}))
    with pytest.raises(InputError, match="X has what a row weighs in its column 'sample_weight'; leave one"):
        model.fit(rows, Y, sample_weight=WEIGHTS)
    assert model.fit(rows, Y).feature_names_in_.tolist() == ["x0"]
    with pytest.raises(InputError, match="weight: needs add-remove"):
        learner(relation="replace-one").fit(X, Y, sample_weight=WEIGHTS)
    with pytest.raises(InputError, match="has no proof with them"):
        learner(reweighting="projected").fit(X, Y, sample_weight=WEIGHTS)


def test_a_number_is_learnt_by_weight():
    rule = Columns(low=0, high=1, target_range=(0, 1), records=900, weight={"most": 3}, ignore=["x1"])
    numbers = np.where(HEAVY, X[:, 0], 1 - X[:, 0])
    model = AutoRegressor(schema=rule, epsilon=4).fit(X, numbers, sample_weight=WEIGHTS)
    assert model.score(X, numbers, sample_weight=WEIGHTS) > 0.5


def test_pipelines_searches_and_cross_validation_hand_weights_on():
    account = Account(20)
    model = make_pipeline(FunctionTransformer(), learner(account=account, epsilon=2))
    assert model.fit(X, Y, lazybb__sample_weight=WEIGHTS).score(X[HEAVY], Y[HEAVY]) > 0.8
    search = GridSearchCV(model[-1], {"rounds": [3, 5]}, cv=RowFolds(2), error_score="raise")
    assert search.fit(X, Y, sample_weight=WEIGHTS).score(X[HEAVY], Y[HEAVY]) > 0.8
    cross_val_score(model[-1], X, Y, cv=RowFolds(2), params={"sample_weight": WEIGHTS}, error_score="raise")
    assert account.fits == 1 + 5 + 2


def test_metadata_routing_hands_weights_to_who_asked_for_them():
    with config_context(enable_metadata_routing=True):
        model = learner(account=Account(20), epsilon=2)
        with pytest.raises(UnsetMetadataPassedError, match=r"set_fit_request"):
            make_pipeline(FunctionTransformer(), model).fit(X, Y, sample_weight=WEIGHTS)
        asks = clone(model.set_fit_request(sample_weight=True).set_score_request(sample_weight=True))
        whole = make_pipeline(FunctionTransformer(), asks).fit(X, Y, sample_weight=WEIGHTS)
        assert whole.score(X, Y, sample_weight=WEIGHTS) > 0.8
        other = learner(account=Account(20), epsilon=2).set_fit_request(sample_weight="w")
        make_pipeline(FunctionTransformer(), other).fit(X, Y, w=WEIGHTS)


def test_a_dataset_must_weigh_rows_as_the_fit_did(tmp_path):
    pyarrow.csv.write_csv(pa.table({"x0": X[:, 0], "w": WEIGHTS, "target": Y}), tmp_path / "rows.csv")
    home, total = Home.init(place(tmp_path / "home")), Budget.of("9", "0.000001")
    rule = Columns(low=0, high=1, classes=["no", "yes"], records=900, weight={"column": "w", "most": 3})
    (tmp_path / "schema.yaml").write_text(rule.text(["x0", "w"]))
    register(home, "same", tmp_path / "rows.csv", tmp_path / "schema.yaml", total, Relation.ADD_REMOVE, "record")
    model = learner(schema=Columns(low=0, high=1, classes=["no", "yes"], records=900, weight={"most": 3}))
    model.fit(X[:, :1], Y, sample_weight=WEIGHTS)
    assert model.publish(tmp_path / "home", "same")["state"] == "issued"
    heavier = learner(schema=Columns(low=0, high=1, classes=["no", "yes"], records=900, weight={"most": 4}))
    heavier.fit(X[:, :1], Y, sample_weight=WEIGHTS)
    with pytest.raises(InputError, match="declares `weight` otherwise"):
        heavier.publish(tmp_path / "home", "same")
