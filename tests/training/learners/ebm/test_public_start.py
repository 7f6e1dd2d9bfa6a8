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
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget, Relation
from models.features.features import BooleanFeature, CategoricalFeature, NumericFeature
from training.calibration.calibrate import rehearse
from training.learners.ebm.ebm import DPEBMClassifier
from training.learners.ebm.queries import SCORES, StartLoss
from training.planning.starts import learn_openly, score_of
from training.replay.report import check
from training.rows.partitions.rows import Rows
from training.rows.schema.schema import parse_schema
from training.session.session import Public, Session, Start, sensitivity_of

ADD, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE_ONE
DIGEST = "0" * 64
START = Start(DIGEST, -1.0, ((-3.0, 4.0, 0.5),))
LABELS = ("no", "yes")


def public_of(relation: Relation = ADD, pure: bool = False, records: int = 400, **changes) -> Public:
    budget = Budget.of("1", "0" if pure else "0.000001")
    public = Public(BOOLEAN, "y", LABELS, records, relation, budget, pure, 1)
    return replace(public, **({"start": START} | changes))


def rows_of(data) -> Rows:
    table = np.array(data, np.int64).reshape(len(data), 2)
    return Rows(table[:, :1].T.astype(np.uint8), table[:, 1].astype(np.uint8), [3], 2)


def learner(**parameters) -> DPEBMClassifier:
    return DPEBMClassifier(**({"start": DIGEST, "epochs": 3} | parameters))


@pytest.mark.parametrize(("relation", "norm"), [*product((ADD, REPLACE), ("l1", "l2"))])
def test_no_row_moves_the_comparison_further_than_is_said_and_some_row_nearly_does(relation, norm):
    """Over all tables of up to three rows, each code and label, exactly."""
    far = StartLoss((np.array([-6, 6, 0]) * SCORES,), -4 * SCORES, norm, relation)
    kinds = list(product((0, 1, 2), (0, 1)))
    answers = {data: far(rows_of(data)) for size in (1, 2, 3) for data in combinations_with_replacement(kinds, size)}
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


class Noted(Session):
    """Keeps what was asked."""

    def release(self, query, mechanism):
        self.asked = [*getattr(self, "asked", []), (query, mechanism)]
        return super().release(query, mechanism)


def rows_like(truth: float) -> Rows:
    """Rows whose label follows the code, or its opposite."""
    random = np.random.default_rng(2)
    codes = random.integers(0, 2, 400)
    chances = 1 / (1 + np.exp(-truth * np.where(codes == 1, 2.0, -2.0)))
    return Rows(codes[None].astype(np.uint8), (random.random(400) < chances).astype(np.uint8), [3], 2)


@pytest.mark.parametrize("pure", [False, True])
def test_a_start_that_rows_speak_against_is_left_by_the_same_plan(pure):
    public = public_of(pure=pure, budget=Budget.of("8", "0" if pure else "0.000001"))
    made = learner()
    recipe = made.recipe(public)
    assert [run.purpose for run, _ in recipe.plan.runs].count("compare the public start with none") == 1
    ends = {}
    for truth in (1.0, -1.0):
        session = Noted(public, recipe.unit, recipe.plan, rows_like(truth))
        ensemble = made.learn(session)
        session.close()  # the whole plan was played, whichever way the choice went
        (choice,) = [query for query, _ in session.asked if isinstance(query, StartLoss)]
        assert sensitivity_of(choice, public) == choice.sensitivity(ADD)
        after = [query for query, _ in session.asked if hasattr(query, "terms")][1]
        assert np.array_equal(after.terms[0], choice.terms[0]) is (truth > 0)
        ends[truth] = np.diff(ensemble.terms[0])[0]
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
        ({}, {"classes": ("a", "b", "c")}, "two classes"),
        ({"cuts": "found"}, {}, "cuts: boosting begins"),
        ({"engine": "convex"}, {}, "engine: boosting begins"),
        ({"pairs": 3}, {}, "pairs: boosting begins"),
        ({"balance": 0.5}, {"prevalence": (0.9, 0.1)}, "balance: boosting begins"),
    ],
)
def test_what_does_not_go_with_a_start_is_refused(parameters, changes, problem):
    with pytest.raises(InputError, match=problem):
        learner(**parameters).check(public_of(**changes))


SCHEMA = b"""target: {name: ill, classes: ["no", "yes"]}
records: 300
features:
  age: {type: numeric, range: [0, 100], bins: 10}
  town: {type: categorical, values: [a, b]}
  smokes: {type: boolean}
"""


def public_rows(count: int = 600) -> pa.Table:
    random = np.random.default_rng(1)
    age, smokes = random.uniform(0, 100, count), random.random(count) < 0.4
    odds = (age - 50) / 15 + np.where(smokes, 1.5, -1.0)
    ill = np.where(random.random(count) < 1 / (1 + np.exp(-odds)), "yes", "no")
    return pa.table({"age": age, "town": random.choice(["a", "b", "c"], count), "smokes": smokes, "ill": ill})


def test_public_rows_are_learnt_openly_and_scored_by_other_bins_and_columns():
    ensemble = learn_openly(parse_schema(SCHEMA), public_rows())
    again = learn_openly(parse_schema(SCHEMA), public_rows())
    assert ensemble == again  # there is no noise in it
    own = score_of(ensemble, ensemble.features, DIGEST)
    assert own.terms[0] == tuple(each * ensemble.link for each in ensemble.terms[0])
    fewer = (
        NumericFeature("age", (20.0, 80.0)),
        CategoricalFeature("town", ("b", "z")),
        BooleanFeature("smokes"),
        BooleanFeature("unknown"),
    )
    score = score_of(ensemble, fewer, DIGEST)
    low, middle, high, missing = score.terms[0]
    assert low < middle < high
    assert missing == own.terms[0][-1]
    assert score.terms[1] == (own.terms[1][1], own.terms[1][2], own.terms[1][2], own.terms[1][3])
    assert score.terms[2] == own.terms[2]
    assert score.terms[3] == (0.0, 0.0, 0.0)
    with pytest.raises(InputError, match="another kind"):
        score_of(ensemble, (CategoricalFeature("age", ("1",)),), DIGEST)


@pytest.mark.parametrize("delta", ["0.000001", "0"])
@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_what_begins_from_a_start_keeps_its_promise_on_neighbours(relation, delta):
    """Recorded and played: the same questions, moved by no more than is declared, and by nearly that."""
    schema = parse_schema(SCHEMA)
    start = score_of(learn_openly(schema, public_rows()), schema.features, DIGEST)
    public = Public.of(schema, relation, Budget.of("2", delta), delta == "0")
    report = check(learner, schema, replace(public, start=start), 14, schema.records)
    assert report.ok, report.to_json()
    assert report.reached[f"compare the public start with none ({'l1' if delta == '0' else 'l2'})"] > 0.6
