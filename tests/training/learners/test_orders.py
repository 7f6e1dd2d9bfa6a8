"""The order of a category's values: how far a row moves the counts, what the real noise tells, what becomes of it, and
when; and that rows, models and exports then speak of the same codes."""

from __future__ import annotations

from contextlib import nullcontext
from decimal import Decimal
from itertools import combinations, product
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from draws import ALARM, refuted

from accountant.noise.mechanisms import DiscreteLaplace
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget, Relation
from models.features.features import CategoricalFeature, NumericFeature, OrderedFeature
from models.forms.registry import ensemble_bytes, ensemble_from_bytes
from models.onnx.export import to_onnx
from models.onnx.runtime import OnnxModel
from training.learners.base.orders import ClassCounts, ordered_places, ranks_of
from training.learners.boosting.lazybb import LazyBB
from training.learners.boosting.lazybb_tree import LazyBBTree
from training.learners.parameters import learner_of, stored
from training.rows.packed.cells import Cells, grid_of
from training.rows.partitions.rows import Rows
from training.rows.schema.column_rules import Columns
from training.session.reach import reach
from training.session.session import Public, Rehearsal, Session, sensitivity_of

ADD, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE_ONE
TOWN = CategoricalFeature("town", ("a", "b", "c"))
RUNS = 2500
KINDS = list(product(range(5), (0, 1)))  # a code, "other" and missing among them, and a class


def public_of(relation=ADD, values=3, records=30_000, pure=False, contributions=1, count=1, classes=("no", "yes")):
    features = tuple(CategoricalFeature(f"town {at}", tuple(map(str, range(values)))) for at in range(count))
    budget = Budget.of("1", "0" if pure else "0.000001")
    return Public(features, "y", classes, records, relation, budget, pure, contributions)


def rows_of(data, width=5) -> Rows:
    table = np.array(data, np.uint8).reshape(len(data), 2)
    return Rows(table[:, :1].T.copy(), table[:, 1].copy(), [width])


def neighbours(relation):
    for kept in [(), *((kind,) for kind in KINDS), *combinations(KINDS, 2)]:
        yield from ((kept, (*kept, more)) for more in KINDS if relation is ADD)
        yield from (((*kept, one), (*kept, other)) for one, other in combinations(KINDS, 2) if relation is REPLACE)


def halved():
    true = ClassCounts.sensitivity
    return patch.object(ClassCounts, "sensitivity", lambda self, relation: true(self, relation) / 2)


# ---- privacy ---------------------------------------------------------------------------------------------------------


def farthest(relation, contributions=1, fault=nullcontext) -> float:
    query, public = ClassCounts(0, 5), public_of(relation, contributions=contributions)
    with fault():
        limit = sensitivity_of(query, public)
    moved = [np.abs(query(rows_of(other)) - query(rows_of(one))).sum() for one, other in neighbours(relation)]
    assert max(moved) <= limit, f"moved {max(moved)} > {limit}"
    return max(moved) / limit


@pytest.mark.parametrize("relation", list(Relation))
def test_no_row_moves_the_counts_further_than_they_say(relation):
    """Every neighbour of up to two rows of all kinds: attained; of a person with three rows three times as much."""
    assert farthest(relation) == 1.0
    assert farthest(relation, 3) == pytest.approx(1 / 3)
    with pytest.raises(AssertionError, match="moved"):
        farthest(relation, fault=halved)


@pytest.mark.parametrize("relation", list(Relation))
def test_exact_loss_of_all_columns_together_is_what_is_charged(relation):
    """Three columns, discrete Laplace of epsilon each: the worst exact log ratio over neighbours is the sum of the
    three charges. The loss of Laplace noise is the L1 distance over its scale."""
    epsilon, scale = 0.5, reach(1, 0, relation, "l1") / 0.5
    columns = list(product(range(3), repeat=3))
    kinds = [(codes, label) for codes in columns for label in (0, 1)]
    query = [ClassCounts(at, 3) for at in range(3)]

    def counts(data):
        bins = np.array([codes for codes, _ in data], np.uint8).reshape(len(data), 3).T.copy()
        rows = Rows(bins, np.array([label for _, label in data], np.uint8), [3, 3, 3])
        return np.concatenate([each(rows) for each in query])

    alone = {kind: counts((kind,)) for kind in kinds}
    pairs = (
        [(np.zeros(18, int), moved) for moved in alone.values()]
        if relation is ADD
        else [(alone[one], alone[other]) for one, other in combinations(kinds, 2)]
    )
    worst = max(np.abs(one - other).sum() / scale for one, other in pairs)
    assert worst == pytest.approx(3 * epsilon)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("relation", "one", "other"), [(ADD, ((0, 1),), ((0, 1), (2, 1))), (REPLACE, ((0, 0),) * 2, ((0, 0), (2, 1)))]
)
def test_the_claim_of_the_real_draw_stands_and_a_factor_of_two_is_seen(relation, one, other):
    """As a learner releases it, through a session's plan. False alarm: 1e-4."""
    public, query = public_of(relation), ClassCounts(0, 5)

    def seen(data, epsilon) -> int:
        rows, told = rows_of(data), 0
        rehearsal = Rehearsal(public, Decimal(1))
        for _ in range(RUNS):
            rehearsal.release(query, DiscreteLaplace(epsilon))
        session = Session(public, Decimal(1), rehearsal.plan, rows)
        for _ in range(RUNS):
            noisy = session.release(query, DiscreteLaplace(epsilon))
            told += bool(noisy[5 + 2] >= 1 and (relation is ADD or noisy[0] <= 1))
        return told

    sides = [seen(data, Decimal(1)) for data in (other, one)]
    assert not refuted(*sides, 1.0, RUNS), f"{sides} of {RUNS}: a false alarm has probability {ALARM}"
    assert refuted(*[seen(data, Decimal(2)) for data in (other, one)], 1.0, RUNS)


@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("relation", list(Relation))
def test_the_plan_says_one_count_of_each_category_and_what_they_cost(relation, pure):
    """First of all, a tenth of the budget about, whatever is found; and the selections that follow are the same."""
    many = 3 if relation is ADD else 1
    public = public_of(relation, values=40, pure=pure, contributions=many, count=3)
    plan = LazyBB(rounds=100).recipe(public).plan
    counts, count = plan.runs[0]
    assert (counts.purpose, counts.mechanism) == ("count rows per class and value of a category", "discrete-laplace")
    assert (count, counts.sensitivity) == (3, many * reach(1, 0, relation, "l1"))
    prices = [(n * float(release.event.pure) if pure else n * float(release.event.squared_width))
              for release, n in plan.runs]  # fmt: skip
    assert 0.07 < prices[0] / sum(prices) < 0.14
    without = LazyBB(rounds=100, order="none").recipe(public).plan
    assert [release.purpose for release, _ in plan.runs[1:]] == [release.purpose for release, _ in without.runs]


@pytest.mark.parametrize("learner", [LazyBB(rounds=6), LazyBBTree(rounds=4, depth=2, leaf="vote")])
@pytest.mark.parametrize("relation", list(Relation))
def test_what_is_spent_on_any_rows_is_what_was_rehearsed(learner, relation):
    public = public_of(relation, values=40)
    recipe = learner.recipe(public)
    for data in ([], [(3, 1)], [(at % 42, at % 2) for at in range(300)]):
        session = Session(public, recipe.unit, recipe.plan, rows_of(data, 42))
        model = learner.learn(session)
        assert session.close() == recipe.plan
        assert isinstance(model.features[0], OrderedFeature)


# ---- what becomes of the counts --------------------------------------------------------------------------------------


def test_values_stand_by_their_share_of_a_class_and_rare_ones_in_the_middle():
    counts = np.array([[900, 100, 3, 500, 0], [100, 900, 0, 500, 4.0]])
    assert ranks_of(counts, 20.0) == (0, 4, 1, 2, 3)
    random = np.random.default_rng(2)
    rare = np.concatenate([[[5_000, 1_000], [1_000, 5_000]], random.laplace(0, 30, (2, 60))], axis=1)
    ranks = ranks_of(rare, 30 * 2**0.5)
    assert (ranks[0], ranks[1]) == (0, 61), "noise of a value without rows is no reason to stand at an end"


def test_where_nothing_is_told_values_stand_as_declared():
    assert ranks_of(np.zeros((2, 6)), 10.0) == tuple(range(6))
    assert ranks_of(np.full((2, 6), -9.0), 10.0) == tuple(range(6))
    assert sorted(ranks_of(np.random.default_rng(1).normal(0, 1e15, (2, 50)), 0.0)) == list(range(50))


def test_the_public_rule_and_what_the_parameter_says():
    few, many = public_of(values=30), public_of(values=31)
    assert (ordered_places(few, 19_999, "auto"), ordered_places(many, 0.0, "auto")) == ([], [0])
    assert ordered_places(few, 20_000, "auto") == ordered_places(few, 0.0, "found") == [0]
    assert ordered_places(many, 1e9, "none") == ordered_places(public_of(values=2), 1e9, "auto") == []
    assert ordered_places(public_of(values=40, classes=("a", "b", "c")), 1e9, "auto") == []
    for bad in ({"order": "x"}, {"order": True}):
        with pytest.raises(InputError, match="order"):
            LazyBB(**bad).check(many)
    for public in (public_of(values=2), public_of(values=40, classes=("a", "b", "c"))):
        with pytest.raises(InputError, match="leave it out"):
            LazyBB(order="found").check(public)


def test_a_request_of_before_is_the_same_request():
    assert "order" not in stored(learner_of("lazybb-tree"))
    assert stored(learner_of("lazybb-tree", {"order": "found"}))["order"] == "found"


# ---- rows, models and exports ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cells", [False, True])
def test_rows_stand_in_the_codes_of_their_order(cells):
    """With and without numbers in fine cells beside them; and another category's order is refused."""
    number, span = NumericFeature("x", (1.0,)), (0.0, 2.0)
    features = (TOWN, number) if cells else (TOWN,)
    codes, values = np.array([0, 1, 2, 3, 4, 1]), np.linspace(0, 2, 6)
    bins = np.stack([codes, number.encode(values)])[: len(features)].astype(np.uint8)
    grid = Cells(features, (None, span), lambda at: grid_of(number, span).encode(values)) if cells else None
    rows = Rows(bins, np.zeros(6, np.uint8), [feature.bins for feature in features], 2, cells=grid)
    ordered = OrderedFeature("town", TOWN.values, (2, 0, 3, 1))
    asked = rows.binned((ordered, *features[1:]))
    assert asked.bins[0].tolist() == [2, 0, 3, 1, 4, 0] == ordered.encode(["a", "b", "c", "z", None, "b"]).tolist()
    assert rows.binned(features).bins[0].tolist() == codes.tolist(), "and in their own where these are asked for"
    if cells:
        with pytest.raises(InputError, match="values"):
            rows.binned((OrderedFeature("town", ("a", "b", "x"), (2, 0, 3, 1)), number))


@pytest.mark.parametrize("learner", [LazyBB, LazyBBTree])
def test_a_column_of_many_values_is_learnt_stored_and_exported(learner):
    """120 values of which every second says yes: by tests of one value each, six rounds tell next to nothing."""
    random = np.random.default_rng(4)
    names = [f"town {at}" for at in range(120)]
    town, there = random.integers(0, 120, 6_000), random.random(6_000)
    y = np.where((town % 2 == 1) ^ (random.random(6_000) < 0.1), "yes", "no")
    columns = {"town": {"type": "categorical", "values": names[:119]}}
    texts = [None if gap < 0.01 else names[at] for at, gap in zip(town, there, strict=True)]
    X = pa.table({"town": pa.array(texts), "x": pa.array(random.random(6_000))})
    rule = Columns(low=0, high=1, classes=["no", "yes"], columns=columns, records=6_000)
    fitted = {}
    for order in ("auto", "none"):
        made = learner(schema=rule, epsilon=4, order=order, rounds=6).fit(X, y)
        fitted[order] = float((made.predict(X) == y).mean())
    assert fitted["auto"] > 0.82
    assert fitted["none"] < 0.7
    model = learner(schema=rule, epsilon=4, rounds=6).fit(X, y).ensemble_
    again = ensemble_from_bytes(ensemble_bytes(model))
    assert again == model
    cells = [*names, "elsewhere", "", None]
    columns = {"town": np.array(cells, object), "x": np.full(len(cells), 0.5)}
    labels, chances = OnnxModel(to_onnx(model, {})).predict(columns)
    assert labels.tolist() == model.predict(columns).tolist()
    np.testing.assert_allclose(chances, model.probabilities(columns), rtol=0, atol=1e-6)
