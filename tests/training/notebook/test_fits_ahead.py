"""A search and a cross-validation say their whole price before they begin, and begin only where all of it is paid."""

from __future__ import annotations

import re
from decimal import Decimal

import joblib
import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    KFold,
    RandomizedSearchCV,
    cross_val_predict,
    cross_val_score,
    validation_curve,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from dpserve.errors import BudgetRefused
from dpserve.learners import Account, Columns, DPEBMClassifier, LazyBB, RowFolds
from dpserve_verify.errors import InputError

X = np.random.default_rng(0).uniform(0, 1, (300, 3)).round(3)
Y = np.where(X[:, 0] > 0.5, "yes", "no")
RULE = Columns(low=0, high=1, bins=8, classes=["no", "yes"], records=300)
ROUNDS = {"rounds": [3, 5]}


def learner(total="5", epsilon="0.3", **more) -> LazyBB:
    relation = more.get("relation", "add-remove")
    account = more.pop("account", None) or Account(total, relation=relation)
    return LazyBB(**{"schema": RULE, "epsilon": epsilon, "account": account, **more})


def piped(model) -> object:
    """As people write it: columns in another order, and one on another scale."""
    root = FunctionTransformer(np.sqrt, feature_names_out="one-to-one")
    return make_pipeline(ColumnTransformer([("root", root, [2])], remainder="passthrough"), model)


def words(capsys) -> list[tuple[str, int, Decimal]]:
    """Who said the price, of how many fits, and what it is."""
    lines = re.findall(r"^(\w+): (\d+) fits \(.*\) cost epsilon (\S+) together; then", capsys.readouterr().err, re.M)
    return [(who, int(fits), Decimal(epsilon)) for who, fits, epsilon in lines]


def search(model, **more):
    return GridSearchCV(model, ROUNDS, cv=RowFolds(3), **more)


CALLS = {
    "GridSearchCV": (lambda model: search(model).fit(X, Y), 7),
    "RandomizedSearchCV": (lambda model: RandomizedSearchCV(model, ROUNDS, n_iter=2, cv=RowFolds(2)).fit(X, Y), 5),
    "cross_validate": (lambda model: cross_val_score(model, X, Y, cv=RowFolds(4)), 4),
    "cross_val_predict": (lambda model: cross_val_predict(model, X, Y, cv=RowFolds(2)), 2),
    "validation_curve": (
        lambda model: validation_curve(model, X, Y, param_name="rounds", param_range=[3, 5], cv=RowFolds(2)),
        4,
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_is_said_is_what_is_spent_then(name, capsys):
    """At one price for each fit to the last digit; and once more for the same call again."""
    call, fits = CALLS[name]
    model = learner(reweighting="scheduled")
    call(model)
    [(who, count, epsilon)] = words(capsys)
    assert (who, count, model.account.fits) == (name, fits, fits)
    assert (
        epsilon * Decimal("0.97") <= model.account.spent <= epsilon
    )  # candidates differ by the shares of their rounds
    if name == "cross_validate":
        assert model.account.spent == epsilon
    call(model)
    assert [each[:2] for each in words(capsys)] == [(name, fits)]
    assert model.account.fits == 2 * fits


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("delta", ["0", "0.000001"])
def test_what_the_account_does_not_cover_whole_does_not_begin_and_what_would_fit_does(name, delta, capsys):
    """By default scikit-learn makes NaN of a refusal, after it has spent on the fits before."""
    call, fits = CALLS[name]
    model = learner(epsilon="0.4", delta=delta, account=Account("0.5", delta))
    with pytest.raises(BudgetRefused, match=rf"{name}: {fits} fits .* does not fit: epsilon 0.5, 0 fits") as refused:
        call(model)
    assert (model.account.fits, words(capsys)) == (0, [])
    assert 0 < refused.value.would_fit < Decimal("0.4")
    call(model.set_params(epsilon=refused.value.would_fit))
    assert model.account.fits == fits
    if delta == "0":  # sums: some thousandths below what is there for each
        assert Decimal("0.5") - fits * Decimal("0.006") < model.account.spent <= Decimal("0.5")


def test_a_pipeline_is_searched_as_its_learner_is(capsys):
    """Which rows a fit gets is asked of the rows that the Pipeline was given."""
    model = piped(learner("2"))
    found = GridSearchCV(model, {"lazybb__rounds": [3, 5]}, cv=RowFolds(3), scoring="roc_auc").fit(X, Y)
    account = model[-1].account
    assert found.best_score_ > 0.7
    assert (found.best_estimator_[-1].account, account.fits) == (account, 7)
    assert [each[:2] for each in words(capsys)] == [("GridSearchCV", 7)]
    model.fit(X, Y)
    with pytest.raises(InputError, match="not the rows"):
        model.fit(X[1:], Y[1:])
    with pytest.raises(BudgetRefused, match=r"for each would fit$"):
        GridSearchCV(model, {"lazybb__rounds": [3, 5]}, cv=RowFolds(9)).fit(X, Y)
    with pytest.raises(BudgetRefused, match="fewer of them, or less epsilon for each$") as refused:
        GridSearchCV(model, {"lazybb__epsilon": ["0.5", "1"]}, cv=RowFolds(3)).fit(X, Y)
    assert (refused.value.would_fit, account.fits) == (None, 8)


def test_learners_may_be_candidates_themselves(capsys):
    account = Account("3")
    model = piped(learner(account=account, rounds=3))
    kinds = [learner(account=account, rounds=3), DPEBMClassifier(schema=RULE, epsilon="0.2", account=account)]
    GridSearchCV(model, {"lazybb": kinds}, cv=RowFolds(2)).fit(X, Y)
    [(_, count, epsilon)] = words(capsys)
    assert count == account.fits == 5
    assert account.spent <= epsilon


def test_each_stage_of_a_halving_search_is_said(capsys):
    model = learner(epsilon="0.1")
    fewer = {"resource": "rounds", "max_resources": 8, "min_resources": 4, "factor": 2}
    HalvingGridSearchCV(model, {"density": [0.4, 0.6]}, cv=RowFolds(2), **fewer).fit(X, Y)
    assert [count for _, count, _ in words(capsys)] == [5, 3]
    assert model.account.fits == 4 + 2 + 1


def test_the_public_number_of_rows_of_each_fit_counts():
    """Under replace-one it is a fold's own; a learner by its own rule has other rounds for more rows."""
    rule = Columns(low=0, high=1, bins=8, classes=["no", "yes"])
    account = Account("5", "0", relation="replace-one")
    model = learner(account=account, relation="replace-one", schema=rule, delta=0)
    with pytest.raises(InputError, match=r"RowFolds\(by='position'\)"):
        search(model).fit(X, Y)
    assert account.fits == 0
    GridSearchCV(model, {"density": [0.5]}, cv=RowFolds(3, by="position")).fit(X, Y)
    assert account.fits == 4


def test_what_cannot_be_paid_for_is_refused_before_the_first_fit():
    model = learner()
    for folds in (3, KFold(3), list(KFold(3).split(X))):
        with pytest.raises(InputError, match="RowFolds"):
            GridSearchCV(model, ROUNDS, cv=folds).fit(X, Y)
    with pytest.raises(InputError, match="standardscaler .StandardScaler. is fitted to the rows"):
        search(make_pipeline(StandardScaler(), model)).set_params(param_grid={"lazybb__rounds": [3]}).fit(X, Y)
    with pytest.raises(BudgetRefused, match="the fits of GridSearchCV would run in other processes"):
        search(model, n_jobs=2).fit(X, Y)
    with joblib.parallel_config(n_jobs=2), pytest.raises(BudgetRefused, match="in other processes"):
        search(model).fit(X, Y)
    assert model.account.fits == 0
    with joblib.parallel_config("threading", n_jobs=2):
        search(model).fit(X, Y)
    GridSearchCV(model, ROUNDS, cv=list(RowFolds(3).split(X))).fit(X, Y)
    assert model.account.fits == 14
