"""`ebm-trees`: what one row moves, in all small tables; what trees beside curves learn, and how it is exported."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from exact_laws import BOOLEAN

from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget, Relation
from models.forms.additive import AdditiveEnsemble
from models.forms.curves_trees import CurvesAndTrees
from models.forms.registry import ensemble_bytes, ensemble_from_bytes
from models.onnx import export
from models.onnx.runtime import OnnxModel
from training.learners import LEARNERS
from training.learners.boosting.tree_queries import slots
from training.learners.choice import choose
from training.learners.ebm.ebm import DPEBMRegressor
from training.learners.ebm.leaf_numbers import COUNT, LeafNumbers, LeftSquares, QuantileResiduals
from training.learners.ebm.residuals import GRID, NumberResiduals
from training.learners.ebm.trees_beside import ALIKE, DPEBMTreesRegressor, gains_by_trees
from training.rows.partitions.partition import TARGET_GRID
from training.rows.partitions.rows import Rows
from training.rows.schema.schema import parse_schema
from training.rows.statistics.additive_rows import Joint
from training.rows.statistics.tree_rows import Cut, Grown
from training.session.session import Public, sensitivity_of

EVERY = list(product(range(3), range(3), (-TARGET_GRID, -777, 0, TARGET_GRID)))  # two codes and the answer
TERMS = np.array([90_000, -40_000, 7]), np.array([0, 300_000, -300_000]), np.arange(9) * 1000
JOINTS = (Joint((0, 1), ((0, 1, 2), (0, 1, 2))),)
GROWN = (Grown((Cut(0, "is", 0, 1),), (5000, -9000)),)
CUTS = Cut(0, "is", 0, 1), Cut(1, "is", 1, 2)
SCHEMA = b"""
target: {name: y, range: [0, 4]}
records: 4000
features:
  a: {type: boolean}
  b: {type: boolean}
  c: {type: numeric, range: [0, 1], bins: 8}
  d: {type: categorical, values: [p, q, r]}
"""


QUANTILES = (None, 500, 900, 50)


def residuals_of(thousandths, relation, norm):
    about = 100, TARGET_GRID // 3, relation, norm
    return NumberResiduals(*about) if thousandths is None else QuantileResiduals(*about, thousandths)


def table(rows) -> Rows:
    codes = np.array(rows, np.int64).reshape(-1, 3)
    return Rows(codes[:, :2].T.astype(np.uint8), codes[:, 2].astype(np.int32), (3, 3), 0)


@pytest.mark.parametrize("norm", ["l1", "l2"])
@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("kind", [LeafNumbers, LeftSquares])
@pytest.mark.parametrize("thousandths", QUANTILES)
def test_a_row_moves_what_trees_ask_by_what_is_charged(thousandths, kind, relation, norm):
    """Every row that there can be, and every pair of them, on a rest: never more, and half would be too little."""
    left = residuals_of(thousandths, relation, norm)
    query = kind(left, TERMS, JOINTS, GROWN, 9000, *([CUTS] if kind is LeafNumbers else []))
    rest = [EVERY[0], EVERY[11], EVERY[-1]]

    def answers(rows):
        return query(table(rows)).astype(np.float64)

    def moved(one, other):
        return float(np.linalg.norm(one - other, 1 if norm == "l1" else 2))

    with_each, alone = [answers([*rest, each]) for each in EVERY], answers(rest)
    others = [alone] if relation is Relation.ADD_REMOVE else with_each
    most = max(moved(one, other) for one in with_each for other in others)
    assert most <= query.sensitivity(relation)
    slanted = thousandths not in (None, 500) and relation is Relation.REPLACE_ONE  # a row is steep one way alone
    assert most > (0.7 if slanted else 0.95) * query.sensitivity(relation)
    assert query.size == alone.size
    about = Public(BOOLEAN, "y", None, 9, relation, Budget.of("1", "0.000001"), False, 1, (0.0, 1.0))
    assert sensitivity_of(query, about) == query.sensitivity(relation)


def test_sums_and_counts_are_those_of_a_plain_loop():
    random = np.random.default_rng(2)
    rows = [EVERY[each] for each in random.integers(0, len(EVERY), 400)]
    left = NumberResiduals(100, TARGET_GRID // 3, Relation.ADD_REMOVE, "l2")
    sums, counts = LeafNumbers(left, TERMS, JOINTS, GROWN, 9000, CUTS)(table(rows)).reshape(2, -1)
    squares = LeftSquares(left, TERMS, JOINTS, GROWN, 9000)(table(rows))[0]
    expected, rows_of_leaf, square = np.zeros(3), np.zeros(3), 0
    for a, b, answer in rows:
        score = 100 + TERMS[0][a] + TERMS[1][b] + TERMS[2][3 * a + b] + (-9000 if a == 1 else 5000)
        residual = max(-left.clip, min(left.clip, answer - score))
        leaf = (2 if b == 2 else 1) if a == 1 else 0
        expected[leaf] += residual * left.worth**-1 / TARGET_GRID
        rows_of_leaf[leaf] += 1
        square += residual**2 * GRID // left.clip**2
    assert np.allclose(sums, expected, atol=len(rows))
    assert (counts % (GRID // 6) == 0).all()
    assert (counts // (GRID // 6)).tolist() == rows_of_leaf.tolist()
    assert squares == square


@pytest.mark.parametrize("thousandths", QUANTILES[1:])
def test_slopes_of_a_quantile_are_those_of_a_plain_loop(thousandths):
    """And the bend is never less than the loss's own: a step of sum over bend never goes too far."""
    random = np.random.default_rng(2)
    rows = [EVERY[each] for each in random.integers(0, len(EVERY), 400)]
    left = residuals_of(thousandths, Relation.ADD_REMOVE, "l2")
    sums, bends = LeafNumbers(left, TERMS, JOINTS, GROWN, 9000, CUTS)(table(rows)).reshape(2, -1)
    expected, bent, clip = np.zeros(3), np.zeros(3), left.clip
    for a, b, answer in rows:
        score = 100 + TERMS[0][a] + TERMS[1][b] + TERMS[2][3 * a + b] + (-9000 if a == 1 else 5000)
        leaf, far, share = (2 if b == 2 else 1) if a == 1 else 0, answer - score, thousandths / 1000
        expected[leaf] += (2 * share - 1 + np.clip(far, -clip, clip) / clip) / (2 * max(share, 1 - share)) * GRID
        bent[leaf] += min(1, clip / max(abs(far), 1))
    assert np.allclose(sums, expected, atol=20 * len(rows))
    assert np.allclose(bends / COUNT, bent, atol=0.01)


def test_each_loss_tells_what_it_is_of():
    """Of skewed answers the mean lies above the median, and nine tenths of rows below their quantile."""
    random = np.random.default_rng(4)
    size = 6000
    a, c = random.random(size) < 0.5, random.random(size)
    y = np.minimum(random.exponential(0.3 + 0.7 * a), 4)
    X = pa.table({"a": a, "b": a, "c": c, "d": ["p"] * size})
    found = {}
    for loss, more in (("squared", {}), ("absolute", {}), ("quantile", {"quantile": 0.9})):
        model = DPEBMTreesRegressor(
            schema=parse_schema(SCHEMA), epsilon=8, delta=1e-6, trees=60, depth=3, loss=loss, **more
        )
        found[loss] = model.fit(X, y).predict(X)
    assert abs(np.mean(y > found["absolute"]) - 0.5) < 0.06
    assert abs(np.mean(y > found["quantile"]) - 0.1) < 0.05
    assert np.abs(y - found["absolute"]).mean() < np.abs(y - found["squared"]).mean()


@pytest.mark.parametrize(
    ("about", "more", "word"),
    [
        ({}, {"loss": "deviance"}, "loss="),
        ({}, {"loss": "quantile"}, "quantile=None"),
        ({}, {"quantile": 0.5}, "quantile=0.5"),
        ({}, {"loss": "quantile", "quantile": 1.0}, "0.01 to 0.99"),
        ({}, {"loss": "quantile", "quantile": float("nan")}, "0.01 to 0.99"),
        ({"records": 20}, {"loss": "absolute"}, "set trees"),
        ({"classes": ("no", "yes"), "target_range": None}, {"loss": "absolute"}, "beside curves of a number"),
    ],
)
def test_a_loss_that_says_nothing_is_refused(about, more, word):
    read = parse_schema(SCHEMA)
    public = Public.of(read, Relation.ADD_REMOVE, Budget.of("1", "0.000001"), False)
    with pytest.raises(InputError, match=word):
        LEARNERS["ebm-trees"](**more).check(replace(public, **about))


def made_rows(size=4000):
    """Rows whose number is of three features together, and of each by itself."""
    random = np.random.default_rng(1)
    a, b, c = random.random(size) < 0.5, random.random(size) < 0.5, random.random(size)
    y = 0.6 + 1.5 * (a ^ b ^ (c > 0.5)) + 0.4 * a + 0.4 * b + 0.8 * c + random.normal(0, 0.1, size)
    return pa.table({"a": a, "b": b, "c": c, "d": random.choice(["p", "q", "r"], size)}), y


@pytest.fixture(scope="module")
def fitted():
    X, y = made_rows()
    return DPEBMTreesRegressor(schema=parse_schema(SCHEMA), epsilon=8, delta=1e-6, trees=120).fit(X, y)


def test_trees_learn_what_three_features_say_together(fitted):
    """Curves and pairs of them cannot tell who is odd of three."""
    X, y = made_rows()
    curves = DPEBMRegressor(schema=parse_schema(SCHEMA), epsilon=8, delta=1e-6).fit(X, y)
    assert curves.score(X, y) < 0.35
    assert fitted.score(X, y) > 0.6
    assert fitted.spent_.epsilon <= 8
    assert isinstance(fitted.ensemble_, CurvesAndTrees)
    assert len(fitted.ensemble_.trees) == 120


def test_the_model_is_read_back_and_exported_as_it_predicts(fitted):
    model = fitted.ensemble_
    assert ensemble_from_bytes(ensemble_bytes(model)) == model
    columns = {"a": np.array([True, None, False], object), "b": np.array([False, True, False], object),
               "c": np.array([0.2, np.nan, 9.0]), "d": np.array(["p", "", "other"], object)}  # fmt: skip
    values = model.values(columns)
    assert ((values >= 0) & (values <= 4)).all()
    onnx = OnnxModel(export.to_onnx(model, {}))
    assert np.allclose(np.asarray(onnx.predict(columns)[0]), values, atol=1e-5)
    assert {"a", "b", "c"} <= set(model.importances())
    assert "trees asks" in model.card_section()
    with pytest.raises(InputError, match="ask features together"):
        model.as_sum()


def test_which_jobs_have_trees_by_public_numbers():
    schema = parse_schema(SCHEMA)
    about = Public.of(schema, Relation.ADD_REMOVE, Budget.of("4", "0.000001"), False)
    assert gains_by_trees(about)
    assert choose(about).learner == "ebm-trees"
    few, pure = replace(about, records=100), replace(about, pure=True, budget=Budget.of("4", "0"))
    for other in (few, pure, replace(about, draws=2)):
        assert not gains_by_trees(other)
        assert choose(other).learner == "ebm"
    classes = replace(about, classes=("no", "yes"), target_range=None)
    assert not gains_by_trees(classes)
    with pytest.raises(InputError, match="beside curves of a number"):
        LEARNERS["ebm-trees"](trees=5).check(classes)
    assert [slots(np.array([3.0, 0.0, 1.0]), ALIKE).count(at) for at in range(3)] == [45, 2, 17]
    assert slots(np.zeros(3), ALIKE) == ()


def test_without_trees_it_is_ebm():
    X, y = made_rows(300)
    few = DPEBMTreesRegressor(schema=parse_schema(SCHEMA.replace(b"4000", b"300")), epsilon="0.5", delta=1e-5).fit(X, y)
    assert isinstance(few.ensemble_, AdditiveEnsemble)
    assert few.recipe_.unit > Decimal(0)
