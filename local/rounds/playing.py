"""A campaign of institutions rehearsed and played: by who defines it, by each institution on its own rows, and, of the
answers alone, by the platform at its close.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.errors import PlanMismatch
from accountant.noise.mechanisms import Mechanism
from dpserve_verify.certificates.releases import kinds_of
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget, Relation
from local.reports.shared import AGGREGATORS
from local.rounds.definition import EVALUATION, MOST_NUMBERS, MOST_ROUNDS, PROFILE, ROUND_LEARNERS, RoundsDefinition
from local.rounds.shared_session import SharedSession, check_adding
from models.forms.ensemble import Ensemble
from models.forms.registry import ensemble_from_bytes
from training.jobs.draw_journal import code
from training.learners.choice import choose
from training.learners.ebm.widths import most_numbers
from training.learners.parameters import learner_of, stored
from training.measuring.profile.profile import profiler_of
from training.measuring.worth.evaluate import evaluator_of
from training.requests import AUTO
from training.rows.partitions.rows import Rows
from training.rows.schema.schema import Schema, parse_schema
from training.session.learner import Recipe
from training.session.session import Public, Query, Rehearsal, Session

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Rehearsed:
    """A learner's plan over institutions. `chosen`: why it is this learner, where a public rule chose it; `settings`:
    all of its parameters, as JSON; `numbers`: of the sums of each purpose, at most.
    """

    learner: str
    chosen: str
    recipe: Recipe
    settings: str
    numbers: tuple[tuple[str, int], ...]


class _Widths(Rehearsal):
    """A rehearsal that notes how many numbers the answers of each purpose have, whatever those before them say.
    `most`: how many answers may be asked for.
    """

    def __init__(self, public: Public, unit: Decimal, most: int = MOST_ROUNDS) -> None:
        super().__init__(public, unit)
        self.widths: dict[str, int] = {}
        self._most, self._count = most, 0

    def release(self, query: Query, mechanism: Mechanism) -> Any:
        """Return a blank. PlanMismatch where more is asked for than may be."""
        self._count += 1
        if self._count > self._most:
            raise PlanMismatch(f"plan: the learner asks for more than {self._most} sums")
        widest = most_numbers(query, self.public)
        self.widths[query.purpose] = max(widest, self.widths.get(query.purpose, 1))
        return super().release(query, mechanism)

    @property
    def numbers(self) -> tuple[tuple[str, int], ...]:
        """Return how many numbers the sums of each purpose have at most."""
        return tuple(sorted(self.widths.items()))


class KeptAnswers:
    """Noisy sums that are there already, in order; what comes after them is drawn."""

    def __init__(self, answers: Sequence[Integers]) -> None:
        self._answers, self._next = answers, 0

    @property
    def is_kept(self) -> bool:
        """Tell whether the next answer is there, so that nothing is asked of rows for it."""
        return self._next < len(self._answers)

    def next(self, draw: Callable[[], Any]) -> Any:
        """Return the next answer."""
        position, self._next = self._next, self._next + 1
        return self._answers[position] if position < len(self._answers) else draw()


def public_of(schema: Schema, budget: Budget, contributions: int) -> Public:
    """Return what the learner may know: answers have the noise of both aggregators, and one's is priced."""
    public = Public.of(schema, Relation.ADD_REMOVE, budget, False, contributions)
    return replace(public, draws=AGGREGATORS)


def rehearse(schema: Schema, learner: str, parameters: dict[str, Any], budget: Budget, contributions: int) -> Rehearsed:
    """Calibrate a learner to the budget. InputError where it asks for what is no sum over rows, or for wide ones."""
    public, chosen = public_of(schema, budget, contributions), ""
    if learner == AUTO:
        choice = choose(public)
        learner, chosen, parameters = choice.learner, choice.why, {**choice.settings, **parameters}
    asked = player_of(learner, parameters, schema)
    if learner in ROUND_LEARNERS:
        asked.check(public)
        parameters = stored(asked)
    recipe = asked.recipe(public)
    kinds_of(recipe.plan)
    check_adding(recipe.plan)
    rehearsal = _Widths(public, recipe.unit)
    asked.learn(rehearsal)
    widest = max(count for _, count in rehearsal.numbers)
    if widest > MOST_NUMBERS:
        raise InputError(f"numbers={widest}: of one sum; at most {MOST_NUMBERS}: declare fewer bins, or name pairs")
    return Rehearsed(learner, chosen, recipe, json.dumps(parameters, sort_keys=True), rehearsal.numbers)


def schema_in(definition: RoundsDefinition) -> Schema:
    """Read the public schema of a definition; InputError where the definition asks for something else."""
    schema = parse_schema(definition.schema.encode(), registered=True)
    ends = schema.target_range
    classes = tuple(map(str, schema.classes or ()))
    if (schema.features, schema.target, classes) != (definition.features, definition.target, definition.classes):
        raise InputError("schema: has other features, or another target, than the campaign")
    if (ends is None) == (not classes):
        raise InputError("schema: must have classes, or the range of a number")
    return schema


def check_definition(definition: RoundsDefinition) -> Public:
    """Return what is public of a campaign, once this version, by the same code, would ask for the same. InputError
    else: what one asks of its rows must be what was priced. A stranger's parameters are held to the learner's own
    bounds before anything is rehearsed, and the rehearsal ends where it asks for more than was priced.
    """
    if definition.code != code():
        raise InputError(
            "code: the campaign was opened by another version of dpserve, and sums of two versions do not add up; use "
            "that one"
        )
    budget = Budget(definition.epsilon, definition.delta)
    public = public_of(schema_in(definition), budget, definition.unit.contributions)
    rehearsal, learner = _Widths(public, definition.standard, len(definition.plan)), learner_in(definition)
    if definition.learner in ROUND_LEARNERS:
        learner.check(public)
    learner.learn(rehearsal)
    check_adding(definition.plan)
    if rehearsal.plan != definition.plan or rehearsal.numbers != definition.numbers:
        raise PlanMismatch(f"campaign={definition.campaign}: its plan is not what its learner asks for")
    return public


def play(
    definition: RoundsDefinition, public: Public, rows: Rows, answers: Sequence[Integers],
    exchange: Callable[[int, Integers], Integers],
) -> None:  # fmt: skip
    """Ask one institution's rows, round by round. `answers`: of the rounds that are over; `exchange`: sends the numbers
    of a round, filled up to what its purpose has, and returns the noisy sum of it.
    """
    turn = [len(answers)]

    def send(exact: Integers) -> Integers:
        at, turn[0] = turn[0], turn[0] + 1
        filled = np.zeros(definition.numbers_of(at), np.int64)
        if exact.size > filled.size:
            raise PlanMismatch(f"campaign={definition.campaign}: a sum of more numbers than its definition has")
        filled[: exact.size] = exact
        return exchange(at, filled)

    learner = learner_in(definition)
    session = _Cut(public, definition, rows, answers, send)
    learner.learn(session)
    session.close()


def learn(definition: RoundsDefinition, answers: Sequence[Integers]) -> Ensemble | Integers:
    """Learn the model from the noisy sums of all rounds, or return the counts of a statement: no row is asked.
    PlanMismatch where some are missing.
    """
    if len(answers) != len(definition.rounds):
        raise PlanMismatch(f"campaign={definition.campaign}: {len(answers)} sums of {len(definition.rounds)} are there")
    session = _Cut(check_definition(definition), definition, None, answers, lambda exact: exact)
    model: Ensemble | Integers = learner_in(definition).learn(session)
    session.close()
    return model


class _Cut(SharedSession):
    """Answers are filled up: of each the query's own numbers are returned."""

    def __init__(
        self, public: Public, definition: RoundsDefinition, rows: Rows | None, answers: Sequence[Integers],
        exchange: Callable[[Integers], Integers],
    ) -> None:  # fmt: skip
        super().__init__(public, definition.standard, definition.plan, rows, KeptAnswers(answers), exchange)

    def release(self, query: Query, mechanism: Mechanism) -> Any:
        """Return the noisy sum of the query over all institutions."""
        return np.ascontiguousarray(Session.release(self, query, mechanism)[: query.size])


def learner_in(definition: RoundsDefinition) -> Any:
    """Return what plays a campaign's plan, with its parameters."""
    return player_of(definition.learner, definition.given, schema_in(definition))


def player_of(learner: str, settings: Mapping[str, Any], schema: Schema) -> Any:
    """Return a learner, or what counts rows for a statement, as it does at home."""
    if learner == PROFILE:
        return profiler_of(schema, settings)[0]
    if learner == EVALUATION:
        return evaluator_of([ensemble_from_bytes(str(settings["ensemble"]).encode())], schema, settings)
    return learner_of(learner, settings)
