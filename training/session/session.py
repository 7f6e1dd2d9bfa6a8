"""Rehearse and play: the only way a learner reaches rows is `session.release(query, mechanism)`.

A learner's `learn` runs twice. On a `Rehearsal` there are no rows and no noise: what it asks for becomes the plan. On a
`Session` the plan is played: the head is compared and popped before anything is computed, and only then drawn.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from math import sqrt
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from accountant.errors import PlanMismatch
from accountant.noise.mechanisms import ExponentialSelection, Mechanism, PermuteAndFlip
from accountant.noise.objective import ObjectivePerturbation
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget, Relation, parse_relation
from dpserve_verify.privacy.events import Plan, Release
from dpserve_verify.privacy.weights import parts_of
from models.features.features import Feature
from models.parts.answers import ClassLabel
from training.rows.packed.cells import Span, declared_ranges
from training.rows.partitions.rows import FEW_ROWS, MOST_ROWS, Rows, row_bound
from training.rows.schema.schema import Schema

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Start:
    """A public score, a sum over the features: of two classes the log-odds of the second, of more a logit for each, of
    a number half ranges from the middle of its range. `constant`: a number for each of these; `terms`: of each feature
    and code as many; `digest`: sha256 of the model that it is of.
    """

    digest: str
    constant: tuple[float, ...]
    terms: tuple[tuple[tuple[float, ...], ...], ...]


PROMISES = EPSILON, MU = "epsilon", "mu"
WITH_WEIGHTS = "learners with weights: ebm (engine=epochs), lazybb and lazybb-tree (reweighting=scheduled), forest"
MOST_SECONDS = 3600


@dataclass(frozen=True)
class Vouch:
    """What is said, and not proved, of a program that reads rows: that its output keeps the price that it is handed, to
    one row under `relation`. `promise`: "epsilon" of pure DP, or "mu" of Gaussian DP. Its result is handed on when it
    has had so many `seconds`.
    """

    promise: str
    relation: Relation
    seconds: int

    def __post_init__(self) -> None:
        if self.promise not in PROMISES:
            raise InputError(f"vouched={self.promise!r:.40}: must be one of {', '.join(PROMISES)}")
        if not 1 <= self.seconds <= MOST_SECONDS:
            raise InputError(f"seconds={self.seconds}: must be 1 to {MOST_SECONDS}")

    def to_json(self) -> dict[str, str | int]:
        """Return it as it is signed."""
        return {"promise": self.promise, "relation": self.relation.value, "seconds": self.seconds}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Vouch:
        """Read what `to_json` made. InputError where it says something else."""
        return cls(str(body["promise"]), parse_relation(body["relation"]), int(body["seconds"]))


@dataclass(frozen=True)
class Source:
    """Somebody else's learner: its text, or those of a package's files as one, the class in it, and who wrote it: a
    package and its version, or a path. `modules`: of installed packages, loaded for it before the seal. `vouch`: of a
    program that reads rows. `own`: its classes that may answer queries of its own, by what it was admitted with; None
    where it is checked.
    """

    text: str
    kind: str
    author: str
    modules: tuple[str, ...] = ()
    vouch: Vouch | None = None
    own: tuple[str, ...] | None = None

    @property
    def digest(self) -> str:
        """Return the sha256 of its text and of the name of its class: what is admitted, and what runs."""
        return hashlib.sha256(f"{self.kind}\n{self.text}".encode()).hexdigest()


@dataclass(frozen=True)
class Public:
    """All that a learner may know before anything is released. `records`: n under replace-one, a public guess N0
    under add/remove. `contributions`: how many rows one unit of privacy may have. The target is one of `classes`, or
    (None) a number in the public `target_range`. `spans`: the declared range of each number whose rows stand in fine
    cells, so that other bins of it may be asked about; () where none do. `most`: more rows than that there never are.
    `prevalence`: declared shares of the classes, 1 together; () where none is declared. `draws`: how many times the
    noise that is priced is in every answer. `start`: the public model that boosting begins from. `code`: the
    learner of others that was admitted for the job. `parts`: in how many a row is counted, by its weight; 1: all alike.
    """

    features: tuple[Feature, ...]
    target: str
    classes: tuple[ClassLabel, ...] | None
    records: int
    relation: Relation
    budget: Budget
    pure: bool
    contributions: int = 1
    target_range: tuple[float, float] | None = None
    spans: tuple[Span | None, ...] = ()
    most: int = FEW_ROWS
    prevalence: tuple[float, ...] = ()
    draws: int = 1
    start: Start | None = None
    code: Source | None = None
    parts: int = 1

    @property
    def widening(self) -> float:
        """Return how much wider than priced the noise of an answer is: for what is made of answers, and no price."""
        return sqrt(self.draws)

    @property
    def shared(self) -> bool:
        """Return whether rows are asked in shares, by two who add noise: then a query's answer must be a sum."""
        return self.draws > 1

    @classmethod
    def of(cls, schema: Schema, relation: Relation, budget: Budget, pure: bool, contributions: int = 1) -> Public:
        """Return what is public of rows with this schema, for a job of this budget. `pure`: only epsilon adds up."""
        spans = declared_ranges(schema.features, schema.ends)
        parts = parts_of(schema.weight)
        if parts != 1 and row_bound(schema.records) * parts > MOST_ROWS:
            raise InputError(f"records={schema.records}: with weights at most {MOST_ROWS // parts} rows are counted")
        return cls(
            features=schema.features,
            target=schema.target,
            classes=schema.classes,
            records=schema.records,
            relation=relation,
            budget=budget,
            pure=pure,
            contributions=contributions,
            target_range=schema.target_range,
            spans=spans if any(spans) else (),
            most=row_bound(schema.records) * parts,
            prevalence=schema.prevalence,
            parts=parts,
        )

    def check_priced(self, what: str) -> None:
        """Raise InputError where delta is 0 and `what` has a price only with one, as on a dataset that has a delta."""
        if self.budget.delta == 0 and not self.pure:
            said = f"on a dataset with a delta, {what}, which has no price at 0"
            raise InputError(f"delta=0: {said}; ask for a delta above 0")

    def selection(self, epsilon: Decimal) -> ExponentialSelection | PermuteAndFlip:
        """Return a private selection at `epsilon`: permute-and-flip where delta is 0, else the exponential mechanism,
        which composes better.
        """
        return PermuteAndFlip(epsilon) if self.pure else ExponentialSelection(epsilon)


class Query(Protocol):
    """A function of rows that knows its sensitivity. Integers in, integers out, `size` values; or a loss of `size`
    coordinates, for objective perturbation."""

    @property
    def purpose(self) -> str:
        """Return what a plan, and so the certificate, says that it asks."""

    @property
    def norm(self) -> str:
        """Return the norm: "l1" or "l2" of sums, or "range" of scores to select by."""

    @property
    def size(self) -> int:
        """Return how many values it answers with."""

    def sensitivity(self, relation: Relation) -> int:
        """Return the most that one row changes the answer, in this norm and in the answer's own unit."""

    def __call__(self, rows: Rows) -> Any: ...


class Releaser(Protocol):
    """What a learner is given: public facts, the calibrated `unit` (pure epsilon of one standard release), and
    `release`.
    """

    public: Public
    unit: Decimal

    def release(self, query: Query, mechanism: Mechanism) -> Any:
        """Return what `mechanism` makes of the query's answer. PlanMismatch where the plan has something else next."""


class Answers(Protocol):
    """Kept answers of a plan's releases, in order (`training.jobs.draw_journal`)."""

    @property
    def is_kept(self) -> bool:
        """Tell whether the next answer is stored already, so that nothing is asked of rows for it."""

    def next(self, draw: Callable[[], Any]) -> Any:
        """Return the next one: what is there, else what `draw` gives, kept before it is returned."""


class Selection(Protocol):
    """Private selection among runs (`training.tuning.selecting`): `charge` is its one line of a plan."""

    @property
    def charge(self) -> Release:
        """Return its one line of a plan."""

    def blank(self) -> Any:
        """Return what stands for an outcome where there are no rows."""

    def play(self, rows: Rows, progress: Callable[[int, int], None], held: Callable[[], None]) -> Any:
        """Draw how often to run, run, and return the best outcome alone."""


class Selector(Protocol):
    """What a selection of runs is asked of. Learners are not given it: no selection within a selection."""

    public: Public
    unit: Decimal

    def select(self, selection: Selection) -> Any:
        """Return the outcome of the best run. PlanMismatch where the plan has something else next."""


def sensitivity_of(query: Query, public: Public) -> int:
    """Return the sensitivity for one unit of privacy: its m rows are m neighbouring steps, so at most m times a
    row's, in the `parts` of a row that rows with weights are counted in. InputError where they have weights and the
    query has no proof with such.
    """
    if public.parts != 1 and not getattr(query, "by_weight", False):
        raise InputError(f"the rows have weights, and {query.purpose!r:.80} has no proof with them; {WITH_WEIGHTS}")
    return public.contributions * query.sensitivity(public.relation) * public.parts


def in_own_unit(query: Query, mechanism: Mechanism, answer: Any, public: Public) -> Any:
    """Return what was released of rows with weights in the query's own unit, to the next whole one: post-processing.
    A choice is none of numbers, and a query that is `in_parts` goes on with the parts.
    """
    if public.parts == 1 or mechanism.norm == "range" or getattr(query, "in_parts", False):
        return answer
    return (answer + public.parts // 2) // public.parts


def require_alike(public: Public, what: str) -> None:
    """Raise InputError where rows have weights, with which `what` has no proof."""
    if public.parts != 1:
        raise InputError(f"the rows have weights, and {what} has no proof with them; {WITH_WEIGHTS}")


def _release(query: Query, mechanism: Mechanism, public: Public) -> Release:
    if query.norm != mechanism.norm:
        raise PlanMismatch(f"{query.purpose}: sensitivity in {query.norm}, but {mechanism.name} needs {mechanism.norm}")
    sensitivity = sensitivity_of(query, public)
    return Release(query.purpose, mechanism.name, mechanism.norm, sensitivity, mechanism.event)


def _charges(query: Query, mechanism: Mechanism, public: Public) -> list[Release]:
    """Return the further lines of a plan that one draw is charged by: none but of objective perturbation."""
    if not isinstance(mechanism, ObjectivePerturbation):
        return []
    if public.contributions != 1 or public.relation is not Relation.ADD_REMOVE:
        raise PlanMismatch(f"{query.purpose}: {mechanism.name} is proved for one row added or removed")
    mechanism.check_scale(sensitivity_of(query, public))
    return [
        Release(f"{query.purpose}: {charge.words}", mechanism.name, mechanism.norm, charge.sensitivity, charge.event)
        for charge in mechanism.charges
    ]


class Rehearsal:
    """No rows, no noise: writes down what `release` would charge and answers with blanks.

    `first`: what the first selection of the plan charges, and how many candidates it has; None where there is none.
    """

    def __init__(self, public: Public, unit: Decimal) -> None:
        self.public, self.unit = public, unit
        self.first: tuple[Decimal, int] | None = None
        self._asked: list[Release] = []
        self._last: tuple[Mechanism, str, int] | None = None  # what thousands of rounds ask for again and again

    def release(self, query: Query, mechanism: Mechanism) -> Any:
        """Return a blank: 0 for a selection, else zeros (size,). PlanMismatch where query and mechanism do not go
        together.
        """
        sensitivity = sensitivity_of(query, self.public)
        last, self._last = self._last, (mechanism, query.purpose, sensitivity)
        same = last is not None and last[0] is mechanism and last[1:] == (query.purpose, sensitivity)
        asked = (
            self._asked[-1]
            if same and not isinstance(mechanism, ObjectivePerturbation)
            else _release(query, mechanism, self.public)
        )
        self._asked += [asked, *_charges(query, mechanism, self.public)]
        if self.first is None and query.norm == "range" and asked.event.pure is not None:
            self.first = asked.event.pure, query.size
        return 0 if mechanism.norm == "range" else np.zeros(query.size, dtype=np.int64)

    def select(self, selection: Selection) -> Any:
        """Return a blank outcome of private selection, which is one line of the plan."""
        require_alike(self.public, "private tuning")
        self._last = None
        self._asked.append(selection.charge)
        return selection.blank()

    @property
    def plan(self) -> Plan:
        """Return the plan of the releases requested so far."""
        return Plan.of(self._asked)


class Session:
    """Holds the rows and plays a reserved plan. `progress(done, total)` counts rounds of the plan, or a selection's
    public number of runs: data-independent. `held()`, before every draw, raises where the job is another's by now.
    `answers`: keep what is drawn, and have it where an earlier process drew it; None: nothing is kept. `has_drawn`:
    whether this process has begun to draw.
    """

    def __init__(
        self,
        public: Public,
        unit: Decimal,
        plan: Plan,
        rows: Rows,
        progress: Callable[[int, int], None] = lambda done, total: None,
        held: Callable[[], None] = lambda: None,
        answers: Answers | None = None,
    ) -> None:
        self.public, self.unit, self.plan = public, unit, plan
        self._rows, self._progress, self._held = rows, progress, held
        self._answers = answers
        self.has_drawn = False  # or is about to
        self._next = [release for release, count in reversed(plan.runs) for _ in range(count)]
        self._planned = len(self._next)
        self._played: list[Release] = []

    def release(self, query: Query, mechanism: Mechanism) -> Any:
        """Compare with the head of the plan, pop it, and only then compute and draw. Anything else raises
        PlanMismatch.
        """
        asked = _release(query, mechanism, self.public)
        charges = _charges(query, mechanism, self.public)
        for release in (asked, *charges):
            self._pop(release)
        kept = self._answers
        exact = np.zeros(0, np.int64) if kept is not None and kept.is_kept else query(self._rows)
        self._held()

        def draw() -> Any:
            self.has_drawn = True
            return self.draw(mechanism, exact, asked)

        answer = draw() if kept is None else kept.next(draw)
        if kept is not None:
            for _ in charges:  # there is an answer for each line of the plan
                kept.next(lambda: 0)
        self._progress(len(self._played), self._planned)
        return in_own_unit(query, mechanism, answer, self.public)

    def draw(self, mechanism: Mechanism, exact: Integers, asked: Release) -> Any:
        """Draw the release that the plan has here; `SharedSession` has others draw it."""
        return mechanism.draw(exact, asked.sensitivity)

    def select(self, selection: Selection) -> Any:
        """Select as `release` does: one line of the plan, whose runs are played on the rows held here."""
        require_alike(self.public, "private tuning")
        self._pop(selection.charge)
        self._held()
        self.has_drawn = True
        return selection.play(self._rows, self._progress, self._held)

    def _pop(self, asked: Release) -> None:
        if not self._next or self._next[-1] != asked:
            raise PlanMismatch(f"{asked} is not what the plan has next: {self._next[-1] if self._next else 'nothing'}")
        self._played.append(self._next.pop())

    @property
    def spent(self) -> Plan:
        """Return the releases played so far as a plan: the certificate is built from it."""
        return Plan.of(self._played)

    def close(self) -> Plan:
        """Forget the rows. A plan that was not played to its end is a fault of the learner."""
        del self._rows
        if self._next:
            raise PlanMismatch(f"{len(self._next)} releases of the plan were not played")
        return self.spent
