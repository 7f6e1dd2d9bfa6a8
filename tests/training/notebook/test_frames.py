"""A page of ordinary scikit-learn code, by whatever frame there is; and what `Columns.of` makes of its columns."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from importlib import import_module
from importlib.util import find_spec

import joblib
import numpy as np
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.inspection import permutation_importance
from sklearn.metrics import classification_report
from sklearn.model_selection import GridSearchCV, cross_validate, train_test_split
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

from dpserve.learners import Account, Columns, LazyBB, RowFolds

ROWS = 800
RANDOM = np.random.default_rng(5)
DAYS = RANDOM.integers(0, 1000, ROWS)
BEGIN = date(2020, 1, 1)
DATES = [BEGIN + timedelta(days=int(day)) for day in DAYS]
Y = np.where(DAYS > 500, "late", "early")
COLUMNS = {
    "age": RANDOM.integers(18, 90, ROWS),
    "income": RANDOM.uniform(10_000, 90_000, ROWS),
    "town": RANDOM.choice(["Bonn", "Ulm"], ROWS),
    "member": RANDOM.random(ROWS) > 0.5,
    "since": np.array([datetime.combine(day, time(12)) for day in DATES], "datetime64[us]"),
    "day": DATES,
    "german": [f"{day:%d.%m.%Y}" for day in DATES],
}
LIBRARIES = [name for name in ("pandas", "polars") if find_spec(name)]  # none is needed by dpserve


def frame(library: str, columns=COLUMNS):
    return pa.table(columns) if library == "pyarrow" else import_module(library).DataFrame(columns)


@pytest.mark.parametrize("library", ["pyarrow", *LIBRARIES])
def test_days_are_proposed_however_they_are_held_and_learnt_from_once_they_are_bounded(library):
    rule = Columns.of(frame(library))
    ends = {"range": [..., ...]}
    assert (rule.columns["since"], rule.columns["day"]) == ({"type": "datetime", **ends}, {"type": "date", **ends})
    assert rule.columns["german"] == {"type": "date", "written": ["DD.MM.YYYY"], **ends}
    assert rule.columns["member"] == {"type": "boolean"}
    assert rule.columns["town"] == {"type": "categorical", "values": ...}
    assert rule.ignore == ()
    for name in ("since", "day", "german"):
        first, last = BEGIN, datetime(2022, 12, 31, 23, 59, 59)
        declared = {
            **rule.columns[name],
            "range": [datetime.combine(first, time()) if name == "since" else first, last],
        }
        alone = frame(library, {name: COLUMNS[name]})
        model = LazyBB(schema=Columns(classes=["early", "late"], columns={name: declared}), epsilon=4).fit(alone, Y)
        assert model.score(alone, Y) > 0.9
        assert model.schema_.only.classes == ("early", "late")


def test_what_no_feature_can_be_made_of_is_left_out_and_targets_are_proposed_by_their_type():
    table = pa.table({
        "length": pa.array([1, 2], pa.duration("s")), "list": [[1], [2]], "x": ["x", "y"], "amount": [0.5, 1.5],
        "yes": [True, False],
    })  # fmt: skip
    rule = Columns.of(table, target="amount")
    assert rule.ignore == ("length", "list")
    assert rule.columns["x"] == {"type": "categorical", "values": ...}  # both may mean yes
    assert (rule.target_range, rule.classes) == ((..., ...), None)
    assert Columns.of(table, target="yes").classes == (False, True)
    with pytest.raises(Exception, match=r"where `\.\.\.` stands: x, target_range"):
        rule.schema(["length", "list", "x", "yes"])


@pytest.mark.parametrize("library", ["array", *LIBRARIES])
def test_a_page_of_ordinary_code(library, tmp_path):
    """As it is written everywhere: split, ColumnTransformer, Pipeline, cross-validation, search, report, joblib."""
    names = ["age", "income", "town", "since"]
    places = range(4) if library == "array" else names
    if library == "array":
        X = np.column_stack([COLUMNS["age"], COLUMNS["income"], COLUMNS["town"].astype(object), DATES])
    else:
        X = frame(library, {name: COLUMNS[name] for name in names})
    _, income, town, _ = places
    log = FunctionTransformer(lambda amount: np.log(amount.astype(float)) if library == "array" else np.log(amount))
    encode = OneHotEncoder(categories=[["Bonn", "Ulm"]], sparse_output=False)
    steps = ColumnTransformer(
        [("log", log.set_params(feature_names_out="one-to-one"), [income]), ("town", encode, [town])],
        remainder="passthrough",
        verbose_feature_names_out=False,
    )
    if library != "array":
        steps.set_output(transform=library)
    made = ["income", "town_Bonn", "town_Ulm", "age", "since"] if library != "array" else [f"x{at}" for at in range(5)]
    kind, last = ("datetime", datetime(2023, 1, 1)) if library != "array" else ("date", date(2023, 1, 1))
    ranges = [("numeric", [9, 12]), ("numeric", [0, 1]), ("numeric", [0, 1]), ("numeric", [18, 90])]
    ranges.append((kind, [datetime(2020, 1, 1), last]))
    columns = {name: {"type": type_, "range": ends} for name, (type_, ends) in zip(made, ranges, strict=True)}
    account = Account(epsilon=6)
    learner = LazyBB(schema=Columns(classes=["early", "late"], columns=columns), epsilon=1, account=account)
    model = Pipeline([("columns", steps), ("learner", learner)])

    scores = cross_validate(model, X, Y, cv=RowFolds(3), scoring=["roc_auc", "accuracy"])
    assert scores["test_roc_auc"].min() > 0.8
    search = GridSearchCV(model, {"learner__rounds": [5, 10]}, cv=RowFolds(3), scoring="roc_auc").fit(X, Y)
    assert search.best_score_ > 0.8
    assert account.fits == 3 + 7
    fitted = search.best_estimator_
    if library != "array":
        assert fitted[:-1].get_feature_names_out().tolist() == made == fitted[-1].feature_names_in_.tolist()
    joblib.dump(fitted[-1], tmp_path / "model.joblib")
    again = joblib.load(tmp_path / "model.joblib")
    inputs = fitted[:-1].transform(X)
    assert (again.predict_proba(inputs) == fitted.predict_proba(X)).all()

    X_train, X_test, y_train, y_test = train_test_split(X, Y, test_size=0.25, random_state=0, stratify=Y)
    alone = clone(model).set_params(learner__account=None, learner__epsilon=2).fit(X_train, y_train)
    assert "late" in classification_report(y_test, alone.predict(X_test))
    assert alone.score(X_test, y_test) > 0.8
    if library == "pandas":
        moved = permutation_importance(alone, X_test, y_test, n_repeats=2, random_state=0).importances_mean
        assert moved.argmax() == names.index("since")


@pytest.mark.parametrize("library", [name for name in ("pandas",) if name in LIBRARIES] or ["pyarrow"])
def test_nullable_categorical_and_period_columns(library):
    late = DAYS > 500
    if library == "pyarrow":
        columns = {
            "level": pa.array(np.where(late, "hi", "lo")).dictionary_encode(),
            "count": pa.array(late, pa.int8()),
        }
        X, y = pa.table(columns), pa.array(late)
    else:
        pandas = import_module("pandas")
        X = pandas.DataFrame({
            "level": pandas.Categorical(np.where(late, "hi", "lo"), categories=["lo", "hi"], ordered=True),
            "count": pandas.array(late.astype(int), dtype="Int64"),
            "flag": pandas.array(late, dtype="boolean"),
            "month": pandas.PeriodIndex(pandas.to_datetime(DATES), freq="M"),
        })  # fmt: skip
        X.loc[3, ["count", "flag", "month"]] = [pandas.NA, pandas.NA, pandas.NaT]
        y = pandas.Series(late).astype("boolean")
    declared = {
        "level": {"type": "categorical", "values": ["lo", "hi"]},
        "count": {"type": "numeric", "range": [0, 2]},
        "flag": {"type": "boolean"},
        "month": {"type": "date", "range": [date(2020, 1, 1), date(2022, 12, 31)]},
    }
    proposed = Columns.of(X).columns
    for name in X.columns if library == "pandas" else X.column_names:
        kind = "datetime" if name == "month" else declared[name]["type"]
        assert proposed[name]["type"] == kind
        one = X[[name]] if library == "pandas" else X.select([name])
        rule = Columns(classes=[False, True], columns={name: declared[name]})
        assert LazyBB(schema=rule, epsilon=8).fit(one, y).score(one, y) > 0.9
