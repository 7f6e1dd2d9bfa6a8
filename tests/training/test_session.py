"""Rehearse and play: what was rehearsed is what is spent, event by event, and nothing else is ever drawn."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow.parquet as pq
import pytest
from exact_laws import public_of, rows_of

from accountant.errors import PlanMismatch
from accountant.noise.mechanisms import DiscreteGaussian, DiscreteLaplace, ExponentialSelection, PermuteAndFlip
from accountant.privacy.claims import claim
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget, Relation, from_nano, nano
from dpserve_verify.privacy.events import Plan
from training.calibration.calibrate import calibrate, rehearse
from training.learners.boosting.lazybb import LazyBB
from training.rows.schema.schema import parse_schema
from training.rows.tables.data import rows_of as rows_of_table
from training.session.session import Rehearsal, Session

ADULT = Path(__file__).resolve().parents[2] / "examples" / "data"
DATA = [(0, 0), (0, 1), (1, 1), (1, 1)]
ONE = Decimal(1)


@dataclass(frozen=True)
class Count:
    """A query of the tests: it counts rows, says its sensitivity, and notes that it was computed."""

    norm: str = "range"
    size: int = 3
    scale: int = 1
    purpose: str = "count"
    computed: ClassVar[list[str]] = []

    def sensitivity(self, relation: Relation) -> int:
        return self.scale * (1 if relation is Relation.ADD_REMOVE else 2)

    def __call__(self, rows):
        self.computed.append(self.purpose)
        return np.full(self.size, rows.size, dtype=np.int64)


class Asks:
    """A learner that makes a fixed list of releases."""

    def __init__(self, *asks) -> None:
        self.asks = asks

    def learn(self, session):
        return [session.release(query, mechanism) for query, mechanism in self.asks]


@pytest.fixture
def draws(monkeypatch):
    """Every draw of every mechanism, noted."""
    Count.computed.clear()
    noted: list[str] = []
    for kind in (ExponentialSelection, PermuteAndFlip, DiscreteLaplace, DiscreteGaussian):

        def draw(self, values, sensitivity, true=kind.draw):
            noted.append(self.name)
            return true(self, values, sensitivity)

        monkeypatch.setattr(kind, "draw", draw)
    return noted


def session_of(learner, relation=Relation.ADD_REMOVE, unit=ONE, **options) -> Session:
    public = public_of(relation)
    return Session(public, unit, rehearse(learner, public, unit), rows_of(DATA), **options)


SELECT = (Count(), ExponentialSelection(ONE))
NOISE = (Count(norm="l1"), DiscreteLaplace(ONE))


def test_spent_is_what_was_rehearsed_event_by_event(draws):
    learner = Asks(SELECT, SELECT, NOISE, SELECT)
    session = session_of(learner)
    answers = learner.learn(session)
    assert [type(answer) for answer in answers] == [int, int, np.ndarray, int]
    assert session.spent == session.plan
    assert session.close() == rehearse(learner, public_of(Relation.ADD_REMOVE), ONE)
    assert draws == ["exponential", "exponential", "discrete-laplace", "exponential"]


OTHERS = {
    "another price": (Count(), ExponentialSelection(Decimal("1.000000001"))),
    "a lower price": (Count(), ExponentialSelection(Decimal("0.5"))),
    "another mechanism of the same number": (Count(), PermuteAndFlip(ONE)),
    "another sensitivity": (Count(scale=2), ExponentialSelection(ONE)),
    "another purpose": (Count(purpose="other"), ExponentialSelection(ONE)),
    "another norm": NOISE,
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_anything_off_plan_raises_before_it_is_computed_or_drawn(other, draws):
    session = session_of(Asks(SELECT, SELECT))
    session.release(*SELECT)
    with pytest.raises(PlanMismatch):
        session.release(*other)
    assert draws == ["exponential"]
    assert len(Count.computed) == 1
    assert len(session.spent) == 1


def test_one_release_more_than_the_plan_raises_before_the_draw(draws):
    session = session_of(Asks(SELECT))
    session.release(*SELECT)
    with pytest.raises(PlanMismatch, match="nothing"):
        session.release(*SELECT)
    assert draws == ["exponential"]


def test_another_order_raises(draws):
    session = session_of(Asks(SELECT, NOISE))
    with pytest.raises(PlanMismatch):
        session.release(*NOISE)
    assert draws == []


def test_closing_with_releases_left_raises_and_forgets_the_rows(draws):
    session = session_of(Asks(SELECT, SELECT))
    session.release(*SELECT)
    with pytest.raises(PlanMismatch, match="1 releases"):
        session.close()
    with pytest.raises(AttributeError):
        session.release(*SELECT)


@pytest.mark.parametrize(
    "ask",
    [
        (Count(norm="l1"), ExponentialSelection(ONE)),
        (Count(norm="range"), DiscreteLaplace(ONE)),
        (Count(norm="l1"), DiscreteGaussian(ONE)),
        (Count(norm="l2"), DiscreteLaplace(ONE)),
    ],
)
def test_a_sensitivity_of_the_wrong_kind_raises_in_rehearsal_and_play(ask, draws):
    with pytest.raises(PlanMismatch, match="needs"):
        rehearse(Asks(ask), public_of(Relation.ADD_REMOVE), ONE)
    with pytest.raises(PlanMismatch, match="needs"):
        session_of(Asks(SELECT)).release(*ask)
    assert draws == []


def test_a_query_without_sensitivity_is_refused():
    with pytest.raises(InputError, match="sensitivity=0"):
        rehearse(Asks((Count(scale=0), ExponentialSelection(ONE))), public_of(Relation.ADD_REMOVE), ONE)


def test_an_answer_is_only_given_after_it_was_charged():
    """The event is popped before the query is computed: a query that fails is paid for all the same."""

    @dataclass(frozen=True)
    class Fails(Count):
        def __call__(self, rows):
            raise RuntimeError

    session = session_of(Asks(SELECT))
    with pytest.raises(RuntimeError):
        session.release(Fails(), ExponentialSelection(ONE))
    assert session.spent == session.plan


def test_the_sensitivity_of_the_datasets_relation_is_charged():
    for relation, expected in ((Relation.ADD_REMOVE, 1), (Relation.REPLACE_ONE, 2)):
        assert rehearse(Asks(SELECT), public_of(relation), ONE)[0].sensitivity == expected


def test_rehearsal_answers_with_blanks_of_the_right_shape():
    rehearsal = Rehearsal(public_of(Relation.ADD_REMOVE), ONE)
    assert rehearsal.release(*SELECT) == 0
    assert rehearsal.release(*NOISE).tolist() == [0, 0, 0]
    assert len(rehearsal.plan) == 2


def test_progress_counts_releases_of_the_plan():
    seen = []
    learner = Asks(SELECT, NOISE)
    learner.learn(session_of(learner, progress=lambda done, total: seen.append((done, total))))
    assert seen == [(1, 2), (2, 2)]


@pytest.mark.slow
@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("reweighting", ["scheduled", "projected"])
def test_the_schedule_does_not_depend_on_rows(relation, reweighting):
    """Blank answers in the rehearsal, Adult's rows and very different ones in play: one plan."""
    schema = parse_schema((ADULT / "adult.schema.yaml").read_bytes())
    table = pq.read_table(ADULT / "adult_train.parquet")
    public = replace(
        public_of(relation, schema.records, features=schema.features), target=schema.target, classes=schema.classes
    )
    learner = LazyBB(rounds=25, reweighting=reweighting)
    plan = rehearse(learner, public, Decimal("0.05"))
    flipped = ["<=50K"] * len(table)
    for labels in (table["income"], flipped):
        session = Session(public, Decimal("0.05"), plan, rows_of_table(schema, table, labels, relation))
        learner.learn(session)
        assert session.close() == plan


@pytest.mark.parametrize(
    ("epsilon", "delta"), [("0.001", "0.000001"), ("0.5", "0.000001"), ("8", "0.000001"), ("1", "0")]
)
def test_calibration_finds_the_largest_unit_within_the_target(epsilon, delta):
    """The claim is at most the target, and one part in 5,000 more would exceed it."""
    public, target = public_of(Relation.ADD_REMOVE, 1000, pure=delta == "0"), Budget.of(epsilon, delta)
    learner = LazyBB(rounds=20)
    recipe = calibrate(learner, public, target)
    assert recipe.claim.epsilon <= target.epsilon
    assert recipe.claim == claim(recipe.plan, target.delta)
    assert recipe.plan == rehearse(learner, public, recipe.unit)
    above = rehearse(learner, public, from_nano(nano(recipe.unit * Decimal("1.0002")) + 1))
    assert claim(above, target.delta).epsilon > target.epsilon


def test_a_target_below_every_unit_is_refused():
    learner = LazyBB(rounds=5000)
    with pytest.raises(InputError, match="fewer rounds"):
        calibrate(learner, public_of(Relation.ADD_REMOVE, pure=True), Budget.of("0.000000001", "0"))


def test_a_plan_of_nothing_charges_nothing():
    session = Session(public_of(Relation.ADD_REMOVE), ONE, Plan(()), rows_of(DATA))
    assert session.close() == Plan(())
