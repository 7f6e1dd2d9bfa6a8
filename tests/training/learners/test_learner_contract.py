"""What every learner promises, whichever it is: one that is listed in LEARNERS is tested here with no line added."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from inspect import signature
from pathlib import Path
from threading import Barrier

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from contract_rows import ROWS, SCHEMA, make, schema_of, table
from sklearn.base import clone

from accountant.errors import DataError
from accountant.privacy.claims import claim
from dpserve_verify.errors import BudgetRefused, DpserveError, InputError
from training.calibration.calibrate import rehearse
from training.learners import LEARNERS, LazyBB
from training.rows.schema.schema import parse_schema
from training.session.session import Session

pytestmark = pytest.mark.slow

DATA = Path(__file__).resolve().parents[3] / "examples" / "data"
EVERY = pytest.mark.parametrize("kind", LEARNERS.values(), ids=LEARNERS)


@EVERY
def test_parameters_are_those_of_the_constructor(kind):
    learner = make(kind, epsilon="0.25")
    names = set(signature(kind.__init__).parameters) - {"self"}
    assert set(learner.get_params()) == names >= {"schema", "epsilon", "delta", "relation"}
    twin = clone(learner)
    assert twin.get_params() == learner.get_params()
    assert twin is not learner
    assert learner.set_params(epsilon="0.5").get_params()["epsilon"] == "0.5"


@EVERY
def test_unknown_parameters_are_refused(kind):
    with pytest.raises(TypeError, match="rouds"):
        kind(rouds=3)
    with pytest.raises(ValueError, match="rouds"):
        make(kind).set_params(rouds=3)


@EVERY
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("delta", ["0", "0.000001"])
def test_fit_releases_a_model_within_its_budget(kind, relation, delta):
    X, y = table()
    learner = make(kind, epsilon="2", delta=delta, relation=relation)
    assert learner.fit(X, y) is learner
    assert learner.classes_.tolist() == ["no", "yes"]
    recipe = learner.recipe_
    assert recipe.claim.epsilon <= 2
    assert recipe.claim.epsilon >= Decimal("0.97") * 2
    assert recipe.claim.delta == Decimal(delta)
    assert recipe.claim == claim(recipe.plan, Decimal(delta))
    assert recipe.plan == rehearse(learner, learner.public_facts(), recipe.unit)


@EVERY
def test_predictions_have_the_right_shape_and_agree(kind):
    X, y = table()
    learner = make(kind, epsilon="50").fit(X, y)
    unseen, truth = table(500, seed=1)
    labels, chances = learner.predict(unseen), learner.predict_proba(unseen)
    assert labels.shape == (500,)
    assert set(labels) <= {"no", "yes"}
    assert chances.shape == (500, 2)
    assert chances.sum(axis=1) == pytest.approx(1)
    assert ((chances >= 0) & (chances <= 1)).all()
    assert (labels == learner.classes_[(chances[:, 1] > chances[:, 0]).astype(int)]).all()
    assert learner.score(unseen, truth) > 0.75  # a real signal at a large epsilon: chance is .5


@EVERY
def test_a_second_fit_is_refused_and_a_clone_is_a_new_release(kind):
    X, y = table()
    learner = make(kind).fit(X, y)
    before = learner.ensemble_
    with pytest.raises(BudgetRefused, match="spent"):
        learner.fit(X, y)
    with pytest.raises(BudgetRefused):
        copy.deepcopy(learner).fit(X, y)
    assert learner.ensemble_ is before
    clone(learner).fit(X, y)


@EVERY
def test_fitted_from_three_threads_it_fits_once(kind, monkeypatch):
    """They come to the budget together: each has its plan before any has spent."""
    X, y = table()
    learner, recipe, together = make(kind), kind.recipe, Barrier(3, timeout=300)
    monkeypatch.setattr(kind, "recipe", lambda self, public: (recipe(self, public), together.wait())[0])

    def fit(_: int) -> bool:
        try:
            learner.fit(X, y)
        except BudgetRefused:
            return False
        return True

    with ThreadPoolExecutor(3) as pool:
        assert sum(pool.map(fit, range(3))) == 1


@EVERY
def test_a_fit_that_fails_after_it_has_drawn_has_spent_its_budget(kind, monkeypatch):
    X, y = table()
    learner, play = make(kind), Session.release

    def cut(self, query, mechanism):
        play(self, query, mechanism)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Session, "release", cut)
        with pytest.raises(KeyboardInterrupt):
            learner.fit(X, y)
    with pytest.raises(BudgetRefused):
        learner.fit(X, y)


@EVERY
def test_a_fit_that_is_refused_spends_nothing(kind):
    X, y = table()
    learner = make(kind)
    with pytest.raises(DataError):
        learner.fit(X.drop_columns(["age"]), y)
    learner.fit(X, y)


@EVERY
def test_two_fits_of_one_input_differ(kind):
    """No seed has a say. At epsilon .01 five models agree with probability far below 1e-9."""
    X, y = table()
    models = []
    for _ in range(5):
        np.random.seed(0)
        models.append(repr(make(kind, epsilon="0.01").fit(X, y).ensemble_.to_json()))
    assert len(set(models)) > 1


@EVERY
def test_there_is_no_seed(kind):
    assert not {"seed", "random_state", "rng"} & set(make(kind).get_params())


@EVERY
def test_unfitted_learners_do_not_predict(kind):
    for method in ("predict", "predict_proba"):
        with pytest.raises(InputError, match="not fitted"):
            getattr(make(kind), method)(table()[0])


@EVERY
@pytest.mark.parametrize("rows", [ROWS - 1, ROWS + 1])
def test_replace_one_needs_the_public_count_exactly(kind, rows):
    with pytest.raises(DataError, match="records=200") as caught:
        make(kind, relation="replace-one").fit(*table(rows))
    assert str(rows) not in str(caught.value)
    make(kind, relation="add-remove").fit(*table(rows))


@EVERY
@pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
@pytest.mark.parametrize("rows", [1, 2])
def test_one_row_and_two_rows(kind, rows, relation):
    learner = make(kind, schema=schema_of(rows), relation=relation).fit({"age": [5.0] * rows}, ["yes"] * rows)
    assert learner.predict({"age": [1.0, 99.0, float("nan")]}).shape == (3,)


@EVERY
@pytest.mark.parametrize("label", ["no", "yes"])
def test_one_class_only(kind, label):
    X, _ = table()
    learner = make(kind, epsilon="50").fit(X, [label] * ROWS)
    assert (learner.predict(X) == label).mean() > 0.9
    assert learner.classes_.tolist() == ["no", "yes"]


CONSTANT = {
    "constant number": ("  age: {type: numeric, range: [0, 100], bins: 8}\n", {"age": [7.0] * ROWS}),
    "always missing": ("  age: {type: numeric, range: [0, 100], bins: 8}\n", {"age": pa.nulls(ROWS)}),
    "one category": ("  colour: {type: categorical, values: [red]}\n", {"colour": ["red"] * ROWS}),
    "unlisted category": ("  colour: {type: categorical, values: [red]}\n", {"colour": ["blue"] * ROWS}),
    "one flag": ("  member: {type: boolean}\n", {"member": [True] * ROWS}),
}


@EVERY
@pytest.mark.parametrize("case", CONSTANT.values(), ids=CONSTANT)
def test_constant_features(kind, case):
    features, columns = case
    learner = make(kind, schema=schema_of(ROWS, features), epsilon="50").fit(columns, ["yes"] * 150 + ["no"] * 50)
    assert (learner.predict(columns) == "yes").mean() > 0.9


BAD = [
    {"epsilon": 0},
    {"epsilon": -1},
    {"epsilon": float("nan")},
    {"epsilon": "inf"},
    {"epsilon": "1000"},
    {"epsilon": None},
    {"delta": "1"},
    {"delta": "0.005"},
    {"delta": float("nan")},
    {"relation": "both"},
    {"schema": None},
]


@EVERY
@pytest.mark.parametrize("bad", BAD, ids=repr)
def test_bad_parameters_are_refused_before_anything_is_spent(kind, bad):
    learner = make(kind, **bad)
    with pytest.raises(DpserveError):
        learner.fit(*table())
    assert not hasattr(learner, "recipe_")


@EVERY
def test_a_budget_too_small_for_the_plan_is_refused(kind):
    with pytest.raises(InputError, match="epsilon"):
        make(kind, epsilon="0.000000001", delta="0").fit(*table())


@EVERY
def test_a_target_without_classes_is_refused(kind):
    schema = SCHEMA.replace(b'classes: ["no", "yes"]', b"range: [0, 1]")
    with pytest.raises(InputError, match="classes"):
        make(kind, schema=schema).fit(*table())


def three_classes(kind):
    return make(kind, schema=SCHEMA.replace(b'classes: ["no", "yes"]', b'classes: ["no", "yes", "c"]'))


def test_lazybb_learns_three_classes():
    X, y = table()
    assert three_classes(LazyBB).fit(X, y).predict_proba(X).shape == (len(y), 3)


def test_trees_refuse_three_classes_before_they_cost_anything():
    learner = three_classes(LEARNERS["lazybb-tree"])
    with pytest.raises(InputError, match="two classes"):
        learner.fit(*table())
    assert not hasattr(learner, "recipe_")


@EVERY
def test_real_rows(kind):
    """A thousand rows of Adult, through the public schema."""
    schema = parse_schema((DATA / "adult.schema.yaml").read_bytes())
    X = pq.read_table(DATA / "adult_train.parquet").slice(0, 1000)
    learner = make(kind, schema=schema).fit(X, X["income"])
    assert learner.score(X, np.asarray(X["income"])) > 0.5
    assert learner.recipe_.claim.epsilon >= Decimal("0.97")


# ---- LazyBB's own parameters -----------------------------------------------------------------------------------------

BAD_LAZYBB = [
    *({"rounds": bad} for bad in (0, -1, 5001, 10**9, 2.5, "many", True, float("nan"))),
    *({"rate": bad} for bad in (0, -1, 11, float("nan"), float("inf"), "x")),
    *({"density": bad} for bad in (0, -0.1, 1.1, float("nan"), None)),
    *({"slope": bad} for bad in (-0.1, 1.1, float("nan"))),
    *({"decay": bad} for bad in (-0.1, 1.1, float("nan"), "x", True)),
    *({"weighting": bad} for bad in ("scheduled", None, 1)),
    *({"reweighting": bad} for bad in ("exponential", None, 1)),
    *({"threshold": bad} for bad in ("no", None, 2)),
]


@pytest.mark.parametrize("bad", BAD_LAZYBB, ids=repr)
def test_parameters_of_lazybb_out_of_range_are_refused(bad):
    (name,) = bad
    with pytest.raises(InputError, match=f"{name}="):
        make(LazyBB, **bad).fit(*table())


@pytest.mark.parametrize("odd", [{"decay": 0.5}, {"weighting": "logistic"}])
def test_what_projected_reweighting_does_not_have_is_refused(odd):
    with pytest.raises(InputError, match=f"{next(iter(odd))}="):
        make(LazyBB, reweighting="projected", **odd).fit(*table())


@pytest.mark.parametrize("rounds", [1, 2, 57])
@pytest.mark.parametrize("threshold", [False, True])
def test_the_plan_of_lazybb_has_a_release_per_round(rounds, threshold):
    learner = make(LazyBB, rounds=rounds, threshold=threshold).fit(*table())
    assert len(learner.recipe_.plan) == rounds + threshold == len(learner.ensemble_.votes)
