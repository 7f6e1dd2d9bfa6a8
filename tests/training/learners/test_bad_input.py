"""What is wrong, odd or hopeless, for every learner under both relations: the error that says so, or the right answer.

The contract has the rest: one or two rows, constant features, one class only, budgets, what is spent when.
"""

from __future__ import annotations

import contextlib
import warnings
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from quick_learners import few, quick_auto  # noqa: F401  a fixture
from scipy import sparse

from accountant.errors import DataError, SchemaError
from accountant.privacy.claims import claim
from dpserve_verify.errors import DpserveError, InputError
from dpserve_verify.privacy.budget import from_nano
from models.forms.voting import VotingEnsemble
from models.parts.votes import Vote
from training.calibration.calibrate import rehearse
from training.calibration.plan_warnings import check_exportable, warnings_of
from training.learners import LEARNERS, LazyBB
from training.learners.base.private_learner import PrivateClassifier
from training.notebook import Account, Columns, PublicWarning, uniform_schema
from training.rows.partitions.rows import Rows
from training.rows.schema.schema import parse_schema
from training.session.session import Rehearsal, Session

pytestmark = pytest.mark.slow

EVERY = pytest.mark.parametrize("kind", LEARNERS.values(), ids=LEARNERS)
QUICK = pytest.mark.usefixtures("quick_auto")
BOTH = pytest.mark.parametrize("relation", ["add-remove", "replace-one"])
ROWS = 200
# what a learner may do otherwise than its base class
ITS_OWN = {"check", "guess", "is_listed_for", "learn", "recipe", "rounds_for"}
RULE = Columns(low=0, high=1, classes=["no", "yes"], records=ROWS)


def data(rows: int = ROWS, seed: int = 0):
    random = np.random.default_rng(seed)
    X = random.uniform(0, 1, (rows, 3))
    return X, np.where(X[:, 0] > 0.5, "yes", "no")


def make(kind, **parameters):
    account = Account("100", relation="replace-one" if parameters.get("relation") == "replace-one" else "add-remove")
    return kind(**{"schema": RULE, "epsilon": "50", "account": account, **parameters})


def small(kind, **parameters):
    """A learner that is quick; with QUICK `auto` is as well."""
    return make(kind, **few(kind()), **parameters)


def refused(learner, X, y, error, said):
    """Nothing is spent on what is refused."""
    with pytest.raises(error, match=said):
        learner.fit(X, y)
    assert not hasattr(learner, "recipe_")
    assert learner.account.fits == 0


def test_rows_labels_and_budgets_are_checked_by_the_base_class_alone():
    """So what it refuses, every learner refuses: the tests below that name LazyBB hold for all."""
    base = {name for kind in (PrivateClassifier, *PrivateClassifier.__mro__[1:-1]) for name in vars(kind)}
    for kind in LEARNERS.values():
        own = {name for above in kind.__mro__[: kind.__mro__.index(PrivateClassifier)] for name in vars(above)}
        assert {name for name in own & base if not name.startswith(("__", "_abc"))} <= ITS_OWN, kind


# ---- rows ------------------------------------------------------------------------------------------------------------


@EVERY
@QUICK
@BOTH
@pytest.mark.parametrize("constants", [[0.5, -7.0, 1e300, np.nan, np.inf, -np.inf], [np.nan]], ids=["any", "missing"])
def test_constant_features_give_the_most_frequent_class(kind, relation, constants):
    y = ["yes"] * 150 + ["no"] * 50
    X = np.tile(constants, (ROWS, 1))
    model = small(kind, relation=relation).fit(X, y)
    assert (model.predict(X) == "yes").all()


@EVERY
@QUICK
@BOTH
@pytest.mark.parametrize("only", ["no", "yes"])
def test_one_class_only_is_what_is_predicted_and_both_are_declared(kind, relation, only):
    X, _ = data()
    # A forest's leaves of few rows follow their noise: one fit in a hundred is right for fewer, five in the mean never.
    models = [
        small(kind, relation=relation).fit(X, [only] * ROWS) for _ in range(5 if kind is LEARNERS["forest"] else 1)
    ]
    model = models[0]
    assert np.mean([each.predict(X) == only for each in models]) > 0.9
    assert model.predict_proba(X).shape == (ROWS, 2)
    assert model.classes_.tolist() == ["no", "yes"]


@EVERY
@QUICK
@BOTH
@pytest.mark.parametrize("values", [["red"], ["red", "green"], ["green"]], ids=repr)
def test_a_feature_with_one_category(kind, relation, values):
    """One that is listed, one of two, and one that is not listed at all."""
    rule = replace(RULE, columns={"colour": {"type": "categorical", "values": values}})
    X = {"colour": ["red"] * ROWS}
    model = small(kind, schema=rule, relation=relation).fit(X, ["yes"] * 150 + ["no"] * 50)
    assert (model.predict({"colour": ["red", "blue", "", None]}) == "yes").sum() >= 1
    assert (model.predict(X) == "yes").all()


@EVERY
@BOTH
@pytest.mark.parametrize("rows", [1, 2])
def test_one_and_two_rows_are_fitted_and_drowned(kind, relation, rows):
    X, y = data(rows)
    with pytest.warns(PublicWarning, match=f"records={rows} "):
        model = make(kind, schema=replace(RULE, records=rows), relation=relation, epsilon="1").fit(X, y)
    assert model.predict_proba(X).sum(axis=1) == pytest.approx(1)


def test_no_rows_are_refused():
    X, y = data()
    refused(make(LazyBB), X[:0], y[:0], ValueError, "0 sample")
    refused(make(LazyBB), {"a": pa.array([], pa.float64())}, [], DataError, "at least one")
    refused(make(LazyBB), X[:, :0], y, ValueError, "0 feature")


@EVERY
@QUICK
@BOTH
def test_under_replace_one_the_declared_number_of_rows_is_theirs(kind, relation):
    X, y = data(ROWS + 1)
    if relation == "replace-one":
        refused(make(kind, relation=relation), X, y, DataError, "records=200")
    else:
        small(kind, relation=relation).fit(X, y)


@EVERY
@QUICK
@BOTH
def test_numbers_beyond_the_range_are_clipped_and_missing_ones_have_a_bin(kind, relation):
    """As they are when they are served: only the public bin counts."""
    X, y = data()
    X[::3, 1] = np.nan
    model = small(kind, relation=relation).fit(np.where(X > 0.97, np.inf, np.where(X <= 0, -np.inf, X)), y)
    far, near = np.array([[9e9, -9e9, np.inf]]), np.array([[1.0, -1.0, 1.0]])
    assert (model.decision_function(far) == model.decision_function(near)).all()
    assert (model.predict(X) == y).mean() > 0.7


WRONG_X = {
    "one dimension": (lambda X: X[:, 0], "Reshape your data"),
    "three dimensions": (lambda X: X[:, :, None], "dim 3"),
    "sparse": (sparse.csr_array, "[Ss]parse"),
    "sparse, by place": (sparse.dok_array, "[Ss]parse"),
    "complex": (lambda X: X * 1j, "[Cc]omplex"),
    "texts": (lambda X: X.astype(str), "(dtype='numeric'|decimal|numeric|string)"),
    "objects": (lambda X: np.full(X.shape, {}, dtype=object), "argument must be"),
    "ragged": (lambda X: [[1.0], [1.0, 2.0]], "inhomogeneous|setting an array element"),
    "one name twice": (lambda X: pa.table([pa.array(X[:, 0])] * 2, names=["a", "a"]), "columns .'a'.: stand there"),
    "columns of two lengths": (lambda X: {"a": [1.0], "b": [1.0, 2.0]}, "one length"),
    "texts in a frame": (lambda X: {"a": ["x"] * ROWS}, "a, row 2 .*: not a number"),
    "truth in a frame": (lambda X: {"a": [True] * ROWS}, "'a': holds bool; must be numbers"),
    "two types in one column": (lambda X: {"a": [1.0, "x"] * (ROWS // 2)}, "type"),
    "a text": (lambda X: "rows.csv", "."),
    "nothing": (lambda X: None, "."),
}


@pytest.mark.parametrize("case", WRONG_X.values(), ids=WRONG_X)
def test_an_x_that_is_no_table_of_numbers_is_refused(case):
    change, said = case
    X, y = data()
    learner = make(LazyBB)
    with pytest.raises((ValueError, TypeError), match=said) as caught:
        learner.fit(change(X), y)
    assert "0.6369616873214543" not in str(caught.value)  # the first number of X
    assert learner.account.fits == 0


WRONG_Y = {
    "another label": (lambda y: np.append(y[:-1], "maybe"), "not one of the classes|binary"),
    "three labels": (lambda y: np.append(y[:-1], "maybe"), "Only binary classification is supported"),
    "None": (lambda y: [None, *y[1:]], "missing"),
    "NaN among texts": (lambda y: np.array([np.nan, *y[1:]], dtype=object), "missing"),
    "NaN among numbers": (lambda y: np.append(np.ones(ROWS - 1), np.nan), "NaN or infinity"),
    "infinity": (lambda y: np.full(ROWS, np.inf), "NaN or infinity"),
    "continuous": (lambda y: np.linspace(0, 1, ROWS), "Unknown label type: continuous"),
    "numbers": (lambda y: (y == "yes").astype(int) + 1, "neither true nor false: of numbers, 0 and 1 are"),
    "dates": (lambda y: np.full(ROWS, "2024-01-01", "M8[D]"), "not one of the classes"),
    "too few": (lambda y: y[:-1], "199 labels for 200 rows"),
    "too many": (lambda y: np.append(y, "no"), "201 labels for 200 rows"),
    "none": (lambda y: y[:0], "0 labels for 200 rows"),
    "two columns": (lambda y: np.column_stack([y, y]), "1d array"),
    "nothing": (lambda y: None, "requires y to be passed"),
}


@pytest.mark.parametrize("case", WRONG_Y.values(), ids=WRONG_Y)
def test_labels_that_were_not_declared_are_refused(case):
    change, said = case
    X, y = data()
    refused(make(LazyBB), X, change(y), ValueError, said)


@pytest.mark.parametrize("truths", [np.asarray, lambda truths: truths.astype(int), lambda truths: truths.astype(float)])
def test_truth_values_are_the_classes_that_mean_them(truths):
    X, y = data()
    model = make(LazyBB).fit(X, truths(y == "yes"))
    assert model.classes_.tolist() == ["no", "yes"]
    assert (model.predict(X) == y).mean() > 0.8


@pytest.mark.parametrize("form", [pa.array, lambda y: pa.chunked_array([y[:9], y[9:]]), list, np.ndarray.tolist])
def test_labels_come_in_every_form(form):
    X, y = data()
    assert (small(LazyBB).fit(X, form(y)).predict(X) == y).mean() > 0.7


def test_records_to_predict_that_do_not_fit_are_refused():
    X, y = data()
    model = small(LazyBB).fit(X, y)
    for wrong, said in ((X[:, :2], "X has 2 features"), (X.T, "X has 200 features"), ({"x0": X[:, 0]}, "'x1', 'x2'")):
        for method in (model.predict, model.predict_proba, model.decision_function):
            with pytest.raises(ValueError, match=said):
                method(wrong)
    names = pa.table(dict(zip(["x2", "x1", "x0"], X.T[::-1], strict=True)))
    assert (model.predict(names) == model.predict(X)).all()


# ---- parameters ------------------------------------------------------------------------------------------------------

NUMBERS = [
    *({"epsilon": bad} for bad in (0, -1, float("nan"), float("inf"), True, "much", "", None, 101, [1])),
    *({"delta": bad} for bad in (-1, 1, float("nan"), True, "small", None, 1 / ROWS)),
    *({"relation": bad} for bad in ("both", None, 1, True)),
    *({"schema": bad} for bad in (None, b"", b"features: {}")),
]


@pytest.mark.parametrize("bad", NUMBERS, ids=repr)
def test_parameters_that_are_no_budget_are_refused(bad):
    (name,) = bad
    learner = make(LazyBB, **bad)
    with pytest.raises(DpserveError, match=name):
        learner.fit(*data())
    assert learner.account.fits == 0


@EVERY
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), True, "text", -1, [], {}, None], ids=repr)
def test_no_parameter_of_a_learner_takes_what_it_does_not_declare(kind, bad):
    """A number, a truth value or a word, each alone: `check` refuses anything else, and names it."""
    public = make(kind, schema=uniform_schema(3, 0, 1, ["no", "yes"], ROWS)).public_facts()
    own = {key: value for key, value in kind().get_params().items() if key not in kind_free(kind)}
    for key, value in own.items():
        fine = (bad is None and value is None) or (isinstance(bad, bool) and isinstance(value, bool))
        if not fine:
            with pytest.raises(InputError, match=f"{key}="):
                make(kind, **{key: bad}).check(public)


def kind_free(kind) -> set[str]:
    """What every learner has, tested above; and which columns it reads, in tests/training/test_columns.py."""
    return {"schema", "epsilon", "delta", "relation", "account", "features", "without"}


def test_a_schema_of_one_value_is_refused():
    with pytest.raises(SchemaError, match="low must be below high"):
        make(LazyBB, schema=replace(RULE, low=1)).fit(*data())


@pytest.mark.parametrize("low", ["no", "'x'", ".nan", ".inf", "null"])
def test_a_range_of_a_schema_file_is_of_numbers(low):
    """YAML reads a bare `no` as a truth value, which is no number."""
    text = f"target: {{name: y, classes: [a, b]}}\nrecords: 9\nfeatures:\n  n: {{type: numeric, range: [{low}, 1]}}\n"
    with pytest.raises(SchemaError, match="features.n.range.0"):
        parse_schema(text.encode())


# ---- rounds ----------------------------------------------------------------------------------------------------------

ROUNDS = pytest.mark.parametrize(
    "kind",
    [each for each in LEARNERS.values() if "rounds" in each().get_params()],
    ids=[name for name, each in LEARNERS.items() if "rounds" in each().get_params()],
)


@ROUNDS
@BOTH
def test_more_rounds_than_the_budget_can_carry_names_how_many_it_can(kind, relation):
    poor = {"epsilon": "0.000001", "delta": "0", "relation": relation}
    learner = make(kind, rounds=1100, **poor, account=Account("1", "0", relation))
    with pytest.raises(InputError, match="rounds=1100: more than epsilon=0.000001 at delta=0 can carry") as caught:
        learner.fit(*data())
    most = caught.value.details["largest"]
    assert 1 <= most < 1100
    assert f"at most {most}" in str(caught.value)
    public = make(kind, schema=uniform_schema(3, 0, 1, ["no", "yes"], ROWS), **poor).public_facts()
    prices = [claim(rehearse(make(kind, rounds=each), public, from_nano(1)), Decimal(0)) for each in (most, most + 1)]
    assert prices[0].epsilon <= Decimal("0.000001") < prices[1].epsilon


@ROUNDS
@BOTH
def test_rounds_that_drown_the_signal_give_a_public_warning(kind, relation):
    """It names how many could be of use. So many give no warning, and one more does; and rows have no say in it."""
    public = make(
        kind, epsilon="1", schema=uniform_schema(3, 0, 1, ["no", "yes"], ROWS), relation=relation
    ).public_facts()

    def said(rounds):
        learner = make(kind, rounds=rounds)
        return warnings_of(learner, public, learner.recipe(public))

    (text,) = said(300)
    useful = int(text.split("at most ")[-1].split(" rounds")[0])
    assert 1 <= useful < 300
    assert said(max(1, useful - 1)) == []
    assert said(useful + 2)
    many = make(kind, rounds=300, epsilon="1", relation=relation)
    with pytest.warns(PublicWarning) as caught:
        many.fit(np.zeros((ROWS, 3)), ["yes"] * ROWS)
    assert text in [str(each.message) for each in caught]


@EVERY
@BOTH
def test_defaults_give_no_warning(kind, relation):
    schema = uniform_schema(3, 0, 1, ["no", "yes"], 1000)
    learner = make(kind, epsilon="1", schema=schema, relation=relation)
    assert warnings_of(learner, learner.public_facts(), learner.recipe(learner.public_facts())) == []


def test_the_chance_in_the_warning_is_that_of_the_mechanism():
    """A perfect rule against others at chance, by the mechanism itself: their scores differ by n * range / 2."""
    learner = make(LazyBB, rounds=300, epsilon="0.1", schema=uniform_schema(3, 0, 1, ["no", "yes"], 100))
    public = learner.public_facts()
    recipe = learner.recipe(public)
    (text,) = warnings_of(learner, public, recipe)
    size = int(text.split("out of ")[1].split(" ")[0])
    price = float(recipe.unit)
    weight = np.exp(price * np.append(100 * 2 / 2, np.zeros(size - 1)) / 2)
    assert f"at most {weight[0] / weight.sum():.2g};" in text


@ROUNDS
def test_a_hundred_thousand_rounds_are_named_where_they_are_refused(kind):
    public = make(kind, schema=uniform_schema(3, 0, 1, ["no", "yes"], ROWS)).public_facts()
    with pytest.raises(InputError, match="rounds=1000000: must be a whole number between 1 and"):
        make(kind, rounds=1_000_000).check(public)
    with contextlib.suppress(InputError):  # refused as well, or exact: the next test
        make(kind, rounds=100_000).check(public)


@pytest.mark.parametrize(("rounds", "weight"), [(100_000, 1), (100, 6_400)])
def test_margins_of_a_hundred_thousand_rounds_are_exact(rounds, weight):
    """A row that every round is right about, one that none is, and one with the feature missing."""
    rows = Rows(np.array([[1, 0, 2]], np.uint8), np.array([1, 1, 0], np.uint8), [3])
    votes, bound = (Vote("above", 0, 0, weight),) * rounds, rounds * weight
    negative, positive = rows.score_counts(votes, bound)
    assert np.flatnonzero(positive).tolist() == [0, 2 * bound]
    assert np.flatnonzero(negative).tolist() == [0]
    assert np.flatnonzero(rows.margin_counts(votes, bound)[0]).tolist() == [0, 2 * bound]


class Heavy(LazyBB):
    """Releases one round of a public weight that float32 cannot add up exactly."""

    def learn(self, session):
        found = super().learn(session)
        return VotingEnsemble(found.features, found.target, found.classes, (Vote("always", 0, 0, 1 << 24),), 1.0)


def test_a_model_that_could_not_be_exported_is_refused_before_it_is_paid_for(monkeypatch):
    monkeypatch.setattr(Session, "release", pytest.fail)
    refused(make(Heavy, rounds=7), *data(), InputError, "rounds=7: no model of it could be exported: .*16777216")


def test_what_can_be_exported_passes():
    learner = make(LazyBB, schema=uniform_schema(3, 0, 1, ["no", "yes"], ROWS))
    public = learner.public_facts()
    check_exportable(learner, public, learner.learn(Rehearsal(public, learner.recipe(public).unit)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner.fit(*data())
