"""The claims of LazyBB against draws: the real mechanism, through the real session and learner, on a worst pair.

10,000 runs on each of two neighbours. Clopper and Pearson's interval at 1e-4 for the chance of the worst event on each
side; the claim is refuted when the lower end on one side exceeds e^epsilon times the upper end on the other. A true
claim is refuted with probability at most 1e-4 per test; the same learner with half the sensitivity must be refuted. How
many runs that takes depends on the pair: so many that missing it is less likely than 1e-5.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import pytest
from draws import ALARM, refuted
from exact_laws import Dataset, public_of, rows_of

from accountant.budget import NANO, Relation
from accountant.privacy.events import Release
from accountant.privacy.renyi import compose_pure
from training.calibrate import rehearse
from training.learners.boosting.lazybb import LazyBB, ThresholdAgreement, WeightedAgreement
from training.rows.rows import Rows
from training.session import Session, sensitivity_of

RUNS = 10_000
UNIT = Decimal(1)
ADD, REPLACE = Relation.ADD_REMOVE, Relation.REPLACE_ONE


@dataclass(frozen=True)
class Pair:
    """A worst pair: all rows have x = false; `event` is that every vote, or the threshold, speaks for class 1."""

    relation: Relation
    reweighting: str
    pure: bool
    one: tuple[int, ...]
    other: tuple[int, ...]
    faulty_runs: int = 10_000

    def data(self, labels: tuple[int, ...]) -> Dataset:
        return tuple((0, label) for label in labels)


FOUR = ((0, 0, 0, 0), (1, 0, 0, 0))
PAIRS = [
    Pair(REPLACE, "scheduled", False, *FOUR),
    Pair(REPLACE, "projected", False, *FOUR),
    Pair(REPLACE, "projected", True, *FOUR),
    Pair(ADD, "scheduled", False, (0, 0), (0, 0, 1)),
    Pair(ADD, "projected", False, (0, 0, 0, 0), (0, 0, 0, 0, 1), 40_000),
]


def says_yes(votes) -> bool:
    """The sum of the votes at x = false is positive."""
    return sum(int(vote.table(3)[0]) for vote in votes) > 0


def count_event(learner: LazyBB, pair: Pair, labels: tuple[int, ...], fault: bool, runs: int) -> int:
    public = public_of(pair.relation, 4, pair.pure)
    plan, seen = rehearse(learner, public, UNIT), 0
    with pytest.MonkeyPatch.context() as patch:
        if fault:
            patch.setattr("training.session._release", halved_release)
            plan = rehearse(learner, public, UNIT)
        rows = rows_of(pair.data(labels))
        patch.setattr(WeightedAgreement, "__call__", scored_once(rows))
        for _ in range(runs):
            session = Session(public, UNIT, plan, rows)
            seen += says_yes(learner.learn(session).votes)
            session.close()
    return seen


def scored_once(rows: Rows):
    """One round has no past, so its exact scores are the same in all runs: computed in the first. Drawn in each."""
    score, scores = WeightedAgreement.__call__, []

    def answer(query: WeightedAgreement, given: Rows):
        assert given is rows
        assert not query.votes
        if not scores:
            scores.append(score(query, given))
        return scores[0]

    return answer


def halved_release(query, mechanism, public):
    """The injected bug: noise for half of the sensitivity, at the price of all of it."""
    half = max(1, sensitivity_of(query, public) // 2)
    return Release(query.purpose, mechanism.name, mechanism.norm, half, mechanism.event)


@pytest.mark.statistical
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair.relation}-{pair.reweighting}-pure={pair.pure}")
def test_the_claim_stands_and_a_factor_of_two_is_seen(pair):
    """False alarm: 1e-4."""
    learner = LazyBB(rounds=1, density=1.0, reweighting=pair.reweighting, decay=0.0, threshold=False)
    epsilon = compose_pure(rehearse(learner, public_of(pair.relation, 4, pair.pure), UNIT).events) / NANO
    sides = [count_event(learner, pair, labels, False, RUNS) for labels in (pair.one, pair.other)]
    assert not refuted(*sides, epsilon, RUNS), f"{sides} of {RUNS}: a false alarm has probability {ALARM}"
    sides = [count_event(learner, pair, labels, True, pair.faulty_runs) for labels in (pair.one, pair.other)]
    assert refuted(*sides, epsilon, pair.faulty_runs), f"{sides} of {pair.faulty_runs}: half the noise was not noticed"


@pytest.mark.statistical
@pytest.mark.parametrize("pure", [False, True])
def test_the_claim_of_the_threshold_stands_and_a_factor_of_two_is_seen(pure):
    """One release alone: the threshold after one vote, on rows that the vote gets wrong. False alarm: 1e-4."""
    public = public_of(REPLACE, 4, pure)
    votes = LazyBB(rounds=1, decay=0.0, threshold=False).learn(Blank(public)).votes
    query, mechanism = ThresholdAgreement(1, 1, 0, votes), public.selection(UNIT)

    def count(labels, sensitivity, runs) -> int:
        values = query(rows_of([(1, label) for label in labels]))  # the vote says 1, and b = 1 says 0
        return sum(mechanism.draw(values, sensitivity) < 2 for _ in range(runs))

    limit = query.sensitivity(REPLACE)
    assert not refuted(*(count(labels, limit, RUNS) for labels in FOUR), 1.0, RUNS), f"false alarm: {ALARM}"
    assert refuted(*(count(labels, limit // 2, 10_000) for labels in FOUR), 1.0, 10_000)


class Blank:
    """Answers every release with candidate 0: x is true."""

    def __init__(self, public) -> None:
        self.public, self.unit = public, UNIT

    def release(self, query, mechanism) -> int:
        assert isinstance(query, WeightedAgreement)
        return 0
