"""Learners as scikit-learn estimators: check_estimator, frames and arrays, pipelines and cross-validation that pays."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections import defaultdict
from contextlib import suppress
from decimal import Decimal
from importlib import import_module
from importlib.util import find_spec
from unittest import SkipTest

import numpy as np
import pyarrow as pa
import pytest
from quick_learners import few, quick_auto  # noqa: F401  a fixture
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks, get_tags
from sklearn.utils.estimator_checks import check_estimator

from accountant.errors import DataError
from dpserve_verify.errors import BudgetRefused, InputError
from training.learners import LEARNERS
from training.notebook import CHECKS, CHECKS_OF_MANY, Account, Columns, RowFolds, SpendWarning, uniform_schema
from training.session.session import Session

pytestmark = pytest.mark.slow

EVERY = pytest.mark.parametrize("kind", LEARNERS.values(), ids=LEARNERS)
WIDE = {"low": -5, "high": 5, "records": 100}


def data(rows: int = 300, seed: int = 0):
    random = np.random.default_rng(seed)
    X = random.uniform(0, 1, (rows, 3))
    return X, (X[:, 0] + random.normal(0, 0.1, rows) > 0.5).astype(int)


@pytest.fixture(autouse=True)
def quick(request):
    """Of scikit-learn's own checks alone `auto` learns as long as it does by default."""
    if "_check_" not in request.function.__name__:
        request.getfixturevalue("quick_auto")


def make(kind, **parameters):
    """A learner that is quick; of check_estimator alone it learns as long as it does by default."""
    rule = Columns(low=0, high=1, classes=[0, 1], records=300)
    return kind(**{"schema": rule, "epsilon": "20", **few(kind()), **parameters})


def of_many(kind) -> bool:
    """Whether the learner takes more than two classes."""
    try:
        kind(schema=uniform_schema(1, 0, 1, [0, 1, 2], 9)).public_facts()
        kind().check(kind(schema=uniform_schema(1, 0, 1, [0, 1, 2], 9)).public_facts())
    except InputError:
        return False
    return True


MANY = {name: kind for name, kind in LEARNERS.items() if of_many(kind)}
EVERY_OF_MANY = pytest.mark.parametrize("kind", MANY.values(), ids=MANY)
CHANCE = [name for name, why in CHECKS.items() if "noise" in why.lower()]


def checked(kind, classes, listed):
    """check_estimator's findings as {status: names}. A hundred is the most that an account can have: enough for all its
    fits.
    """
    estimator = kind(schema=Columns(classes=classes, **WIDE), epsilon="4", account=Account(100, rowwise=True))
    found = defaultdict(set)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for each in check_estimator(estimator, on_fail=None, expected_failed_checks=listed):
            found[each["status"]].add(each["check_name"] if each["status"] != "failed" else repr(each))
    return found


@EVERY
def test_check_estimator_passes_but_for_the_listed_exceptions(kind):
    """And every exception that is not one of chance is needed."""
    found = checked(kind, (0, 1), CHECKS)
    assert found["failed"] == set()
    assert found["xfail"] | set(CHANCE) | found["skipped"] & set(CHECKS) == set(CHECKS)  # skipped: without pandas
    assert len(found["passed"]) >= 40


@EVERY_OF_MANY
def test_check_estimator_with_more_than_two_classes(kind):
    found = checked(kind, (0, 1, 2, 3), CHECKS_OF_MANY)
    assert found["failed"] == set()
    assert found["xfail"] >= set(CHECKS_OF_MANY) - set(CHECKS)
    assert len(found["passed"]) >= 38


@EVERY_OF_MANY
def test_three_classes_have_a_score_and_a_chance_each(kind):
    X, y = data(600)
    labels = np.array(["high", "low", "middle"])
    y = labels[np.digitize(X[:, 0], [0.33, 0.67])]
    model = make(kind, schema=Columns(0, 1, labels, records=600)).fit(X, y)
    scores, chances = model.decision_function(X), model.predict_proba(X)
    assert scores.shape == chances.shape == (600, 3)
    assert chances.sum(axis=1) == pytest.approx(1, abs=1e-12)
    assert (labels[scores.argmax(axis=1)] == model.predict(X)).all()
    assert (scores.argsort(axis=1) == chances.argsort(axis=1)).all()
    assert (model.predict(X) == y).mean() > 0.8
    assert get_tags(model).classifier_tags.multi_class
    assert not get_tags(make(kind)).classifier_tags.multi_class


@EVERY
@pytest.mark.statistical
@pytest.mark.parametrize("name", CHANCE)
def test_a_check_listed_for_its_noise_does_fail(kind, name):
    """At epsilon .05 two fits of 30 rows agree in all answers about half of the time: forty times in a row, 1e-12."""
    for _ in range(40):
        try:
            estimator = kind(schema=Columns(classes=(0, 1), **WIDE), epsilon="0.05", account=Account(100, rowwise=True))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                getattr(estimator_checks, name)(kind.__name__, estimator)
        except AssertionError:
            return
    pytest.fail(f"{name} passes after all")


@EVERY
@pytest.mark.parametrize("name", ["check_estimators_dtypes", "check_fit2d_1feature"])
def test_a_check_listed_for_its_labels_passes_where_they_are_declared(kind, name):
    estimator = kind(schema=Columns(classes=(1, 2), **WIDE), account=Account(100, rowwise=True))
    getattr(estimator_checks, name)(kind.__name__, estimator)


@EVERY_OF_MANY
@pytest.mark.parametrize("name", [name for name in CHECKS if name.startswith("check_sample_weights_")])
def test_a_check_listed_for_its_weights_passes_where_the_most_is_declared(kind, name):
    rule = Columns(classes=(0, 1, 2), weight={"most": 10}, **WIDE)
    with suppress(SkipTest if "pandas" in name and not find_spec("pandas") else ()):
        getattr(estimator_checks, name)(kind.__name__, kind(schema=rule, account=Account(100, rowwise=True)))


@EVERY
def test_attributes_after_fit(kind):
    X, y = data()
    model = make(kind).fit(X, y)
    assert model.n_features_in_ == 3
    assert not hasattr(model, "feature_names_in_")
    assert model.classes_.tolist() == [0, 1]
    assert model.classes_.dtype == np.int64
    assert model.spent_ == model.recipe_.claim
    assert Decimal("19") <= model.spent_.epsilon <= 20
    assert [feature.name for feature in model.schema_.features] == ["x0", "x1", "x2"]
    named = make(kind).fit(pa.table({"a": X[:, 0], "b": X[:, 1]}), y)
    assert named.feature_names_in_.tolist() == ["a", "b"]


@EVERY
@pytest.mark.parametrize("classes", [["no", "yes"], [-1, 1], [7, 3], np.array([0, 1]), np.array(["a", "b"])], ids=repr)
def test_labels_of_every_kind_come_back_sorted(kind, classes):
    X, y = data()
    model = make(kind, schema=Columns(0, 1, classes, records=300)).fit(X, np.asarray(classes)[y])
    assert model.classes_.tolist() == sorted(classes)
    assert (model.predict(X) == np.asarray(classes)[y]).mean() > 0.7


@EVERY
def test_whole_floats_are_whole_numbers(kind):
    X, y = data()
    assert make(kind).fit(X, y.astype(float)).predict(X).dtype == np.int64


@EVERY
def test_scores_rank_and_agree_with_chances_and_labels(kind):
    X, y = data()
    model = make(kind).fit(X, y)
    scores, chances, labels = model.decision_function(X), model.predict_proba(X), model.predict(X)
    assert scores.shape == (300,)
    assert scores.dtype == chances.dtype == np.float64
    assert (labels == (scores > 0)).all()
    assert chances.sum(axis=1) == pytest.approx(1, abs=1e-12)
    order = np.argsort(scores)
    assert (np.diff(chances[order, 1]) >= 0).all()
    with config_context(transform_output="polars"):
        assert isinstance(model.predict(X), np.ndarray)


class Frame:
    """As pandas and polars hand their frames over: an index that is no column after a split, and texts as views."""

    def __init__(self, columns):
        self.columns = list(columns)
        self.table = pa.table({**columns, "__index_level_0__": np.arange(len(next(iter(columns.values()))))})
        for place, field in enumerate(self.table.schema):
            if pa.types.is_string(field.type):
                self.table = self.table.set_column(place, field.name, self.table[place].cast(pa.string_view()))

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


def as_pandas(columns):
    frame = import_module("pandas").DataFrame(columns)
    return frame.set_axis(frame.index[::-1] * 3)


FRAMES = {"arrow": pa.table, "mapping": dict, "handed over": Frame}
if find_spec("polars"):  # none of these is needed by dpserve, so that they are tested where they happen to be
    FRAMES["polars"] = lambda columns: import_module("polars").DataFrame(columns)
if find_spec("pandas"):
    FRAMES["pandas"] = as_pandas


@EVERY
@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_frames_are_read_by_name_and_arrays_by_place(kind, frame):
    X, y = data()
    texts = np.where(X[:, 2] > 0.5, "red", "blue")
    rule = Columns(0, 1, [0, 1], columns={"c": {"type": "categorical", "values": ["red", "blue"]}})
    columns = {"a": X[:, 0], "b": X[:, 1], "c": texts.astype(object)}
    model = make(kind, schema=rule).fit(frame(columns), y)
    expected = model.predict_proba(frame(columns))
    shuffled = {"c": columns["c"], "other": X[:, 2], "b": columns["b"], "a": columns["a"]}
    assert (model.predict_proba(frame(shuffled)) == expected).all()
    array = np.column_stack(list(columns.values()))
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        assert (model.predict_proba(array) == expected).all()
    with pytest.raises(DataError, match="columns .'c'.: in the schema but not in X"):
        model.predict(frame({"a": X[:, 0], "b": X[:, 1]}))


@EVERY
def test_every_form_of_an_array_gives_the_same_answers(kind):
    X, y = data()
    X = (X * 20).round()
    model = make(kind, schema=Columns(0, 20, [0, 1])).fit(X.tolist(), y.tolist())
    expected = model.decision_function(X)
    forms = (X.tolist(), np.asfortranarray(X), X.astype(np.int8), X.astype(np.float32), X.astype(object), X[::-1][::-1])
    for form in forms:
        assert (model.decision_function(form) == expected).all()
    one_by_one = np.concatenate([model.decision_function(X[i : i + 1]) for i in range(20)])
    assert (one_by_one == expected[:20]).all()


@EVERY
def test_not_fitted_is_scikit_learns_own_error_and_ours(kind):
    for method in ("predict", "predict_proba", "decision_function"):
        for error in (NotFittedError, InputError):
            with pytest.raises(error, match="not fitted"):
                getattr(make(kind), method)(data()[0])


@EVERY
def test_a_fitted_model_travels_and_its_budget_does_not(kind):
    X, y = data()
    for account in (None, Account(60)):
        model = make(kind, account=account).fit(X, y)
        for twin in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
            assert (twin.predict_proba(X) == model.predict_proba(X)).all()
            assert twin.spent_ == model.spent_
        with pytest.raises(BudgetRefused):
            pickle.loads(pickle.dumps(model)).fit(X, y)


# ---- an account ------------------------------------------------------------------------------------------------------


@EVERY
def test_an_account_lets_an_estimator_fit_again_and_charges_every_fit(kind):
    X, y = data()
    account = Account("2")
    model = make(kind, epsilon="0.5", account=account)
    model.fit(X, y)
    first, once = model.ensemble_, account.spent
    assert model.fit(X, y).ensemble_ is not first
    assert 0 < once < account.spent <= 2
    assert account.fits == 2
    clone(model).fit(X, y)
    assert account.fits == 3


@EVERY
@pytest.mark.filterwarnings("ignore::training.notebook.PublicWarning")
def test_a_refusal_says_what_would_fit_and_that_fits(kind):
    X, y = data()
    account = Account("1", "0")
    model = make(kind, epsilon="0.75", delta="0", account=account).fit(X, y)
    kept = model.ensemble_
    with pytest.raises(
        BudgetRefused, match=r"0\.75 does not fit: epsilon 1, 1 fit: \d+ % of the budget used"
    ) as caught:
        model.fit(X, y)
    assert model.ensemble_ is kept
    assert account.fits == 1
    assert caught.value.would_fit >= Decimal("0.24")
    model.set_params(epsilon=caught.value.would_fit).fit(X, y)
    with pytest.raises(BudgetRefused, match="nothing more fits"):
        model.fit(X, y)


@EVERY
def test_an_account_is_charged_before_anything_is_drawn(kind, monkeypatch):
    X, y = data()
    account = Account("60")
    model = make(kind, account=account).fit(X, y)
    seen = []

    def cut(self, query, mechanism):
        seen.append(account.fits)
        raise KeyboardInterrupt

    monkeypatch.setattr(Session, "release", cut)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert seen == [2] == [account.fits]
    with pytest.raises(NotFittedError):  # no answers of the fit before under the recipe of this one
        model.predict(X)


@EVERY
@pytest.mark.parametrize(
    ("bad", "said"), [({"relation": "replace-one"}, "the account promises"), ({"delta": "0.00001"}, "the account has")]
)
def test_a_fit_that_is_no_matter_for_the_account_is_refused(kind, bad, said):
    account = Account("30")
    with pytest.raises(InputError, match=said):
        make(kind, account=account, **bad).fit(*data())
    assert account.fits == 0


@EVERY
def test_cross_validation_spends_from_the_account_and_stops_with_it(kind):
    X, y = data(600)
    account = Account("12", "0", rowwise=True)  # a function of each row stands before the learner
    model = make_pipeline(FunctionTransformer(np.sqrt), make(kind, epsilon="2", delta="0", account=account))
    scores = cross_val_score(model, X, y, cv=RowFolds(3), scoring="roc_auc", error_score="raise")
    assert scores.mean() > 0.6
    assert account.fits == 3
    assert Decimal("5.9") < account.spent <= 6
    with pytest.raises(BudgetRefused):
        cross_val_score(model, X, y, cv=RowFolds(5), error_score="raise")
    assert account.spent <= 12


@EVERY
def test_a_search_pays_for_every_candidate_fold_and_refit(kind):
    X, y = data()
    account = Account("20", "0")
    search = GridSearchCV(
        make(kind, delta="0", account=account), {"epsilon": ["1", "2"]}, cv=RowFolds(2), error_score="raise"
    )
    search.fit(X, y)
    assert account.fits == 5
    assert search.best_estimator_.account is account
    paid = 2 * 1 + 2 * 2 + int(search.best_params_["epsilon"])
    assert paid - Decimal("0.1") < account.spent <= paid


@EVERY
def test_other_processes_cannot_spend_from_an_account(kind):
    account = Account("20")
    with pytest.raises(BudgetRefused, match="another process"):
        pickle.loads(pickle.dumps(make(kind, account=account))).fit(*data())
    assert account.fits == 0


@EVERY
def test_cross_validation_without_an_account_says_that_it_adds_up(kind):
    X, y = data()
    with pytest.warns(SpendWarning, match="add up"):
        cross_val_score(make(kind), X, y, cv=RowFolds(2), error_score="raise")
    with warnings.catch_warnings():
        warnings.simplefilter("error", SpendWarning)
        make(kind).fit(X, y)
        make(kind).fit(X, y)
        clone(make(kind)).fit(X, y)
        cross_val_score(make(kind, account=Account(100, rowwise=True)), X, y, cv=RowFolds(2), error_score="raise")
