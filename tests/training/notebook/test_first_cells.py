"""What people type into a notebook's first cells works, or is refused in a sentence that says what to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import dpserve.learners
import training.learners
from accountant.errors import SchemaError
from accountant.home import Home
from dpserve.learners import Account, AutoClassifier, AutoRegressor, Columns, LazyBB, PublicWarning, RowFolds
from dpserve_verify.errors import BudgetRefused, InputError
from dpserve_verify.privacy.budget import Budget, Relation
from tests.helpers.ledgers import place
from training.datasets.datasets import register
from training.learners import LEARNERS

ROOT = Path(__file__).resolve().parents[3]
X = np.random.default_rng(1).uniform(0, 1, (400, 3))
Y = np.where(X[:, 0] > 0.5, "yes", "no")
UNIT = Columns(low=0, high=1, classes=["no", "yes"])
FRAME = pa.table({
    "age": X[:, 0] * 60, "town": np.where(X[:, 1] > 0.5, "Ulm", "Bonn"), "smoker": X[:, 2] > 0.5,
    "patient_id": np.arange(400), "ill": X[:, 0] > 0.5,
})  # fmt: skip


def test_completion_lists_the_learners():
    assert {"Account", "AutoClassifier", "AutoRegressor", "LazyBB"} <= set(dir(dpserve.learners))
    assert {type_.__name__ for type_ in map(LEARNERS.__getitem__, LEARNERS)} <= set(dir(training.learners))


def test_a_frame_proposes_the_rule_with_blanks_and_a_fit_names_what_is_blank():
    rule = Columns.of(FRAME, target="ill")
    text = """\
Columns(classes=(False, True), ignore=('patient_id',), columns={
    'age': {'type': 'numeric', 'range': [..., ...], 'bins': 32},
    'town': {'type': 'categorical', 'values': ...},
    'smoker': {'type': 'boolean'},
})"""
    assert repr(rule) == text
    people = FRAME.drop_columns(["ill"])
    with pytest.raises(SchemaError, match=r"where `\.\.\.` stands: age, town$"):
        LazyBB(schema=rule).fit(people, FRAME["ill"])
    said = eval(text.replace("[..., ...]", "[0, 90]").replace("'values': ...", "'values': ['Bonn', 'Ulm']"))
    model = LazyBB(schema=said, epsilon=4).fit(people, FRAME["ill"])
    assert model.feature_names_in_.tolist() == ["age", "town", "smoker"]
    assert model.classes_.tolist() == [False, True]
    assert model.predict(people).dtype == bool
    assert model.score(people, FRAME["ill"]) == np.mean(model.predict(people) == FRAME["ill"].to_numpy()) > 0.7
    with pytest.raises(SchemaError, match="classes$"):
        LazyBB(schema=Columns.of(FRAME)).fit(FRAME, Y)
    with pytest.raises(SchemaError, match="low, high: say the range of columns that are not declared: smoker"):
        Columns(classes=["a", "b"], columns={"age": {"type": "boolean"}}).schema(["age", "smoker"])


def test_truth_values_are_classes_in_a_search_too():
    model = LazyBB(schema=Columns(low=0, high=1, classes=[False, True]), epsilon=1, account=Account(9))
    folds = RowFolds(2)
    assert cross_val_score(model, X, X[:, 0] > 0.5, cv=folds, scoring="accuracy", error_score="raise").min() > 0.6
    with pytest.raises(Exception, match="not one of the classes"):
        LazyBB(schema=Columns(low=0, high=1, classes=[False, True])).fit(X, Y.astype(object) + "?")


def test_an_ignored_column_of_an_array_stands_at_its_place():
    rule = Columns(low=0, high=1, classes=["no", "yes"], ignore=["x1"])
    model, changed = LazyBB(schema=rule, epsilon=4).fit(X, Y), X.copy()
    changed[:, 1] = 7
    assert model.n_features_in_ == 2
    assert (model.predict(changed) == model.predict(X)).all()
    assert model.score(X, Y) > 0.7


def test_a_cell_that_is_run_again_says_what_to_do():
    model = LazyBB(schema=UNIT, epsilon=1).fit(X, Y)
    with pytest.raises(BudgetRefused, match=r"Make it anew in the same cell.*account=Account\(epsilon="):
        model.fit(X, Y)


@pytest.mark.parametrize(
    ("epsilon", "read"), [(0.1 + 0.2, "0.3"), (1 / 3, "0.333333333"), (np.float64(0.7) + 0.1, "0.799999999")]
)
def test_a_computed_epsilon_is_rounded_down_and_says_so(epsilon, read):
    with pytest.warns(PublicWarning, match=f"is read as {read}: rounded down"):
        public = LazyBB(schema=UNIT, epsilon=epsilon).declared(X, Y)[1]
    assert str(public.budget.epsilon) == read
    assert public.budget.epsilon <= epsilon
    with pytest.warns(PublicWarning, match=f"is read as {read}"):
        assert str(Account(epsilon).budget.epsilon) == read


def test_what_is_no_computed_number_is_refused_as_before():
    with pytest.raises(InputError, match=r"at most 9 decimals; rounded down: 0.333333333$"):
        LazyBB(schema=UNIT, epsilon="0.33333333333").fit(X, Y)
    for bad in (1e-12, -0.1, float("nan"), 101.5):
        with pytest.raises(InputError, match="epsilon="):
            LazyBB(schema=UNIT, epsilon=bad).fit(X, Y)


@pytest.mark.parametrize("name", ["n_jobs", "random_state", "class_weight", "warm_start"])
@pytest.mark.parametrize("learner", [LazyBB, AutoClassifier, AutoRegressor])
def test_what_other_estimators_have_is_refused_in_a_sentence(learner, name):
    with pytest.raises(InputError, match=f"^{name}: [^.]+$"):
        learner(schema=UNIT, **{name: 1})
    with pytest.raises(InputError, match=f"^{name}: "):
        learner(schema=UNIT).set_params(**{name: 1})
    with pytest.raises(TypeError, match="unexpected keyword argument 'unheard_of'"):
        learner(unheard_of=1)


LEARNS = [
    StandardScaler(),
    make_pipeline(FunctionTransformer(), StandardScaler()),
    ColumnTransformer([("scaled", StandardScaler(), [0]), ("same", "passthrough", [1, 2])]),
]
LEARNS_NOTHING = [
    FunctionTransformer(),
    "passthrough",
    FrozenEstimator(StandardScaler().fit(X)),
    ColumnTransformer([("same", "passthrough", [0, 1, 2])]),
]


@pytest.mark.parametrize("step", LEARNS, ids=str)
def test_a_step_that_learns_from_the_rows_is_refused(step):
    model = LazyBB(schema=Columns(low=-3, high=3, classes=["no", "yes"]), account=Account(3))
    with pytest.raises(InputError, match="is fitted to the rows, which nobody pays for"):
        make_pipeline(step, model).fit(X, Y)
    with pytest.raises(InputError, match="is fitted to the rows"):
        make_pipeline(step, make_pipeline(FunctionTransformer(), model)).fit(X, Y)
    assert model.account.fits == 0
    vouched = LazyBB(schema=model.schema, account=Account(3, rowwise=True))
    make_pipeline(step, vouched).fit(X, Y)


@pytest.mark.parametrize("step", LEARNS_NOTHING, ids=str)
def test_a_step_that_learns_nothing_is_not(step):
    make_pipeline(step, LazyBB(schema=Columns(low=-3, high=3, classes=["no", "yes"]))).fit(X, Y)


def test_a_cell_shows_what_it_spent_and_the_curves():
    model = LazyBB(schema=UNIT, epsilon=1)
    assert "nothing spent yet" in model._repr_html_()
    assert "<svg" not in model._repr_html_()
    shown = model.fit(X, Y)._repr_html_()
    assert "spent epsilon 1.000000" in shown
    assert model.explain().drawing in shown


def test_what_was_tried_is_trained_anew_in_a_home_and_paid_there(tmp_path):
    home = Home.init(place(tmp_path / "home"))
    table = pa.table({**{f"x{index}": X[:, index] for index in range(3)}, "target": Y})
    rows, schema = tmp_path / "rows.parquet", tmp_path / "schema.yaml"
    pq.write_table(table, rows)
    schema.write_text(UNIT.text(["x0", "x1", "x2"]))
    register(home, "tried", rows, schema, Budget.of("2", "0.000001"), Relation.ADD_REMOVE, "record")
    model = LazyBB(schema=UNIT, epsilon="0.5", rounds=7).fit(table.drop_columns(["target"]), table["target"])

    job = model.publish(tmp_path / "home", "tried", model="from-notebook")

    assert (job["state"], job["model"], job["epsilon"], job["learner"]) == (
        "issued",
        "from-notebook",
        "0.5",
        "lazybb",
    )
    with pytest.raises(BudgetRefused):
        LazyBB(schema=UNIT, epsilon=2).publish(tmp_path / "home", "tried")
    with pytest.warns(PublicWarning, match="is read as 0.3"):
        computed = LazyBB(schema=UNIT, epsilon=0.1 + 0.2, rounds=7).publish(tmp_path / "home", "tried")
    assert computed["epsilon"] == "0.3"
    other = LazyBB(schema=Columns(low=0, high=2, classes=["no", "yes"]), epsilon="0.5").fit(X, Y)
    with pytest.raises(InputError, match="declares x0, x1, x2 otherwise than this fit"):
        other.publish(tmp_path / "home", "tried")
    assert len(home.ledger.jobs()) == 2


def test_a_learner_without_the_notebook_says_how_to_publish():
    """And its remedy is one."""
    code = """
from dpserve_verify.errors import InputError
from training.learners import LazyBB
learner = LazyBB()
try:
    learner.publish("nowhere", "tried")
except InputError as error:
    exec(str(error).split("`")[1])
assert learner.publisher.publish
"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
