"""Folds that a row more or less changes by that row alone, and an account that takes no others."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.ensemble import BaggingClassifier
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold, cross_val_score

from dpserve_verify.errors import BudgetRefused, InputError
from training.learners import LazyBB
from training.notebook import Account, Columns, RowFolds

SCHEMA = Columns(low=0, high=1, classes=["no", "yes"], records=300)


def rows(count: int = 300, seed: int = 0):
    random = np.random.default_rng(seed)
    X = random.random((count, 3)).round(3)
    return X, np.where(X[:, 0] > 0.5, "yes", "no")


def learner(**account) -> LazyBB:
    relation = account.get("relation", "add-remove")
    return LazyBB(schema=SCHEMA, epsilon="0.2", rounds=3, relation=relation, account=Account("5", **account))


def training_sets(splitter, X) -> list[Counter]:
    y = np.where(X[:, 0] > 0.5, "yes", "no")
    return [Counter(map(tuple, X[train])) for train, _ in splitter.split(X, y)]


def moved(splitter, X, more) -> int:
    """The most rows that enter or leave one training set when one row is added at `more`'s place."""
    place, row = more
    pairs = zip(training_sets(splitter, X), training_sets(splitter, np.insert(X, place, row, axis=0)), strict=True)
    return max(sum(((one - other) + (other - one)).values()) for one, other in pairs)


@pytest.mark.parametrize("place", [0, 17, 150, 300])
@pytest.mark.parametrize("folds", [2, 5, 10])
def test_one_row_more_changes_each_fold_by_that_row_at_most(folds, place):
    X, _ = rows()
    assert moved(RowFolds(folds), X, (place, [0.25, 0.5, 0.75])) <= 1
    assert moved(RowFolds(folds), X, (place, X[40])) <= 1  # a twin


@pytest.mark.parametrize("splitter", [KFold(5), StratifiedKFold(5), KFold(5, shuffle=True, random_state=0)])
def test_splitters_by_place_or_class_move_others(splitter):
    X, _ = rows()
    assert moved(splitter, X, (300, [0.25, 0.5, 0.75])) > 1


def test_folds_are_a_partition_of_about_equal_parts_and_another_seed_gives_another():
    X, y = rows(3000)
    held_out = [test for _, test in RowFolds(5).split(X, y)]
    assert sorted(np.concatenate(held_out).tolist()) == list(range(3000))
    assert all(abs(len(test) - 600) < 6 * np.sqrt(3000 * 0.16) for test in held_out)
    for (train, test), again in zip(RowFolds(5).split(X, y), held_out, strict=True):
        assert (test == again).all()
        assert set(train) == set(range(3000)) - set(test)
    other = [test for _, test in RowFolds(5, seed=1).split(X, y)]
    assert any(len(a) != len(b) or (a != b).any() for a, b in zip(other, held_out, strict=True))


def test_the_same_rows_fall_into_the_same_folds_in_whatever_they_are_held():
    X, y = rows()
    columns = dict(zip("abc", X.T, strict=True))
    expected = [test.tolist() for _, test in RowFolds(4).split(X, y)]
    for held in (
        pa.table(columns),
        columns,
        X.tolist(),
        pa.table({name: each.astype(np.float32) for name, each in columns.items()}),
    ):
        assert [test.tolist() for _, test in RowFolds(4).split(held, y)] == expected


def test_the_rows_of_one_person_stay_together():
    X, y = rows()
    people = np.repeat(np.arange(60), 5)
    for train, test in RowFolds(3).split(X, y, groups=people):
        assert not set(people[train]) & set(people[test])


@pytest.mark.parametrize("bad", [{"n_splits": 1}, {"n_splits": True}, {"n_splits": 2.0}, {"by": "class"}])
def test_bad_folds_are_refused(bad):
    with pytest.raises(InputError):
        RowFolds(**bad)


def test_an_account_adds_up_folds_and_the_whole():
    X, y = rows()
    for held in (X, pa.table(dict(zip("abc", X.T, strict=True)))):
        model = learner()
        search = GridSearchCV(model, {"epsilon": ["0.1", "0.2"]}, cv=RowFolds(3), error_score="raise").fit(held, y)
        cross_val_score(model, held, y, cv=RowFolds(4, seed=7), error_score="raise")
        assert search.best_estimator_.account.fits == 2 * 3 + 1 + 4
        with pytest.raises(InputError, match="not the rows"):
            model.fit(held[1:], y[1:])
        assert model.account.fits == 11


@pytest.mark.parametrize("cv", [3, KFold(3), KFold(3, shuffle=True), StratifiedKFold(3)])
def test_an_account_refuses_folds_that_move_rows_and_says_which_do_not(cv):
    model = learner()
    with pytest.raises(InputError, match="RowFolds"):
        cross_val_score(model, *rows(), cv=cv, error_score="raise")
    assert model.account.fits == 0  # what is about to be fitted is looked at before


def test_an_account_refuses_weights_that_are_drawn_from_all_rows():
    """Where a weight's most is declared, scikit-learn repeats rows by their weights; where none is, none is taken."""
    X, y = rows()
    about = {"low": 0, "high": 1, "classes": [0, 1], "records": 300}
    bare = learner().set_params(schema=Columns(**about))
    with pytest.raises(InputError, match="how much one row may weigh at most"):
        BaggingClassifier(bare, n_estimators=3, random_state=0).fit(X, y == "yes")
    weighed = learner().set_params(schema=Columns(**about, weight={"most": 10}))
    with pytest.raises(InputError, match="weigh otherwise here"):
        BaggingClassifier(weighed, n_estimators=3, random_state=0).fit(X, y == "yes")
    assert (bare.account.fits, weighed.account.fits) == (0, 1)


def test_an_account_refuses_rows_that_are_repeated():
    X, y = rows()
    model = learner()
    model.fit(X, y)
    again = np.random.default_rng(0).integers(0, 300, 300)
    with pytest.raises(InputError, match="repeat rows"):
        clone(model).fit(X[again], y[again])
    assert model.account.fits == 1


def test_rows_may_be_weighed_again_alike_and_otherwise_where_it_is_vouched_for():
    X, y = rows()
    about = {"schema": Columns(low=0, high=1, classes=["no", "yes"], records=300, weight={"most": 10})}
    model = learner().set_params(**about)
    for weights in (X[:, 0], X[:, 0]):
        clone(model).fit(X, y, weights)
    with pytest.raises(InputError, match="weigh otherwise here"):
        clone(model).fit(X, y, X[:, 1])
    vouched = learner(rowwise=True).set_params(**about)
    for weights in (X[:, 0], X[:, 1]):
        clone(vouched).fit(X, y, weights)
    assert (model.account.fits, vouched.account.fits) == (2, 2)


@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
def test_each_relation_has_its_folds(relation):
    """Another row in one's place may fall into another fold by its content, and the numbers of rows are public."""
    right, wrong = ("content", "position") if relation == "add-remove" else ("position", "content")
    X, y = rows(200)
    half = Columns(low=0, high=1, classes=["no", "yes"])
    model = LazyBB(schema=half, epsilon="0.2", rounds=3, relation=relation, account=Account("5", relation=relation))
    with pytest.raises(InputError, match=f"RowFolds\\(by='{right}'\\)"):
        cross_val_score(model, X, y, cv=RowFolds(2, by=wrong), error_score="raise")
    assert model.account.fits == 0
    cross_val_score(model, X, y, cv=RowFolds(2, by=right), error_score="raise")
    assert model.account.fits == 2


def test_whoever_says_so_may_split_by_a_rule_of_their_own():
    model = learner(rowwise=True)
    cross_val_score(model, *rows(), cv=3, error_score="raise")
    assert model.account.fits == 3
    with pytest.raises(BudgetRefused):
        cross_val_score(model.set_params(epsilon="5"), *rows(), cv=3, error_score="raise")
