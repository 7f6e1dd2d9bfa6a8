"""Jobs in the database: what the index says of a reservation."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, bindparam, insert, select

from accountant.errors import IdempotencyConflict, UnknownName, WrongState
from accountant.ledger.records import Job, Request, State
from accountant.store.tables import job_table

# Built once: building a statement costs more than running it.
_JOB = select(job_table).where(job_table.c.seq == bindparam("at"))
_BY_KEY = select(job_table).where(job_table.c.idempotency_key == bindparam("at"))
_NEW_JOB = insert(job_table)


def add_job(connection: Connection, job: Job, request: Request, by: str, key: str | None, owner: str | None) -> None:
    """The row of a job that was reserved by this request. `owner`: the process that holds it, if one does."""
    row = {
        "seq": job.seq,
        "dataset": job.dataset,
        "state": job.state,
        "model": job.model,
        "analyst": by,
        "idempotency_key": key,
        "request": request.digest,
        "queued": int(job.queued),
        "owner": owner,
        "done": job.done,
        "total": job.total,
    }
    connection.execute(_NEW_JOB, row)


def find_job(connection: Connection, key: str, request: Request) -> Job | None:
    """The job of this idempotency key; IdempotencyConflict where it came with another request."""
    row = connection.execute(_BY_KEY, {"at": key}).first()
    if row is None:
        return None
    if row.request != request.digest:
        raise IdempotencyConflict(
            f"idempotency_key={key!r}: came before with another request, as job {row.seq}", job=row.seq
        )
    return job_of(row)


def read_job(connection: Connection, seq: int) -> Job:
    """The job of this number; UnknownName where there is none."""
    row = connection.execute(_JOB, {"at": seq}).first()
    if row is None:
        raise UnknownName(f"job={seq}: no such job", job=seq)
    return job_of(row)


def job_of(row: Row[Any]) -> Job:
    """A whole row of the table of jobs."""
    return Job(row.seq, row.dataset, State(row.state), row.model, row.issued, bool(row.queued), row.done, row.total)


def require_state(job: Job, state: State, verb: str) -> None:
    """WrongState unless the job is in `state`; `verb`: what cannot be done else."""
    if job.state is not state:
        raise WrongState(
            f"job {job.seq}: cannot {verb} it, it is {job.state.value}", job=job.seq, state=job.state.value
        )
