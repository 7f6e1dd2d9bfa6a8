"""Record one run of a learner, and play it on a neighbour with the answers of the first run.

Given the same answers, a private learner asks the same questions in the same order, and returns the same thing: all
that differs is what stands before the noise, by at most the declared sensitivity (Re:cord-play, arXiv 2602.17454).
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from math import isqrt, sqrt
from typing import Any

import numpy as np

from accountant.errors import PlanMismatch
from accountant.noise.mechanisms import Mechanism
from accountant.noise.objective import FINE, RELEASED, SLOPE_UNIT, STEEPEST, STEP, ObjectivePerturbation
from dpserve_platform.replay.likeness import Unreadable, digest_of
from dpserve_verify.privacy.events import Plan, Release
from training.rows.partitions.rows import Rows
from training.session.learner import Rehearsable
from training.session.session import Integers, Public, Query, Session

OURS = "accountant.noise."  # where a mechanism is that draws what it is priced for


class Divergence(Exception):
    """A run that a private learner does not make. `kind`: one of `report.KINDS`; `words`: what was seen."""

    def __init__(self, kind: str, words: str) -> None:
        super().__init__(words)
        self.kind, self.words = kind, words


@dataclass(frozen=True)
class Taken:
    """One release of a recorded run: the question as it stood (a digest), its line of the plan, what stood before the
    noise, and the answer.
    """

    question: str
    asked: Release
    mechanism: Mechanism
    exact: Any
    answer: Any


@dataclass(frozen=True)
class Tape:
    """A recorded run, and the digest of what the learner returned."""

    releases: tuple[Taken, ...]
    outcome: str


class _Recorder(Session):
    """Plays a plan and writes down every release."""

    def __init__(self, public: Public, unit: Decimal, plan: Plan, rows: Rows) -> None:
        super().__init__(public, unit, plan, rows)
        self.taken: list[Taken] = []
        self._question, self._size = "", 0

    def release(self, query: Query, mechanism: Mechanism) -> Any:
        """Note the question, and release as a session does."""
        if not type(mechanism).__module__.startswith(OURS):
            raise Divergence("mechanism", f"{query.purpose}: {type(mechanism).__name__} is no mechanism of dpserve's")
        try:
            self._question, self._size = digest_of(query), query.size
        except Unreadable as error:
            raise Divergence("question", f"{query.purpose}: {error.message}") from None
        return super().release(query, mechanism)

    def draw(self, mechanism: Mechanism, exact: Integers, asked: Release) -> Any:
        """Draw, and write the release down."""
        if not isinstance(mechanism, ObjectivePerturbation) and np.asarray(exact).dtype.kind not in "iu":
            raise Divergence("answer", f"{asked.purpose}: its answer is not of whole numbers")
        if np.size(exact) != self._size and not isinstance(mechanism, ObjectivePerturbation):
            raise Divergence("answer", f"{asked.purpose}: {np.size(exact)} answers where {self._size} are declared")
        answer = self.answer_to(mechanism, exact, asked)
        held = exact if isinstance(mechanism, ObjectivePerturbation) else np.array(exact, copy=True)
        self.taken.append(Taken(self._question, asked, mechanism, held, np.copy(answer)))
        return answer

    def answer_to(self, mechanism: Mechanism, exact: Integers, asked: Release) -> Any:
        """Draw the answer."""
        return mechanism.draw(exact, asked.sensitivity)


# A learner that looks at the name of the session finds the one that jobs have.
_Recorder.__name__, _Recorder.__qualname__, _Recorder.__module__ = "Session", "Session", Session.__module__


class _Player(_Recorder):
    """Plays a tape: the same questions get the same answers; what stood before the noise is compared."""

    def __init__(self, tape: Tape, public: Public, unit: Decimal, plan: Plan, rows: Rows) -> None:
        super().__init__(public, unit, plan, rows)
        self._tape = tape
        self.shares: list[tuple[str, float]] = []  # of each release, how much of its sensitivity was reached

    def answer_to(self, mechanism: Mechanism, exact: Integers, asked: Release) -> Any:
        """Compare with the tape, and answer as it does."""
        place = len(self.taken)
        before = self._tape.releases[place]
        where = f"release {place + 1}, {asked.purpose}"
        if before.question != self._question:
            raise Divergence("question", f"{where}: it asks otherwise than on the neighbour, after the same answers")
        if before.mechanism != mechanism:
            raise Divergence("mechanism", f"{where}: {mechanism} where it was {before.mechanism} on the neighbour")
        share = self._share(mechanism, before, exact, where)
        self.shares.append((f"{asked.purpose} ({asked.norm})", share))
        return (
            before.answer.item()
            if isinstance(before.answer, np.ndarray) and not before.answer.ndim
            else np.copy(before.answer)
        )

    def _share(self, mechanism: Mechanism, before: Taken, exact: Any, where: str) -> float:
        """Return how much of its sensitivity the answer moved by; Divergence above 1."""
        sensitivity = before.asked.sensitivity
        if isinstance(mechanism, ObjectivePerturbation):
            share = _loss_share(mechanism, before, exact, sensitivity)
        elif np.shape(exact) != np.shape(before.exact):
            raise Divergence("answer", f"{where}: answers of shape {np.shape(exact)} and {np.shape(before.exact)}")
        else:
            share = share_of(moved(before.exact, exact, mechanism.norm), mechanism.norm, sensitivity)
        if share > 1:
            raise Divergence("sensitivity", f"{where}: a neighbour moves it by {share:.4g} of what is declared")
        return share


_Player.__name__, _Player.__qualname__, _Player.__module__ = "Session", "Session", Session.__module__


def moved(one: Any, other: Any, norm: str) -> int:
    """Return how far two answers are apart: of "l1" and "range" the distance, of "l2" its square. The range of scores
    that are chosen from row by row is the sum over rows. Exact, whatever 64 bits hold.
    """
    change = np.subtract(np.asarray(other).astype(object), np.asarray(one).astype(object))
    if not change.size:
        return 0
    if norm == "range":
        return int(sum(max(row) - min(row) for row in np.atleast_2d(change).tolist()))
    flat = change.ravel().tolist()
    return int(sum(map(abs, flat)) if norm == "l1" else sum(each * each for each in flat))


def share_of(distance: int, norm: str, sensitivity: int) -> float:
    """Return what share of the sensitivity a distance (`moved`) is: above 1 exactly where it is further."""
    whole = sensitivity * sensitivity if norm == "l2" else sensitivity
    share = float(Fraction(distance) / Fraction(whole)) if whole else float(distance and 2)
    share = sqrt(share) if norm == "l2" else share
    return min(share, 1.0) if distance <= whole else max(share, 1.0 + 2**-52)


def _loss_share(mechanism: ObjectivePerturbation, before: Taken, exact: Any, sensitivity: int) -> float:
    """Return how far the slopes of two losses are apart, of what is declared, at 0, at the released minimum and at two
    public places; Divergence where they rise faster than the price allows for.
    """
    if len(exact) != len(before.exact):
        raise Divergence(
            "answer", f"{before.asked.purpose}: losses of {len(exact)} and {len(before.exact)} coordinates"
        )
    released = [int(at) << FINE - RELEASED for at in np.asarray(before.answer).tolist()]
    ends = [(1 if at % 2 else -1) << FINE for at in range(len(released))]
    allowed, worst = sensitivity << FINE + STEP - SLOPE_UNIT, 0
    places = ([0] * len(released), released, ends, [-at for at in ends])
    changes: list[list[int]] = []
    for theta in places:
        pairs = zip(exact.slopes(theta, FINE), before.exact.slopes(theta, FINE), strict=True)
        changes.append([int(one) - int(other) for one, other in pairs])
        worst = max(worst, sum(each * each for each in changes[-1]))
        steps = sum((a - b) ** 2 for a, b in zip(theta, places[0], strict=True))
        rises = sum((a - b) ** 2 for a, b in zip(changes[-1], changes[0], strict=True))
        if rises > (mechanism.square * STEEPEST * (1 << STEP)) ** 2 * steps:
            raise Divergence("sensitivity", f"{before.asked.purpose}: slopes rise faster than is proved")
    return min(sqrt(worst) / allowed, 1.0) if isqrt(worst) <= allowed else sqrt(worst) / allowed


def record(learner: Rehearsable, public: Public, unit: Decimal, plan: Plan, rows: Rows) -> Tape:
    """Run a learner on rows, with noise, and write it down. Divergence where it leaves its plan or fails."""
    session = _Recorder(public, unit, plan, rows)
    outcome = _run(learner, session)
    return Tape(tuple(session.taken), outcome)


def play(tape: Tape, learner: Rehearsable, public: Public, unit: Decimal, plan: Plan, rows: Rows) -> dict[str, float]:
    """Run a learner on a neighbour with the answers of a tape. Return how much of its sensitivity each kind of query
    reached, at most; Divergence where the run is another, or an answer moved further than is declared.
    """
    session = _Player(tape, public, unit, plan, rows)
    if _run(learner, session) != tape.outcome:
        raise Divergence("outcome", "what it returns is not the same, after the same answers")
    reached: dict[str, float] = {}
    for name, share in session.shares:
        reached[name] = max(reached.get(name, 0.0), share)
    return reached


def _run(learner: Rehearsable, session: _Recorder) -> str:
    try:
        outcome = learner.learn(session)  # type: ignore[arg-type]  # a session, as it is played
        session.close()
        return digest_of(outcome)
    except Divergence:
        raise
    except Unreadable as error:
        raise Divergence("outcome", error.message) from None
    except PlanMismatch as error:
        raise Divergence("plan", error.message) from None
    except Exception as error:
        raise Divergence("error", f"{type(error).__name__}: {error}") from error
