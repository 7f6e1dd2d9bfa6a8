"""Campaigns: jobs whose rows are reports of owners. Two entries bind one: what every owner was asked, and how many
answered. Where owners answer in turns, an entry between them binds what each turn has learnt. Where two aggregators add
up, an entry of each binds its answer before that is sent.

A campaign's job has STARTED before it is opened, so its price stays whatever comes of it; and it is nobody's lease, for
it waits for owners and not for a process.
"""

from __future__ import annotations

import numpy as np
from sqlalchemy import Connection, update

from accountant.errors import IdempotencyConflict
from accountant.ledger.ledger import Ledger
from accountant.store.entry_index import entry_index
from accountant.store.store import body_at
from accountant.store.tables import job_table
from dpserve_verify.log.entry import read_entry

OPENED, CLOSED, ROUND = "campaign-opened", "campaign-closed", "campaign-round"
ANSWERED = "campaign-answered"


def open_campaign(ledger: Ledger, seq: int, definition: str) -> int:
    """Bind the definition's sha256 to a job that has STARTED, once; the index of its `campaign-opened` entry. From here
    on nobody holds the job. WrongState where it has not started, or was opened before.
    """
    with ledger.log.writing() as writer:
        index = writer.append(OPENED, reservation=seq, definition=definition)
        is_job = job_table.c.seq == seq
        writer.connection.execute(update(job_table).where(is_job).values(owner=None, expires=None, doubted=None))
        return index


def close_campaign(ledger: Ledger, seq: int, definition: str, reports: int) -> int:
    """Say that no report counts any more, and how many came; the index of its `campaign-closed` entry. WrongState where
    the campaign is not open.
    """
    with ledger.log.writing() as writer:
        return writer.append(CLOSED, reservation=seq, definition=definition, reports=reports)


def enter_round(ledger: Ledger, seq: int, definition: str, turn: int, reports: int, ensemble: str) -> int:
    """Bind the sha256 of what was learnt in a turn: the owners whose turn is next go by it. The entry's index.

    WrongState where the campaign is not open, or the turn is not the next one.
    """
    with ledger.log.writing() as writer:
        return writer.append(
            ROUND, reservation=seq, definition=definition, round=turn, reports=reports, ensemble=ensemble
        )


def enter_answer(ledger: Ledger, seq: int, definition: str, aggregator: int, answer: str) -> int:
    """Bind the sha256 of an aggregator's answer (1 or 2) before it is sent; the entry's index, the same for the same.
    Where the campaign asks in rounds, it is the word by which the aggregator begins.

    IdempotencyConflict where it has answered something else: it was restored from a backup. WrongState where the
    campaign is not closed (one that asks in rounds: not open), or its job is over.
    """
    with ledger.log.writing() as writer:
        for index in _entries_of(ledger, writer.connection, seq, ANSWERED):
            value = read_entry(index, body_at(writer.connection, index)).value
            if value["aggregator"] == aggregator:
                if value["answer"] != answer:
                    raise IdempotencyConflict(
                        f"job {seq}: aggregator {aggregator} has answered something else, entry {index}", job=seq
                    )
                return index
        return writer.append(ANSWERED, reservation=seq, definition=definition, aggregator=aggregator, answer=answer)


def answers_of(ledger: Ledger, seq: int) -> list[int]:
    """Return the indices of a job's ANSWERED entries."""
    with ledger.log.database.reading() as connection:
        return _entries_of(ledger, connection, seq, ANSWERED)


def answered_by(ledger: Ledger, seq: int) -> dict[int, str]:
    """Return the sha256 that each aggregator, 1 or 2, has entered for a job."""
    with ledger.log.database.reading() as connection:
        indices = _entries_of(ledger, connection, seq, ANSWERED)
        values = [read_entry(index, body_at(connection, index)).value for index in indices]
    return {value["aggregator"]: value["answer"] for value in values}


def rounds_of(ledger: Ledger, seq: int) -> list[int]:
    """Return the indices of a job's ROUND entries: of turn 1, 2, ..."""
    with ledger.log.database.reading() as connection:
        return _entries_of(ledger, connection, seq, ROUND)


def entry_of(ledger: Ledger, seq: int, kind: str) -> int | None:
    """Return the index of a job's OPENED or CLOSED entry; None where there is none (yet)."""
    with ledger.log.database.reading() as connection:
        return _entry_of(ledger, connection, seq, kind)


def _entry_of(ledger: Ledger, connection: Connection, seq: int, kind: str) -> int | None:
    indices = _entries_of(ledger, connection, seq, kind)
    return indices[0] if indices else None


def _entries_of(ledger: Ledger, connection: Connection, seq: int, kind: str) -> list[int]:
    index = entry_index(ledger.log.database, connection)
    return [int(at) for at in np.flatnonzero(index.of_kind(kind) & index.of_jobs([seq]))]
