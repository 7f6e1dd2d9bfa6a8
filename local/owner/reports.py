"""What an owner sends: made from rows by functions that never raise, whatever the rows are.

Whether, when and that an owner answers is part of what is released. So rows that do not fit a campaign weigh nothing,
an owner none of whose rows fits answers as one who has none, and all of them go the same way through the same code.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accountant.noise import shares
from dpserve_verify.formats.canonical import encode
from local.owner.own_rows import OwnTable, fit_rows
from local.reports.definition import Definition
from local.reports.directions import directions, scores
from local.reports.question import Question
from local.reports.shared import SharedDefinition
from local.reports.statistics import own_vectors
from local.turns.definition import BoostedDefinition
from local.turns.owned_scores import check_turn, scores_in
from local.turns.so_far import NOTHING, SoFar, read_so_far


@dataclass(frozen=True)
class Task:
    """A campaign that is accepted, and all that is public of an owner's answer to it. `so_far`: what was published
    before the owner's turn.
    """

    definition: Question
    owner: int
    so_far: SoFar = SoFar()  # noqa: RUF009  # frozen


def read_task(definition: Question, owner: int, document: bytes = NOTHING) -> Task:
    """Return the task of one owner. InputError where `document`, what was published before the owner's turn, is not
    good for that turn: decided before a row is looked at.
    """
    if not isinstance(definition, BoostedDefinition):
        return Task(definition, owner)
    so_far = read_so_far(document, definition.features, definition.classes)
    check_turn(definition, definition.turn_of(owner), so_far)
    return Task(definition, owner, so_far)


def draw(task: Task, table: OwnTable) -> int:
    """Draw one report of all of the owner's rows: the index of one of its vectors. Exactly epsilon-DP whatever the
    rows.
    """
    definition = task.definition
    assert isinstance(definition, Definition | BoostedDefinition)
    mechanism = definition.mechanism
    if isinstance(definition, BoostedDefinition):
        mechanism = definition.mechanism_in(definition.turn_of(task.owner))
    try:
        wanted = _scores(task, table)
    except Exception:  # a fault of ours: it must not tell which rows have it, so it answers as one who has no rows
        wanted = np.zeros((1, mechanism.candidates), np.int64)
    return int(mechanism.draw(wanted)[0])


def share(task: Task, table: OwnTable) -> bytes:
    """Split what all of the owner's rows come to into two shares, each sealed to one aggregator: the first's, then the
    second's.

    Either share alone is uniform. Nothing is drawn that protects both together: that is the aggregators' noise. No
    owner's numbers are longer than what was priced: `split` compares them last.
    """
    definition = task.definition
    assert isinstance(definition, SharedDefinition)
    try:
        rows = fit_rows(table, definition)
        values = definition.layout.statistic(rows.codes, rows.answers, rows.fits)
    except Exception:  # as in `draw`
        values = np.zeros(definition.layout.numbers, np.int64)
    halves = shares.split(values, definition.layout.sensitivity)
    return b"".join(
        shares.seal(shares.to_bytes(half), bytes.fromhex(whom.seal), definition.about(task.owner, at))
        for at, (half, whom) in enumerate(zip(halves, definition.aggregators, strict=True))
    )


def body_of(task: Task, invitation: str, table: OwnTable) -> bytes:
    """Make what is sent: drawn, or split, anew. To be stored before it is sent, and then never made again."""
    if isinstance(task.definition, SharedDefinition):
        return invitation.encode() + b"\n" + share(task, table)
    return encode({"invitation": invitation, "report": draw(task, table)})


def _scores(task: Task, table: OwnTable) -> NDArray[np.int64]:
    """Return the scores (1, candidates) of the owner's public vectors."""
    definition, rows, number = task.definition, fit_rows(table, task.definition), np.array([task.owner])
    if isinstance(definition, BoostedDefinition):
        turn = definition.turn_of(task.owner)
        return scores_in(definition, turn, rows.codes, rows.answers, rows.count, task.so_far, number, rows.fits)
    assert isinstance(definition, Definition)
    vectors_of_owner = own_vectors(
        definition.learner, definition.coordinates.of(rows.codes), rows.answers, rows.count, rows.fits
    )
    vectors = directions(bytes.fromhex(definition.seed), number, definition.candidates, vectors_of_owner.shape[1])
    return scores(vectors, vectors_of_owner)
