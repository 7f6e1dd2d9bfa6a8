"""DP-EBM of three classes or more: what is asked of rows, what is spent and what is learnt. Its claims:
test_ebm_privacy.py.
"""

from __future__ import annotations

import json
from decimal import Decimal
from itertools import product
from math import exp, isqrt, log

import numpy as np
import pyarrow as pa
import pytest
from split_rows import again

from dpserve_verify.certificates.releases import ReleaseKind, kinds_of
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget, Relation
from models.forms.classes import ClassesEnsemble
from models.onnx.export import to_onnx
from models.onnx.runtime import OnnxModel
from training.calibration.calibrate import calibrate, rehearse
from training.learners import DPEBMClassifier
from training.learners.ebm.queries import FARTHEST, LeafSums, PairScores, PairSums, SlopeSums, lengths, together
from training.learners.ebm.residuals import CHANCE, GRID, SCORES, ClassVectors, class_balance
from training.rows.partitions.rows import Rows
from training.rows.schema.schema import parse_schema
from training.rows.statistics.additive_rows import Joint
from training.session.session import Public, Session

ADD, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE_ONE
ROWS = 900
SCHEMA = """
target: {name: y, classes: [low, middle, high]}
records: 900
features:
  age: {type: numeric, range: [0, 100], bins: 16}
  colour: {type: categorical, values: [red, green]}
  member: {type: boolean}
"""
SORTED = [2, 0, 1]  # places of the declared classes in the order of `classes_`
BOTH = pytest.mark.parametrize("relation", [ADD, REPLACE])
NORMS = pytest.mark.parametrize("norm", ["l1", "l2"])


def table(rows: int = ROWS, seed: int = 0):
    random = np.random.default_rng(seed)
    age = np.where(random.random(rows) < 0.1, np.nan, random.uniform(0, 100, rows))
    signal = np.nan_to_num(age, nan=90) + random.normal(0, 8, rows)
    columns = {
        "age": pa.array(age),
        "colour": pa.array(random.choice(["red", "green", "a secret"], rows)),
        "member": pa.array(random.random(rows) < 0.5),
    }
    return pa.table(columns), np.array(["low", "middle", "high"])[np.digitize(signal, [33, 66])]


def chance_of_high(made: DPEBMClassifier, X: pa.Table) -> float:
    """Return the mean chance of the class "high"."""
    return float(made.predict_proba(X)[:, made.classes_.tolist().index("high")].mean())


def learner(schema: str = SCHEMA, **parameters) -> DPEBMClassifier:
    given = {"epsilon": "1", "delta": "0.000001", "epochs": 3, **parameters}
    return DPEBMClassifier(schema=parse_schema(schema.encode()), **given)


def public_of(relation=ADD, pure: bool = False, contributions: int = 1) -> Public:
    schema, budget = parse_schema(SCHEMA.encode()), Budget.of("1", "0" if pure else "0.000001")
    return Public(schema.features, "y", schema.classes, ROWS, relation, budget, pure, contributions)


def made_rows(classes: int = 4, rows: int = 300) -> Rows:
    random = np.random.default_rng(1)
    widths = [17, 5]
    bins = np.array([random.integers(0, width, rows) for width in widths], np.uint8)
    return Rows(bins, random.integers(0, classes, rows).astype(np.uint8), widths, classes)


def made_terms(size: int, classes: int = 4, widths=(17, 5)):
    random = np.random.default_rng(2)
    return tuple(random.integers(-size, size, (width, classes)) for width in widths)


def scores_of(rows: Rows, terms, constant, row: int):
    return constant + sum(term[code] for term, code in zip(terms, rows.bins[:, row], strict=True))


def chances_of(scores) -> list[float]:
    powers = [exp((score - max(scores)) / SCORES) for score in scores.tolist()]
    return [power / sum(powers) for power in powers]


# ---- the plan --------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("contributions", [1, 3])
def test_what_is_spent_is_what_was_rehearsed_event_by_event(relation, pure, contributions):
    public, made = public_of(relation, pure, contributions), learner(leaves=4)
    plan = rehearse(made, public, Decimal("0.05"))
    assert len(plan) == 3 + 1 + 3 * 3 + 2  # histograms; a sum to start from; steps; where and how steep scores are
    rows = Rows(np.zeros((3, 9), np.uint8), (np.arange(9) % 3).astype(np.uint8), [f.bins for f in public.features], 3)
    session = Session(public, Decimal("0.05"), plan, rows)
    assert isinstance(made.learn(session), ClassesEnsemble)
    assert session.close() == plan
    assert {release.sensitivity for release, _ in plan.runs[1:]} == {contributions * GRID}
    assert kinds_of(plan) == {ReleaseKind.MODEL}


@BOTH
@pytest.mark.parametrize("pure", [False, True])
def test_calibration_from_a_guess_finds_what_a_search_finds(pure, relation):
    public, made = public_of(relation, pure), learner()
    found, searched = made.recipe(public), calibrate(made, public, public.budget)
    assert float(found.unit) == pytest.approx(float(searched.unit), rel=2e-4)
    assert Decimal("0.999") <= found.claim.epsilon <= public.budget.epsilon


# ---- sensitivities ---------------------------------------------------------------------------------------------------


@NORMS
@BOTH
@pytest.mark.parametrize("spread", [0, 900, 40_000, 10**6])
@pytest.mark.parametrize("clip", [1.0, 0.4, 0.001])
def test_no_row_s_vector_is_longer_than_it_may_be_and_some_are_nearly_as_long(spread, clip, relation, norm):
    terms, constant = made_terms(max(1, spread)), np.array([0, 700, -80, 5])
    ends = ((constant + sum(end(term, axis=0) for term in terms)) for end in (np.min, np.max))
    weighed = class_balance((0.4, 0.3, 0.2, 0.1), 0.5)
    vectors, longest = ClassVectors(constant, *ends, clip, relation, norm, weighed), 0.0
    for code, label in [(code, label) for code in range(17) for label in range(4)]:
        row = Rows(np.array([[code], [code % 5]], np.uint8), np.array([label], np.uint8), [17, 5], 4)
        found = LeafSums(vectors, terms, 0, np.zeros(17, np.int64))(row).tolist()
        square = sum(part * part for part in found)
        size = sum(map(abs, found)) if norm == "l1" else isqrt(square - 1) + 1 if square else 0
        assert size <= vectors.most[label] <= vectors.longest == GRID // (1 if relation is ADD else 2)
        longest = max(longest, size / vectors.longest)
    assert longest > (0.5 if spread == 900 and clip == 1 else 0.8)


def test_a_row_of_a_weighed_class_counts_for_less():
    weighed = class_balance((0.6, 0.3, 0.1), 1.0)
    assert weighed.offsets == pytest.approx([log(share) - log(0.6 * 0.3 * 0.1) / 3 for share in (0.6, 0.3, 0.1)])
    none = np.zeros(3, np.int64)
    vectors = ClassVectors(none, none, none, 1.0, ADD, "l2", weighed)
    assert vectors.most.tolist() == pytest.approx([GRID / 6, GRID / 3, GRID], abs=2)
    assert "as much as the others" in vectors.words
    assert class_balance((0.6, 0.3, 0.1), 0.0) is class_balance((), 0.0) is None


@BOTH
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("size", [50, 40_000])
def test_sums_are_those_of_every_row_by_itself(threads, size, relation):
    rows = made_rows()
    rows = again(-(-rows.size // threads), rows)
    terms, leaves, constant = made_terms(size), np.arange(17) % 5, np.array([0, 700, -80, 5])
    ends = ((constant + sum(end(term, axis=0) for term in terms)) for end in (np.min, np.max))
    vectors = ClassVectors(constant, *ends, 0.6, relation, "l2")
    expected = np.zeros((5, 4))
    for i in range(rows.size):
        left = -np.array(chances_of(scores_of(rows, terms, constant, i)))
        left[rows.labels[i]] += 1
        by = min(1.0, vectors.length / CHANCE / np.linalg.norm(left))
        expected[leaves[rows.bins[0, i]]] += left * by / vectors.worth
    query = LeafSums(vectors, terms, 0, leaves)
    found = query(rows)
    np.testing.assert_allclose(found.reshape(5, 4), expected, atol=rows.size * 40)  # of a million steps a row
    assert found.tolist() == query(rows).tolist() == query(again(7, rows)).tolist()


def test_rows_follow_the_terms_forth_and_back_and_too_large_ones_are_refused():
    rows, leaves, none = made_rows(), np.arange(17), np.zeros(4, np.int64)
    vectors = ClassVectors(none, none, none, 1.0, ADD, "l2")
    first, second = made_terms(3000), made_terms(9000)
    steps = [first, (first[0], second[1]), second, first]
    seen = [LeafSums(vectors, terms, 0, leaves)(rows).tolist() for terms in steps]
    assert seen == [LeafSums(vectors, terms, 0, leaves)(made_rows()).tolist() for terms in steps]
    assert seen[0] == seen[3] != seen[1]
    with pytest.raises(InputError, match="terms"):
        LeafSums(vectors, (first[0], second[1] + (1 << 30)), 0, leaves)(rows)


@BOTH
@NORMS
def test_what_rows_say_of_the_slope_is_clipped_and_added_up(relation, norm):
    rows, terms, constant = made_rows(), made_terms(30_000), np.array([0, 700, -80, 5])
    query = SlopeSums(constant, terms, (), norm, relation)
    parts = []
    for i in range(rows.size):
        one = Rows(rows.bins[:, i : i + 1], rows.labels[i : i + 1], rows.widths, 4)
        parts.append(query(one))
        scores = scores_of(rows, terms, constant, i)
        chances = np.array(chances_of(scores))
        points = np.maximum(scores - scores.max(), -31 * SCORES) / SCORES
        rise = points[rows.labels[i]] - chances @ points
        bend = chances @ points**2 - (chances @ points) ** 2
        exact = np.clip([rise, bend], -FARTHEST, FARTHEST) / query.worth
        np.testing.assert_allclose(parts[-1], exact, atol=0.02 / query.worth)
    assert np.sum(parts, axis=0).tolist() == query(rows).tolist()
    rises, bends = np.abs(parts).max(axis=0).tolist()
    assert max(rises, bends) <= query.part
    assert rises > 0.99 * query.part
    across = 1 if relation is ADD else 2
    moved = query.part * (across + 1) if norm == "l1" else query.part * (across**2 + 1) ** 0.5
    assert GRID - 3 <= moved <= GRID == query.sensitivity(relation)


# ---- what is released ------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("delta", ["0", "0.000001"])
def test_three_classes_are_learnt_and_exported(relation, delta):
    made = learner(epsilon="50", epochs=10, relation=str(relation), delta=delta).fit(*table())
    X, y = table(2000, seed=9)
    assert made.score(X, y) > 0.75
    chances = made.predict_proba(X)
    assert chances.sum(axis=1) == pytest.approx(1)
    missing = made.predict({"age": [np.nan], "colour": ["never seen"], "member": [None]})
    assert missing.tolist() == ["high"]  # a missing age is a 90
    columns = {name: X[name] for name in X.column_names}
    labels, exported = OnnxModel(to_onnx(made.ensemble_, {})).predict(columns)
    assert labels.tolist() == made.predict(X).tolist()
    np.testing.assert_allclose(exported[:, SORTED], chances, atol=1e-6)
    assert "secret" not in json.dumps(made.ensemble_.to_json())
    assert [len(count) for count in made.ensemble_.counts] == [feature.bins for feature in made.ensemble_.features]
    assert [sum(count) for count in made.ensemble_.counts] == pytest.approx([ROWS] * 3, abs=600)


def test_chances_are_as_high_as_they_come_true():
    """Where residuals are clipped hard, the last sums mend the slope: .006 apart by .004 (20 fits), .042 without."""
    made = learner(epsilon="50", epochs=20, clip=0.1).fit(*table())
    X, y = table(4000, seed=9)
    chances = made.predict_proba(X)
    right = made.predict(X) == y
    assert chances.max(axis=1).mean() == pytest.approx(right.mean(), abs=0.025)
    for at, label in enumerate(made.classes_):
        assert chances[:, at].mean() == pytest.approx((y == label).mean(), abs=0.03)


def test_the_last_sums_mend_what_clipped_residuals_leave_of_a_rare_class():
    """By 6 fits .76 of its share by .03; without the sums that move the constants .45 by .015."""
    random = np.random.default_rng(3)
    age = random.uniform(0, 100, 6000)
    y = np.where(random.random(6000) < 0.2 * (age > 75), "high", np.where(age < 50, "low", "middle"))
    X = pa.table({"age": age, "colour": ["red"] * 6000, "member": [True] * 6000})
    made = learner(SCHEMA.replace("900", "6000"), epsilon="20", epochs=20, clip=0.2, pairs=0).fit(X, y)
    assert 0.6 < chance_of_high(made, X) / (y == "high").mean() < 1.2


def test_declared_shares_find_a_rare_class_and_chances_go_back_to_them():
    random = np.random.default_rng(3)
    age = random.uniform(0, 100, 6000)
    y = np.where(random.random(6000) < 0.06 * (age > 75), "high", np.where(age < 50, "low", "middle"))
    schema = SCHEMA.replace("high]}", "high], prevalence: [0.5, 0.485, 0.015]}").replace("900", "6000")
    X = pa.table({"age": age, "colour": ["red"] * 6000, "member": [True] * 6000})
    made = learner(schema, epsilon="20", epochs=20, balance=1).fit(X, y)
    assert chance_of_high(made, X) == pytest.approx((y == "high").mean(), abs=0.01)
    assert any("as much as the others" in release.purpose for release, _ in made.recipe_.plan.runs)


# ---- pairs of features -----------------------------------------------------------------------------------------------


def test_two_features_that_say_together_what_neither_says_alone():
    random = np.random.default_rng(5)
    left, right = random.uniform(0, 100, 4000), random.uniform(0, 100, 4000)
    noise = random.random(4000) < 0.5
    y = np.where((left > 50) == (right > 50), "high", np.where(noise, "low", "middle"))
    schema = """
target: {name: y, classes: [low, middle, high]}
records: 4000
features:
  left: {type: numeric, range: [0, 100], bins: 16}
  noise: {type: boolean}
  right: {type: numeric, range: [0, 100], bins: 16}
"""
    X = pa.table({"left": left, "noise": noise, "right": right})
    alone, found = (learner(schema, epsilon="20", epochs=20, pairs=many).fit(X, y) for many in (0, 1))
    assert [pair.features for pair in found.ensemble_.pairs] == [(0, 2)]
    assert alone.score(X, y) < 0.7 < 0.8 < found.score(X, y)
    named = learner(schema, epsilon="20", epochs=20, pairs="left & right").fit(X, y)
    assert len(named.recipe_.plan) == len(found.recipe_.plan) - 1  # nothing is scored
    assert named.score(X, y) > 0.8
    labels, chances = OnnxModel(to_onnx(named.ensemble_, {})).predict({name: X[name] for name in X.column_names})
    assert labels.tolist() == named.predict(X).tolist()
    np.testing.assert_allclose(chances[:, SORTED], named.predict_proba(X), atol=1e-6)


@NORMS
@BOTH
@pytest.mark.parametrize("asked", [PairScores, PairSums])
def test_scores_and_sums_of_pairs_move_no_further_than_they_say(relation, norm, asked):
    """Every pair of neighbours with at most two rows in common, and rows that add up in one row of the cells."""
    pair = Joint((0, 1), ((0, 1, 2), (0, 1, 2)))
    terms, none = (np.zeros((3, 3), np.int64),) * 2, np.zeros(3, np.int64)
    query = asked(ClassVectors(none, none, none, 1.0, relation, norm), terms, (pair,) * 4)

    def scores(rows):
        table = np.array(rows, np.int64).reshape(-1, 3)
        return query(Rows(table[:, :2].T.astype(np.uint8), table[:, 2].astype(np.uint8), [3, 3], 3)).astype(float)

    every = list(product((0, 1), (0, 1), (0, 1, 2)))
    crossed = ((0, 1, 0), (0, 1, 2), (1, 0, 0), (1, 0, 2))  # a row of class 1 at (0, 0) takes from both sums
    base = [(), *((row,) for row in every), *(((0, 0, 0), row) for row in every), crossed]
    worst = 0.0
    for shared in base:
        before = scores(shared)
        for row in every:
            others = [scores((*shared, other)) for other in every] if relation is REPLACE else [before]
            moved = [scores((*shared, row)) - other for other in others]
            worst = max(worst, *(np.abs(each).sum() if norm == "l1" else np.linalg.norm(each) for each in moved))
    limit = query.sensitivity(relation)
    most = query.most if asked is PairScores else GRID
    assert limit == (4 * most if norm == "l1" else 2 * most)
    near = (0.99 if relation is ADD else 0.49) * (0.61 if norm == "l1" else 1)  # L2 within L1; no two rows opposite
    assert near * limit < worst <= limit


def test_lengths_are_whole_numbers_however_long():
    table = np.array([[[3, 4, 0], [-3, -4, 0]], [[1 << 60, 0, 0], [0, 5, 12]]])
    assert lengths(table) == 5 + 5 + (1 << 60) + 13
    assert together(table[:1]) == 10 - 10
