"""Rows with weights: every query that weighs them moves by what is charged, over all neighbours; to weigh k is to stand
there k times; and a reach without the weight in it is caught (docs/privacy/rows.md).
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from functools import cache
from itertools import product

import numpy as np
import pytest
from exact_laws import public_of, transcript_law

from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import NANO, Budget, Relation
from dpserve_verify.privacy.renyi import compose_pure
from dpserve_verify.privacy.weights import PARTS, weight_fault
from models.features.features import BooleanFeature, CategoricalFeature, NumericFeature
from models.forms.additive import AdditiveEnsemble
from models.worth.stated import layout_of
from training.calibration.calibrate import rehearse
from training.learners import LEARNERS, LazyBB
from training.measuring.answers.sums import GRID, Addend, CellSums
from training.measuring.profile.choosing import PairScores
from training.measuring.profile.counts import TableCounts
from training.measuring.worth.histogram import CellCounts
from training.rows.partitions.partition import TARGET_GRID
from training.rows.partitions.rows import Rows, order_by_weight
from training.session.exact import Exact
from training.session.reach import OnePlace
from training.session.session import Public, Rehearsal, sensitivity_of

ADD, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE_ONE
FEATURES = NumericFeature("n", (1.0, 2.0)), CategoricalFeature("c", ("a", "b"))
WIDTHS = [feature.bins for feature in FEATURES]
WEIGHTS = (1, PARTS // 2, PARTS)
ANSWERS = {"two": (0, 1), "three": (0, 2), "number": (-TARGET_GRID, 12345)}
CLASSES = {"two": ("no", "yes"), "three": ("a", "b", "c"), "number": None}
ASKED = {
    "ebm": ("ebm", {"epochs": 2, "pairs": 1, "engine": "epochs"}, ("two", "three", "number")),
    "beside": ("ebm-trees", {"epochs": 1, "pairs": 0, "trees": 2, "depth": 2}, ("number",)),
    "lazybb": ("lazybb", {"rounds": 2, "reweighting": "scheduled"}, ("two", "three")),
    "trees": ("lazybb-tree", {"rounds": 2, "depth": 2, "reweighting": "scheduled"}, ("two",)),
    "gini": ("lazybb-tree", {"rounds": 2, "depth": 2, "leaf": "vote", "criterion": "gini"}, ("two",)),
    "error": ("lazybb-tree", {"rounds": 2, "depth": 2, "criterion": "error", "growth": "best-first"}, ("two",)),
    "counts": ("forest", {"leaf": "counts", "trees": 2, "depth": 2}, ("two",)),
    "residuals": ("forest", {"leaf": "residuals", "trees": 2, "depth": 2}, ("two",)),
    "label": ("forest", {"leaf": "label", "trees": 2, "depth": 2}, ("two",)),
}
Row = tuple[int, ...]  # two codes, the answer, the weight


def public(kind: str = "two", relation: Relation = ADD, contributions: int = 1, parts: int = PARTS) -> Public:
    span = (0.0, 4.0) if kind == "number" else None
    budget = Budget.of("1", "0.000001")
    about = Public(FEATURES, "y", CLASSES[kind], 1000, relation, budget, False, contributions, span)
    return replace(about, parts=parts, most=about.most * parts)


def rows_of(kind: str, table: list[Row]) -> Rows:
    codes = np.array(table, np.int64).reshape(-1, 4)
    order, weights = order_by_weight(codes[:, 3])
    answers = codes[order, 2].astype(np.int32 if kind == "number" else np.uint8)
    return Rows(codes[order, :2].T.astype(np.uint8), answers, WIDTHS, len(CLASSES[kind] or ()), weights=weights)


def repeated(kind: str, table: list[Row]) -> Rows:
    """The rows without weights, each as often as it weighs."""
    codes = np.array([row for row in table for _ in range(row[3])], np.int64).reshape(-1, 4)
    answers = codes[:, 2].astype(np.int32 if kind == "number" else np.uint8)
    return Rows(codes[:, :2].T.astype(np.uint8).copy(), answers, WIDTHS, len(CLASSES[kind] or ()))


def universe(kind: str, weights=WEIGHTS) -> list[Row]:
    return [*product((0, 3), (0, 1), ANSWERS[kind], weights)]


def rest_of(kind: str) -> list[Row]:
    random = np.random.default_rng(7)
    return [(int(n), int(c), ANSWERS[kind][int(n + c) % 2], int(w)) for n, c, w in random.integers(1, 4, (30, 3))]


class Recorder(Exact):
    """Answers without noise, and keeps the last query of each kind."""

    def release(self, query, mechanism):
        self.asked[type(query)] = query
        return super().release(query, mechanism)


@cache
def asked_by(learner: str, kind: str, relation: Relation) -> list:
    name, parameters, _ = ASKED[learner]
    session = Recorder(public(kind, relation), Decimal("0.1"), rows_of(kind, rest_of(kind)))
    session.asked = {}
    LEARNERS[name](**parameters).learn(session)
    return [*session.asked.values()]


def counting(kind: str) -> list:
    terms = (tuple(7 * code - 9 for code in range(WIDTHS[0])), (0,) * WIDTHS[1])
    span = (0.0, 4.0) if kind == "number" else None
    ensemble = AdditiveEnsemble(FEATURES, "y", CLASSES[kind] or (), span, 0.1, 0, terms, (), ())
    low, high = np.array([GRID, 0, GRID - 100, 0]), np.array([0, GRID, 100, 0])
    cells = tuple(np.arange(width, dtype=np.intp) for width in WIDTHS)
    queries: list = [CellCounts(ensemble, layout_of(ensemble))]
    for norm in ("l1", "l2"):
        queries += [TableCounts(tuple(WIDTHS), ((0, 1),), norm)]
        queries += [CellSums((WIDTHS[0],), (), (Addend(), Addend(1, (low + high,)), Addend(1, (low, high))), norm)]
        queries += [PairScores(cells, ((0, 1),), (np.full(WIDTHS[0] * WIDTHS[1], 40 * PARTS),), norm)]
    return queries


CASES = [
    *((learner, kind, relation) for learner, (*_, kinds) in ASKED.items() for kind in kinds for relation in Relation),
    *(("count", kind, relation) for kind in ("two", "number") for relation in Relation),
]


def queries_of(learner: str, kind: str, relation: Relation) -> list:
    return counting(kind) if learner == "count" else asked_by(learner, kind, relation)


def length(query, moved: np.ndarray) -> float:
    if query.norm == "range":  # of a choice for each leaf: of all leaves together
        return float(np.ptp(np.atleast_2d(moved), axis=-1).sum())
    return float(np.linalg.norm(moved.ravel(), 1 if query.norm == "l1" else 2))


def most_moved(query, kind: str, relation: Relation, every: list[Row]) -> float:
    """The most that a neighbour moves the answer, from all of them, one by one."""
    rest = rest_of(kind)
    answers = [np.asarray(query(rows_of(kind, [*rest, row])), np.int64) for row in every]
    none = np.asarray(query(rows_of(kind, rest)), np.int64)
    pairs = [(each, none) for each in answers] if relation is ADD else product(answers, answers)
    return max(length(query, one - other) for one, other in pairs)


@pytest.mark.parametrize(("learner", "kind", "relation"), CASES)
def test_no_neighbour_moves_a_query_further_than_is_charged(learner, kind, relation):
    """Rows of weight 1, a half and the most, on a rest of weights; counts and sums reach what is charged. A row of
    twice the most, and a reach without the weight in it, would be beyond.
    """
    queries = queries_of(learner, kind, relation)
    assert queries
    for query in queries:
        charged = sensitivity_of(query, public(kind, relation))
        assert charged == PARTS * query.sensitivity(relation)
        found = most_moved(query, kind, relation, universe(kind))
        assert found <= charged, query.purpose
        if isinstance(query, OnePlace | CellSums | TableCounts | CellCounts):
            assert charged - PARTS < found  # rounded up to a whole row's part at most: l2
            assert query.norm == "l2" or found == charged  # so that one less by two is caught
            assert found > sensitivity_of(query, public(kind, relation, parts=1)), "the weight was forgotten"


@pytest.mark.parametrize(("learner", "kind"), [(each, kind) for each, kind, relation in CASES if relation is ADD])
def test_to_weigh_k_is_to_stand_there_k_times(learner, kind):
    """Bit by bit, of every query; a row that weighs 0 is none."""
    table = [*rest_of(kind), *universe(kind, (1, 5, PARTS))]
    weighed = rows_of(kind, [*table, *universe(kind, (0,))])
    for query in queries_of(learner, kind, ADD):
        assert np.array_equal(query(weighed), query(repeated(kind, table))), query.purpose


def test_rows_of_one_person_move_as_many_times_as_there_are():
    query = TableCounts(tuple(WIDTHS), (), "l1")
    rest, person = rest_of("two"), [(0, 0, 1, PARTS)] * 3
    moved = query(rows_of("two", [*rest, *person])) - query(rows_of("two", rest))
    assert np.abs(moved).sum() == sensitivity_of(query, public(contributions=3))


UNIT = Decimal(2)
BOOLEAN = (BooleanFeature("x"),)
SMALL = [*product((0, 1), (0, 1), (1, PARTS))]  # code, class, weight


def worst_loss(parts: int, relation: Relation, rounds: int) -> float:
    """The largest loss of a whole run over neighbours of one or two rows, over the plan's price."""
    learner = LazyBB(rounds=rounds, rate=0.1, slope=0.1, decay=0.0, reweighting="scheduled", threshold=False)
    about = replace(public_of(relation), parts=parts, most=public_of(relation).most * PARTS)
    plan = rehearse(learner, replace(about, parts=PARTS), UNIT)

    @cache
    def law(table):
        codes = np.array(sorted(table, key=lambda row: row[2]), np.int64).reshape(-1, 3)
        rows = Rows(
            codes[:, :1].T.astype(np.uint8), codes[:, 1].astype(np.uint8), [BOOLEAN[0].bins], weights=codes[:, 2]
        )
        return transcript_law(learner, about, UNIT, rows, len(plan))

    worst = 0.0
    for shared in [(), *((row,) for row in SMALL[1::4])][:rounds]:
        grown = [law((*shared, row)) for row in SMALL]
        others = [law(shared)] if relation is ADD else grown
        worst = max(worst, *(float(np.abs(one - other).max()) for one in grown for other in others))
    return worst / (compose_pure(plan.events) / NANO)


@pytest.mark.parametrize("relation", list(Relation))
def test_a_whole_run_loses_no_more_than_its_price_and_without_the_weight_in_the_reach_far_more(relation):
    assert 0.6 <= worst_loss(PARTS, relation, 2) <= 1 + 1e-9
    assert worst_loss(PARTS // 4, relation, 1) > 1.2  # a quarter of the reach
    assert worst_loss(2, relation, 1) > 10


def test_noise_is_as_without_weights_in_rows_and_the_plan_says_what_was_drawn():
    query = TableCounts(tuple(WIDTHS), (), "l1")
    about = public()
    rehearsal = Rehearsal(about, Decimal(1))
    from accountant.noise.mechanisms import DiscreteLaplace

    rehearsal.release(query, DiscreteLaplace(Decimal(1)))
    [(release, _)] = rehearsal.plan.runs
    assert release.sensitivity == PARTS * query.sensitivity(ADD)
    assert weight_fault(rehearsal.plan, PARTS) is None
    plain = Rehearsal(public(parts=1), Decimal(1))
    plain.release(TableCounts((3,), (), "l1"), DiscreteLaplace(Decimal(1)))
    assert "is not of rows that are weighed" in weight_fault(plain.plan, PARTS)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("bdpe", {}),
        ("lazybb-tree", {"reweighting": "projected"}),
        ("lazybb", {"reweighting": "projected"}),
        ("ebm", {"engine": "convex"}),
    ],
)
def test_what_has_no_proof_with_weights_says_so_before_anything_is_charged(name, parameters):
    with pytest.raises(InputError, match="has no proof with them; learners with weights|all weigh the same"):
        LEARNERS[name](**parameters).recipe(public())


def test_auto_is_a_learner_with_weights():
    for kind in CLASSES:
        assert LEARNERS["auto"]().recipe(public(kind)).plan.runs
    with pytest.raises(InputError, match="asked for sums alone"):
        _ = rows_of("two", rest_of("two")).labels
