"""Campaigns: jobs whose rows are reports of owners. Two entries bind one: what every owner was asked, and how many
answered.

A campaign's job has STARTED before it is opened, so its price stays whatever comes of it; and it is nobody's lease, for
it waits for owners and not for a process.
"""

from __future__ import annotations

import numpy as np
from sqlalchemy import Connection, update

from accountant.errors import WrongState
from accountant.ledger.job_rows import read_job, require_state
from accountant.ledger.ledger import Ledger
from accountant.ledger.records import State
from accountant.store.entry_kinds import entry_index
from accountant.store.tables import job_table

OPENED, CLOSED = "campaign-opened", "campaign-closed"


def open_campaign(ledger: Ledger, seq: int, definition: str) -> int:
    """Bind the definition's sha256 to a job that has STARTED, once; the index of its `campaign-opened` entry. From here
    on nobody holds the job. WrongState where it has not started, or was opened before.
    """
    with ledger.log.writing() as writer:
        require_state(read_job(writer.connection, seq), State.STARTED, "open a campaign for")
        _refuse(ledger, writer.connection, seq, OPENED)
        index = writer.append(OPENED, reservation=seq, definition=definition)
        here = job_table.c.seq == seq
        writer.connection.execute(update(job_table).where(here).values(owner=None, expires=None, doubted=None))
        return index


def close_campaign(ledger: Ledger, seq: int, definition: str, reports: int) -> int:
    """Say that no report counts any more, and how many came; the index of its `campaign-closed` entry. WrongState where
    the campaign is not open.
    """
    with ledger.log.writing() as writer:
        require_state(read_job(writer.connection, seq), State.STARTED, "close the campaign of")
        if _entry_of(ledger, writer.connection, seq, OPENED) is None:
            raise WrongState(f"job {seq}: has no campaign that was opened", job=seq)
        _refuse(ledger, writer.connection, seq, CLOSED)
        return writer.append(CLOSED, reservation=seq, definition=definition, reports=reports)


def entry_of(ledger: Ledger, seq: int, kind: str) -> int | None:
    """The index of a job's OPENED or CLOSED entry; None where there is none (yet)."""
    with ledger.log.database.reading() as connection:
        return _entry_of(ledger, connection, seq, kind)


def _entry_of(ledger: Ledger, connection: Connection, seq: int, kind: str) -> int | None:
    index = entry_index(ledger.log.database, connection)
    found = np.flatnonzero(index.of_kind(kind) & index.of_jobs([seq]))
    return int(found[0]) if found.size else None


def _refuse(ledger: Ledger, connection: Connection, seq: int, kind: str) -> None:
    known = _entry_of(ledger, connection, seq, kind)
    if known is not None:
        raise WrongState(f"job {seq}: stands as {kind} before, entry {known}", job=seq)
