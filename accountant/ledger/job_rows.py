"""Jobs in the database: what the index says of a reservation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection, Row, bindparam, insert, select, update

from accountant.errors import IdempotencyConflict, UnknownName, WrongState
from accountant.ledger.families import block_rows, dataset_sets
from accountant.ledger.families.families import Started
from accountant.ledger.families.job_kinds import Contribution, kind_of
from accountant.ledger.families.records import (
    Holding,
    Job,
    Request,
    SeenJobs,
    State,
    charged_window,
    request_from_entry,
)
from accountant.log.entries import Signed, TransparencyLog, Writer
from accountant.log.newest import account_number
from accountant.store import engines
from accountant.store.queries import LATER, Queries, at_hand, rows_of
from accountant.store.store import Store, body_at, questions_of_bodies, read_bodies
from accountant.store.tables import job_table
from accountant.system.traces import CURRENT
from dpserve_verify.errors import LedgerInvalid
from dpserve_verify.log.entry import read_entry
from dpserve_verify.privacy.events import plan_from_json

# Built once: building a statement costs more than running it.
_JOB = select(job_table).where(job_table.c.seq == bindparam("at"))
_JOBS = select(job_table).where(job_table.c.seq.in_(bindparam("seqs", expanding=True)))
RUNNING = select(job_table.c.seq).where(job_table.c.state == State.STARTED).limit(1)
_BY_KEY = select(job_table).where(
    job_table.c.analyst == bindparam("by"), job_table.c.idempotency_key == bindparam("at")
)
_NEW_JOB = insert(job_table).execution_options(**LATER)
MAX_RESUMES = 5  # times: a job that ends whoever runs it comes to its end
_QUEUED = (job_table.c.state == State.RESERVED) & (job_table.c.queued == 1)


def add_job(
    connection: Connection, job: Job, request: Request, by: str, key: str | None, owner: str | None, lease: float
) -> None:
    """Insert the row of a job that was reserved by this request. `owner`: the process that holds it for `lease`
    seconds, if one does.
    """
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
        "expires": None if owner is None else engines.clock(connection) + lease,
        "done": job.done,
        "total": job.total,
        "trace": CURRENT.get(),
    }
    connection.execute(_NEW_JOB, row)
    if owner is None:
        engines.announce(connection)


def question_of_key(by: str, key: str | None) -> Queries:
    """List what `find_job` will ask."""
    return [] if key is None else [(_BY_KEY, {"by": by, "at": key})]


def question_of(seq: int) -> Queries:
    """List what `read_job` will ask."""
    return [(_JOB, {"at": seq})]


def find_job(connection: Connection, by: str, key: str, request: Request) -> Job | None:
    """Return the job of this idempotency key of `by`; IdempotencyConflict where it came with another request."""
    row = connection.execute(_BY_KEY, {"by": by, "at": key}).first()
    if row is None:
        return None
    if row.request != request.digest:
        raise IdempotencyConflict(
            f"idempotency_key={key!r}: came before with another request, as job {row.seq}", job=row.seq
        )
    return job_of(row)


def find_contribution(connection: Connection, definition: str) -> int | None:
    """Return the job, of whoever asked for it, that pays for what the rows of this ledger add to a campaign; None where
    none does.
    """
    query = select(job_table.c.seq).where(job_table.c.idempotency_key == definition, job_table.c.model == "")
    for seq in connection.execute(query.order_by(job_table.c.seq)).scalars():
        kind = kind_of(read_entry(seq, body_at(connection, seq)).value)
        if isinstance(kind, Contribution) and kind.contributes == definition:
            return int(seq)
    return None


def page(
    connection: Connection,
    dataset: str | None,
    state: State | None,
    issued: bool | None,
    before: int,
    limit: int,
    seen: SeenJobs | None,
) -> list[Job]:
    """Return what `Ledger.page_of_jobs` does."""
    column = job_table.c
    where = [column.seq < before]
    where += [] if dataset is None else [column.dataset == dataset]
    where += [] if state is None else [column.state == state]
    where += [] if issued is None else [column.issued.is_not(None) if issued else column.issued.is_(None)]
    if seen is not None:
        where += [(column.analyst == seen.by) | column.dataset.in_(seen.datasets) | column.model.in_(seen.models)]
    query = select(job_table).where(*where).order_by(column.seq.desc()).limit(limit)
    return [job_of(row) for row in connection.execute(query)]


def read_job(connection: Connection, seq: int) -> Job:
    """Return the job of this number; UnknownName where there is none."""
    rows = rows_of(connection, _JOB, {"at": seq})
    if not rows:
        raise UnknownName(f"job={seq}: no such job", job=seq)
    return job_of(rows[0])


def read_jobs(connection: Connection, seqs: Iterable[int]) -> None:
    """Read the jobs of these numbers, as far as there are such, in one statement, for `read_job` in a snapshot that is
    shared.
    """
    known = at_hand(connection)
    wanted = sorted(set(seqs))
    if known is None or not wanted:
        return
    known |= {(_JOB, seq): [] for seq in wanted}
    known |= {(_JOB, row.seq): [row] for row in connection.execute(_JOBS, {"seqs": wanted})}


def read_in_sets(connection: Connection, jobs: Sequence[Job]) -> None:
    """Read all that is asked to show these jobs, in a snapshot that is shared: their entries, the evaluations that were
    reserved with them, and the datasets by the accounts and analysts that they were charged to.
    """
    known = at_hand(connection)
    if known is None or not jobs:
        return
    entries = [entry for job in jobs for entry in (job.seq, job.seq + 1, job.issued) if entry is not None]
    behind, names = [job.seq + 1 for job in jobs], {job.dataset for job in jobs}
    beside = [(_JOBS, {"seqs": sorted(behind)}), *dataset_sets.questions(names)]
    engines.ask_with_next(connection, [*questions_of_bodies(connection, entries), *beside])
    read_bodies(connection, entries)
    read_jobs(connection, behind)
    reserved = [read_entry(job.seq, body_at(connection, job.seq)).value for job in jobs]
    parts = {entry.get("part") for entry in reserved}
    dataset_sets.read_datasets(connection, names, {entry["by"] for entry in reserved}, parts)


def oldest_queued(
    connection: Connection,
    without: Collection[str],
    among: Collection[str],
    passed: Collection[int],
) -> int | None:
    """Return what `Ledger.next_queued` does."""
    row = job_table.c
    where = _QUEUED & row.dataset.not_in(without) & row.seq.not_in(passed)
    if among:
        where &= row.dataset.in_(among)
    return connection.execute(select(row.seq).where(where).order_by(row.seq).limit(1)).scalar()


def job_of(row: Row[Any]) -> Job:
    """Return a whole row of the table of jobs."""
    return Job(
        row.seq,
        row.dataset,
        State(row.state),
        row.model,
        row.issued,
        bool(row.queued),
        row.done,
        row.total,
        row.waiting,
        row.analyst,
    )


def trace_of(database: Store, seq: int) -> str | None:
    """Return the span that asked for the job, as `accountant.system.traces` has it; no evidence of anything."""
    with database.reading() as connection:
        return connection.execute(select(job_table.c.trace).where(job_table.c.seq == seq)).scalar()


def require_state(job: Job, state: State, verb: str) -> None:
    """Raise WrongState unless the job is in `state`; `verb`: what cannot be done else."""
    if job.state is not state:
        raise WrongState(
            f"job {job.seq}: cannot {verb} it, it is {job.state.value}", job=job.seq, state=job.state.value
        )


def require_first(signed: Signed, job: Job, verb: str) -> None:
    """Raise LedgerInvalid where the row says that a job waits, and a signed entry that it went on: a job that was set
    back would draw twice for one price, or get back what it spent.
    """
    entry = signed.after(account_number(job.seq))
    if entry:
        raise LedgerInvalid(
            f"index: job {job.seq}: cannot {verb} it: its row says {job.state.value}, and entry {entry} that it went "
            "on: somebody else wrote the row (dpserve ledger audit)",
            entry=entry,
            index=f"job {job.seq}",
        )


def renew(connection: Connection, seq: int, owner: str, lease: float, done: int) -> bool:
    """Return whether `owner` holds the job; if so, for `lease` seconds more from now on."""
    where = (job_table.c.seq == seq) & (job_table.c.owner == owner)
    values = {"expires": engines.clock(connection) + lease, "doubted": None, "done": done}
    return connection.execute(update(job_table).where(where).values(values)).rowcount == 1


def doubt(connection: Connection, holding: Holding) -> None:
    """Note when the lease was first seen to have run out; nothing where it was renewed meanwhile."""
    row = job_table.c
    where = (row.seq == holding.seq) & (row.owner == holding.owner) & row.doubted.is_(None)
    same = (row.expires == holding.expires) | row.expires.is_(None)
    connection.execute(update(job_table).where(where & same).values(doubted=engines.clock(connection)))


def holdings(connection: Connection) -> list[Holding]:
    """Return every job that a process holds, and how its lease stands now."""
    columns = (job_table.c.seq, job_table.c.state, job_table.c.owner, job_table.c.expires, job_table.c.doubted)
    query = select(*columns).where(job_table.c.owner.is_not(None)).order_by(job_table.c.seq)
    rows, now = connection.execute(query).all(), engines.clock(connection)
    return [
        Holding(seq, State(state), owner, expires or 0.0, (expires or 0.0) - now, None if at is None else now - at)
        for seq, state, owner, expires, at in rows
    ]


def require_holder(connection: Connection, job: Job, verb: str, owner: str, expires: float | None) -> None:
    """Raise WrongState unless `owner` holds the job, and, with `expires`, has not renewed its lease since it said
    that.
    """
    query = select(job_table.c.owner, job_table.c.expires).where(job_table.c.seq == job.seq)
    holder, until = connection.execute(query).one()
    if owner != holder or (expires is not None and expires != (until or 0.0)):
        raise WrongState(f"job {job.seq}: cannot {verb} it, it is held by another", job=job.seq, state=job.state.value)


def find_started(log: TransparencyLog, seq: int, owner: str) -> Started | None:
    """Return what `Ledger.start` gave to `owner`, where its answer was lost; None where it was not written. Nobody else
    writes meanwhile, so a transaction whose answer was lost is over.
    """
    with log.writing() as writer:
        job = read_job(writer.connection, seq)
        if job.state is not State.STARTED:
            return None
        require_holder(writer.connection, job, "start", owner, None)
        return _started(writer, seq)


def _started(writer: Writer, seq: int) -> Started:
    """Return the right to read rows for a job that has started."""
    entry = writer.signed.entry(seq)
    stored = entry.value
    dataset = block_rows.load_charged(writer.connection, entry, None, writer.signed)
    return Started(seq, dataset, request_from_entry(stored), Decimal(stored["unit"]), plan_from_json(stored["plan"]))


def resume(log: TransparencyLog, holding: Holding, owner: str, lease: float) -> Started:
    """Continue a started job (STARTED -> STARTED): `owner` holds it from now on, and draws nothing that was drawn
    before. In one transaction, to one caller alone.

    Raises:
        WrongState: it is not held any more as the `holding` has it, or went on MOST_RESUMED times before.
        LedgerInvalid: its row says that it runs, and the newest entry about it that it is over.
    """
    seq = holding.seq
    with log.writing() as writer:
        job = read_job(writer.connection, seq)
        require_state(job, State.STARTED, "resume")
        require_holder(writer.connection, job, "resume", holding.owner, holding.expires)
        last = writer.signed.after(account_number(seq))
        step = read_entry(last, writer.signed.body(last)).value
        if step["type"] not in ("started", "resumed") or step["reservation"] != seq:
            raise LedgerInvalid(
                f"index: job {seq}: cannot resume it: its row says {job.state.value}, and entry {last} {step['type']}: "
                "somebody else wrote the row (dpserve ledger audit)",
                entry=last,
                index=f"job {seq}",
            )
        times = int(step.get("times", 0)) + 1
        if times > MAX_RESUMES:
            raise WrongState(
                f"job {seq}: went on {MAX_RESUMES} times, and ended each time", job=seq, state=job.state.value
            )
        lease_values = {"owner": owner, "expires": engines.clock(writer.connection) + lease, "doubted": None}
        writer.connection.execute(update(job_table).where(job_table.c.seq == seq).values(**lease_values))
        started = _started(writer, seq)
        window = [*charged_window(writer.signed.entry(seq).value)]
        blocks = {"window": window} if started.dataset.blocks else {}
        writer.append("resumed", reservation=seq, times=times, **blocks)
        return started
