"""Boosting that begins from a public score: what it asks, what a row moves, when the start is left, what it is
made of."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from itertools import combinations_with_replacement, product

import numpy as np
import pyarrow as pa
import pytest
from exact_laws import BOOLEAN

from accountant.errors import PlanMismatch
from dpserve_platform.replay.report import check
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget, Relation
from models.features.features import BooleanFeature, CategoricalFeature, NumericFeature
from training.calibration.calibrate import rehearse
from training.learners.ebm.ebm import DPEBMClassifier
from training.learners.ebm.public_start import ChanceSum, ClassSum, NumberSum, StartSum
from training.learners.ebm.residuals import SCORES
from training.planning.starts import learn_openly, score_of
from training.rows.partitions.partition import TARGET_GRID
from training.rows.partitions.rows import Rows
from training.rows.schema.schema import parse_schema
from training.session.session import Public, Session, Start, sensitivity_of

ADD, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE_ONE
DIGEST = "0" * 64
START = Start(DIGEST, (-1.0,), (((-3.0,), (4.0,), (0.5,)),))
THREE = Start(DIGEST, (-1.0, 0.5, 0.5), (((3.0, 0.0, -3.0), (-3.0, 0.0, 3.0), (0.0, 0.0, 0.0)),))
NUMBER = Start(DIGEST, (0.1,), (((-0.4,), (0.5,), (0.0,)),))
LABELS = ("no", "yes")
KINDS = ("two", "three", "number")


def public_of(relation: Relation = ADD, pure: bool = False, records: int = 400, **changes) -> Public:
    budget = Budget.of("1", "0" if pure else "0.000001")
    public = Public(BOOLEAN, "y", LABELS, records, relation, budget, pure, 1)
    return replace(public, **({"start": START} | changes))


def of_kind(kind: str, **changes) -> Public:
    more = {
        "two": {},
        "three": {"classes": ("a", "b", "c"), "start": THREE},
        "number": {"classes": None, "target_range": (0.0, 10.0), "start": NUMBER},
    }[kind]
    return public_of(**(more | changes))


def rows_of(data, kind: str = "two") -> Rows:
    table = np.array(data, np.int64).reshape(len(data), 2)
    codes, answers = table[:, :1].T.astype(np.uint8), table[:, 1]
    if kind == "number":
        return Rows(codes, answers.astype(np.int32), [3], 0)
    return Rows(codes, answers.astype(np.uint8), [3], 2 if kind == "two" else 3)


def learner(**parameters) -> DPEBMClassifier:
    return DPEBMClassifier(**({"start": DIGEST, "epochs": 3} | parameters))


def far_query(kind: str, norm: str, relation: Relation):
    if kind == "three":
        terms = np.array([[6, 0, -6], [-6, 6, 0], [0, 0, 0]]) * SCORES
        return ClassSum((terms,), np.array([-4, 0, 2]) * SCORES, norm, relation)
    if kind == "number":
        terms = np.array([-TARGET_GRID, TARGET_GRID, 0]) // 2
        return NumberSum((terms,), TARGET_GRID // 8, norm, relation)
    return ChanceSum((np.array([-6, 6, 0]) * SCORES,), -4 * SCORES, norm, relation)


@pytest.mark.parametrize(("kind", "relation", "norm"), [*product(KINDS, (ADD, REPLACE), ("l1", "l2"))])
def test_no_row_moves_the_comparison_further_than_is_said_and_some_row_nearly_does(kind, relation, norm):
    """Over all tables of up to three rows, each code and answer, exactly."""
    far = far_query(kind, norm, relation)
    answers_of = {"two": (0, 1), "three": (0, 1, 2), "number": (-TARGET_GRID, 0, TARGET_GRID)}[kind]
    kinds = list(product((0, 1, 2), answers_of))
    tables = (data for size in (1, 2, 3) for data in combinations_with_replacement(kinds, size))
    answers = {data: far(rows_of(data, kind)) for data in tables}
    most = 0.0
    for data, answer in answers.items():
        for row in kinds:
            other = tuple(sorted((*data, row))) if relation is ADD else tuple(sorted((*data[1:], row)))
            if other in answers:
                moved = (answers[other] - answer).astype(float)
                most = max(most, float(np.abs(moved).sum() if norm == "l1" else np.sqrt((moved**2).sum())))
    said = far.sensitivity(relation)
    assert 0.85 * said < most <= said
    with pytest.raises(PlanMismatch):
        far.sensitivity(REPLACE if relation is ADD else ADD)


class RecordingSession(Session):
    """Keeps what was asked."""

    def release(self, query, mechanism):
        self.asked = [*getattr(self, "asked", []), (query, mechanism)]
        return super().release(query, mechanism)


def rows_like(truth: float, kind: str) -> Rows:
    """Rows whose answer follows the code, or its opposite."""
    random = np.random.default_rng(2)
    codes = random.integers(0, 2, 400)
    follows = np.where(random.random(400) < 1 / (1 + np.exp(-truth * 2.0)), codes, 1 - codes)
    answers = {"two": follows, "three": 2 * follows, "number": (2 * follows - 1) * TARGET_GRID // 2}[kind]
    return rows_of(np.stack([codes, answers], axis=1), kind)


@pytest.mark.parametrize(("kind", "pure"), [*product(KINDS, (False, True))])
def test_a_start_that_rows_speak_against_is_left_by_the_same_plan(kind, pure):
    public = of_kind(kind, pure=pure, budget=Budget.of("8", "0" if pure else "0.000001"))
    made = learner()
    recipe = made.recipe(public)
    assert [run.purpose for run, _ in recipe.plan.runs].count("compare the public start with none") == 1
    ends = {}
    for truth in (1.0, -1.0):
        session = RecordingSession(public, recipe.unit, recipe.plan, rows_like(truth, kind))
        ensemble = made.learn(session)
        session.close()  # the whole plan was played, whichever way the choice went
        (choice,) = [query for query, _ in session.asked if isinstance(query, StartSum)]
        assert sensitivity_of(choice, public) == choice.sensitivity(ADD)
        after = [query for query, _ in session.asked if hasattr(query, "terms")][1]
        assert np.array_equal(after.terms[0], choice.terms[0]) is (truth > 0)
        ends[truth] = np.diff(np.array(ensemble.terms[0]).reshape(3, -1)[:, -1])[0]
    assert ends[1.0] > 0 > ends[-1.0]


def test_without_a_start_the_plan_is_what_it_was():
    assert all(
        "start" not in run.purpose or "public" not in run.purpose
        for run, _ in rehearse(DPEBMClassifier(epochs=3), public_of(start=None), Decimal("0.1")).runs
    )


@pytest.mark.parametrize(
    ("parameters", "changes", "problem"),
    [
        ({}, {"start": None}, "dpserve train --public"),
        ({"start": "1" * 64}, {}, "dpserve train --public"),
        ({"cuts": "found"}, {}, "cuts: boosting begins"),
        ({"engine": "convex"}, {}, "engine: boosting begins"),
        ({"pairs": 3}, {}, "pairs: boosting begins"),
        ({"balance": 0.5}, {"prevalence": (0.9, 0.1)}, "balance: boosting begins"),
    ],
)
def test_what_does_not_go_with_a_start_is_refused(parameters, changes, problem):
    with pytest.raises(InputError, match=problem):
        learner(**parameters).check(public_of(**changes))


FEATURES = """records: 300
features:
  age: {type: numeric, range: [0, 100], bins: 10}
  town: {type: categorical, values: [a, b]}
  smokes: {type: boolean}
"""
TARGETS = {
    "two": 'target: {name: ill, classes: ["no", "yes"]}',
    "three": "target: {name: ill, classes: [low, middle, high]}",
    "number": "target: {name: ill, range: [-10, 10]}",
}


def schema_of(kind: str):
    return parse_schema(f"{TARGETS[kind]}\n{FEATURES}".encode())


def public_rows(kind: str = "two", count: int = 600) -> pa.Table:
    random = np.random.default_rng(1)
    age, smokes = random.uniform(0, 100, count), random.random(count) < 0.4
    odds = (age - 50) / 15 + np.where(smokes, 1.5, -1.0)
    ill = {
        "two": np.where(random.random(count) < 1 / (1 + np.exp(-odds)), "yes", "no"),
        "three": np.array(["low", "middle", "high"])[np.digitize(odds + random.normal(size=count), (-1, 1))],
        "number": np.clip(odds + random.normal(size=count), -10, 10),
    }[kind]
    return pa.table({"age": age, "town": random.choice(["a", "b", "c"], count), "smokes": smokes, "ill": ill})


def facts(kind: str, **changes) -> Public:
    return replace(Public.of(schema_of(kind), ADD, Budget.of("2", "0.000001"), False), **changes)


@pytest.mark.parametrize("kind", KINDS)
def test_public_rows_are_learnt_openly_and_scored_by_other_bins_and_columns(kind):
    ensemble = learn_openly(schema_of(kind), public_rows(kind))
    assert ensemble == learn_openly(schema_of(kind), public_rows(kind))  # there is no noise in it
    own = score_of(ensemble, facts(kind), DIGEST)
    fewer = (
        NumericFeature("age", (20.0, 80.0)),
        CategoricalFeature("town", ("b", "z")),
        BooleanFeature("smokes"),
        BooleanFeature("unknown"),
    )
    score = score_of(ensemble, facts(kind, features=fewer), DIGEST)
    low, middle, high, missing = (each[-1] for each in score.terms[0])
    assert low < middle < high
    assert missing == own.terms[0][-1][-1]
    assert score.terms[1] == (own.terms[1][1], own.terms[1][2], own.terms[1][2], own.terms[1][3])
    assert score.terms[2] == own.terms[2]
    assert score.terms[3] == ((0.0,) * len(own.constant),) * 3
    with pytest.raises(InputError, match="another kind"):
        score_of(ensemble, facts(kind, features=(CategoricalFeature("age", ("1",)),)), DIGEST)


def test_a_start_says_the_same_of_classes_in_another_order_and_of_a_number_in_another_range():
    two = learn_openly(schema_of("two"), public_rows())
    one, other = (score_of(two, facts("two", classes=order), DIGEST) for order in (LABELS, LABELS[::-1]))
    assert [-part[0] for part in one.terms[0]] == [part[0] for part in other.terms[0]]
    assert one.constant[0] == -other.constant[0]
    three = learn_openly(schema_of("three"), public_rows("three"))
    one, other = (
        score_of(three, facts("three", classes=order), DIGEST) for order in (three.classes, ("high", "low", "middle"))
    )
    low, middle, high = one.terms[0][3]
    assert other.terms[0][3] == (high, low, middle)
    number = learn_openly(schema_of("number"), public_rows("number"))
    one, other = (score_of(number, facts("number", target_range=ends), DIGEST) for ends in ((-10.0, 10.0), (0.0, 10.0)))
    assert np.array(other.terms[0]) == pytest.approx(2 * np.array(one.terms[0]))
    assert 5 + 5 * other.constant[0] == pytest.approx(10 * one.constant[0])  # the same number
    for ensemble, public, problem in (
        (two, facts("three"), "ill, one of no, yes, and not ill, one of low, middle, high"),
        (two, facts("number"), "and not the number ill"),
        (number, facts("two"), "predicts the number ill"),
        (three, facts("three", classes=("low", "middle", "top")), "and not ill"),
        (two, facts("two", target="sick"), "and not sick"),
    ):
        with pytest.raises(InputError, match=problem):
            score_of(ensemble, public, DIGEST)


@pytest.mark.parametrize(("kind", "relation", "delta"), [*product(KINDS, (ADD, REPLACE), ("0.000001", "0"))])
def test_what_begins_from_a_start_keeps_its_promise_on_neighbours(kind, relation, delta):
    """Recorded and played: the same questions, moved by no more than is declared, and by nearly that."""
    schema = schema_of(kind)
    public = Public.of(schema, relation, Budget.of("2", delta), delta == "0")
    start = score_of(learn_openly(schema, public_rows(kind)), public, DIGEST)
    report = check(learner, schema, replace(public, start=start), 14, schema.records)
    assert report.ok, report.to_json()
    assert report.reached[f"compare the public start with none ({'l1' if delta == '0' else 'l2'})"] > 0.6
