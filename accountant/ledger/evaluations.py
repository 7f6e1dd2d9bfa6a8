"""`evaluated` and `profiled` entries: each binds a signed statement, of what a certified model is worth or of how the
rows of a dataset are spread, to the job that measured it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, select, update

from accountant.errors import InputError, WrongState
from accountant.keys import key_rows
from accountant.ledger import derived_entries
from accountant.ledger.families.records import Job, Request, State, request_from_entry
from accountant.ledger.job_rows import read_job, require_state
from accountant.ledger.wide_jobs import require_charged_blocks
from accountant.log.entries import Signed, TransparencyLog, read_entry
from accountant.store.store import Store, body_at, size
from accountant.store.tables import job_table


def check(signed: Signed, request: Request) -> None:
    """InputError where what the request evaluates is no certified model of its name, or is compared with itself,
    UnknownName where either is no entry, WrongState where one was revoked. A profile is of no model.
    """
    others = request.model, request.target, request.evaluates, request.against, request.promote
    if request.profile and others != ("", None, None, None, False):
        raise InputError("profile: is of a dataset, and of no model or target")
    if request.evaluates is None:
        return
    if request.against == request.evaluates:
        raise InputError(f"against={request.against}: is the model itself")
    entry = derived_entries.certified(signed.connection, request.evaluates)
    if entry.value["name"] != request.model:
        raise InputError(f"model={request.model}: entry {request.evaluates} certifies {entry.value['name']}")
    if request.against is not None:
        derived_entries.certified(signed.connection, request.against)
    for each in {request.evaluates, request.against} & signed.revoked():
        raise WrongState(f"model={request.model}: the certificate of entry {each} was revoked")


def certified_of(connection: Connection, evaluates: int) -> int | None:
    """The entry that certifies what is evaluated: the one that is named; of a job's reservation, that of its model,
    None while there is none.
    """
    if read_entry(evaluates, body_at(connection, evaluates)).value["type"] != "reserved":
        return evaluates
    return read_job(connection, evaluates).issued


def following(connection: Connection, seq: int) -> Job | None:
    """The evaluation that was reserved together with this job, and so as the very next entry; None where none was."""
    if seq + 1 >= size(connection):
        return None
    value = read_entry(seq + 1, body_at(connection, seq + 1)).value
    return read_job(connection, seq + 1) if value["type"] == "reserved" and value.get("evaluates") == seq else None


def require_made(connection: Connection, stored: Mapping[str, Any]) -> None:
    """WrongState where a `reserved` entry evaluates the model of a job that has not made it yet."""
    if "evaluates" in stored and certified_of(connection, stored["evaluates"]) is None:
        raise WrongState(f"job {stored['evaluates']}: has made no model yet, which is to be evaluated")


def require_uncertified(connection: Connection, job: Job) -> None:
    """WrongState where the job has a certificate, or gets none: it evaluates a model, and makes none."""
    if job.issued is not None:
        raise WrongState(f"job {job.seq}: its certificate was issued as entry {job.issued}", job=job.seq)
    asked = read_entry(job.seq, body_at(connection, job.seq)).value
    if "evaluates" in asked or "profile" in asked:
        does = "evaluates a model" if "evaluates" in asked else "profiles a dataset"
        raise WrongState(f"job {job.seq}: {does}, and makes no model", job=job.seq)


def enter(log: TransparencyLog, seq: int, statement: str, signed_by: str) -> int:
    """Bind the statement's sha256 to a committed evaluation, once; the index of its entry. WrongState where the job is
    not committed, or has a statement; KeyInvalid where the key that signed it may not any more.
    """
    with log.writing() as writer:
        key_rows.require_issuer(writer.connection, signed_by)
        job = read_job(writer.connection, seq)
        require_state(job, State.COMMITTED, "enter a statement for")
        require_charged_blocks(writer.connection, seq)
        request = request_from_entry(read_entry(seq, body_at(writer.connection, seq)).value)
        made = None if request.evaluates is None else certified_of(writer.connection, request.evaluates)
        if job.issued is not None or made is None:
            raise WrongState(f"job {seq}: is no evaluation without a statement", job=seq)
        model = derived_entries.certified(writer.connection, made).value["model"]
        index = writer.append("evaluated", reservation=seq, statement=statement, model=model, name=job.model)
        writer.connection.execute(update(job_table).where(job_table.c.seq == seq).values(issued=index))
        return index


def enter_profile(log: TransparencyLog, seq: int, statement: str, signed_by: str) -> int:
    """Bind the statement's sha256 to a committed profile, once; the index of its entry. Raises as `enter`."""
    with log.writing() as writer:
        key_rows.require_issuer(writer.connection, signed_by)
        job = read_job(writer.connection, seq)
        require_state(job, State.COMMITTED, "enter a statement for")
        require_charged_blocks(writer.connection, seq)
        request = request_from_entry(read_entry(seq, body_at(writer.connection, seq)).value)
        if job.issued is not None or not request.profile:
            raise WrongState(f"job {seq}: is no profile without a statement", job=seq)
        index = writer.append("profiled", reservation=seq, statement=statement, dataset=job.dataset)
        writer.connection.execute(update(job_table).where(job_table.c.seq == seq).values(issued=index))
        return index


def asked_of(connection: Connection, seq: int) -> Request:
    """The request of a job."""
    return request_from_entry(read_entry(seq, body_at(connection, seq)).value)


def profiles_of(database: Store, dataset: str) -> list[int]:
    """The jobs whose profiles of this dataset stand, the newest first."""
    with database.reading() as connection:
        return [
            job
            for number, job in _stated(database, connection, "profiled")
            if read_entry(number, body_at(connection, number)).value["dataset"] == dataset
        ]


def by_model(database: Store) -> dict[int, list[int]]:
    """By the entry that certifies a model: the jobs whose statements are about it, the newest first."""
    with database.reading() as connection:
        found: dict[int, list[int]] = {}
        for _, job in _stated(database, connection, "evaluated"):
            certified = certified_of(connection, read_entry(job, body_at(connection, job)).value["evaluates"])
            if certified is not None:
                found.setdefault(certified, []).append(job)
        return found


def _stated(database: Store, connection: Connection, kind: str) -> list[tuple[int, int]]:
    """Entries of this kind, the newest first, each with its job."""
    from accountant.store.entry_kinds import entry_index  # loads numpy, which most commands do without

    index = entry_index(database, connection)
    return [(int(number), int(index.jobs[number])) for number in index.of_kind(kind).nonzero()[0][::-1]]


def same(database: Store, request: Request) -> int | None:
    """The newest job that was asked the same, of the same blocks, and has a statement, be it that it was asked for with
    the training.
    """
    row, digests = job_table.c, [request.digest]
    with database.reading() as connection:
        if request.evaluates is not None and request.against is None:
            made = derived_entries.certified(connection, request.evaluates).value
            if made["type"] == "issued":
                digests.append(replace(request, evaluates=made["reservation"]).digest)
        query = select(row.seq).where(row.request.in_(digests), row.issued.is_not(None)).order_by(row.seq.desc())
        found = connection.execute(query.limit(1)).scalar()
        if found is None or (asked_of(connection, found).window != request.window and request.window is not None):
            return None  # the same words meant other blocks then
    return int(found)
