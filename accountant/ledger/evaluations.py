"""`evaluated` and `profiled` entries: each binds a signed statement, of what a certified model is worth or of how the
rows of a dataset are spread, to the job that measured it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Select, bindparam, select, update

from accountant.errors import WrongState
from accountant.keys import key_rows
from accountant.ledger import derived_entries
from accountant.ledger.families.job_kinds import Evaluation, Profile, kind_of
from accountant.ledger.families.records import Job, Request, charged_window, request_from_entry
from accountant.ledger.job_rows import read_job, read_jobs
from accountant.log.entries import Signed, TransparencyLog
from accountant.store.engines import ask_with_next
from accountant.store.queries import rows_of
from accountant.store.store import Store, body_at, questions_of_bodies, read_bodies, size
from accountant.store.tables import entry_table, job_table
from dpserve_verify.errors import InputError
from dpserve_verify.log.entry import read_entry

LOOKED_AT = 64  # jobs of a dataset, the newest, among which evaluations are looked for when a job is priced
_ENDED = (
    select(job_table.c.seq, job_table.c.issued, entry_table.c.body)
    .join(entry_table, entry_table.c.seq == job_table.c.issued)
    .where(job_table.c.dataset == bindparam("at"))
    .order_by(job_table.c.seq.desc())
    .limit(LOOKED_AT)
)


def check(signed: Signed, request: Request) -> None:
    """Raise UnknownName where what the request measures is no certified model, InputError where that has not its name,
    WrongState where one was revoked.
    """
    for at, index in enumerate(request.kind.models):
        entry = derived_entries.certifying_entry(signed.connection, index)
        if at == 0 and entry.value["name"] != request.model:
            raise InputError(f"model={request.model}: entry {index} certifies {entry.value['name']}")
    for index in signed.revoked().intersection(request.kind.models):
        raise WrongState(f"model={request.model}: the certificate of entry {index} was revoked")


def certified_of(connection: Connection, evaluates: int) -> int | None:
    """Return the entry that certifies what is evaluated: the one that is named; of a job's reservation, that of its
    model, None while there is none.
    """
    if read_entry(evaluates, body_at(connection, evaluates)).value["type"] != "reserved":
        return evaluates
    return read_job(connection, evaluates).issued


def following(connection: Connection, seq: int) -> Job | None:
    """Return the evaluation that was reserved together with this job, and so as the very next entry; None where none
    was.
    """
    if seq + 1 >= size(connection):
        return None
    value = read_entry(seq + 1, body_at(connection, seq + 1)).value
    measures = kind_of(value).models if value["type"] == "reserved" else ()
    return read_job(connection, seq + 1) if seq in measures else None


def require_made(connection: Connection, stored: Mapping[str, Any]) -> None:
    """Raise WrongState where a `reserved` entry measures the model of a job that has not made it yet."""
    for index in kind_of(stored).models:
        if certified_of(connection, index) is None:
            raise WrongState(f"job {index}: has made no model yet, which is to be evaluated")


def enter(log: TransparencyLog, seq: int, statement: str, signed_by: str) -> int:
    """Bind the statement's sha256 to a committed job that makes no model, once; the index of its entry. WrongState
    where the job is not committed, or has a statement; KeyInvalid where the key that signed it may not any more.
    """
    with log.writing() as writer:
        connection = writer.connection
        key_rows.require_issuer(connection, signed_by)
        job = read_job(connection, seq)
        kind = asked_of(connection, seq).kind
        require_made(connection, kind.to_json())
        certificates = [certified_of(connection, index) for index in kind.models]
        models = [
            derived_entries.certifying_entry(connection, index).value["model"]
            for index in certificates
            if index is not None
        ]
        about = {"model": next(iter(models), None), "name": job.model, "dataset": job.dataset}
        bound = {name: about[name] for name in kind.binds}
        index = writer.append(kind.ends, reservation=seq, statement=statement, **bound)
        connection.execute(update(job_table).where(job_table.c.seq == seq).values(issued=index))
        return index


def asked_of(connection: Connection, seq: int) -> Request:
    """Return the request of a job."""
    return request_from_entry(read_entry(seq, body_at(connection, seq)).value)


def profiles_of(database: Store, dataset: str) -> list[int]:
    """Return the jobs whose profiles of this dataset stand, the newest first."""
    with database.sharing(), database.reading() as connection:
        profiled = _entries_of_kind(database, connection, Profile.ends)
        read_bodies(connection, (number for number, _ in profiled))
        return [
            job
            for number, job in profiled
            if read_entry(number, body_at(connection, number)).value["dataset"] == dataset
        ]


def ask_profiles(database: Store) -> None:
    """Ask with the next statement of a shared snapshot what `profiles_of` will ask."""
    with database.reading() as connection:
        profiled = [number for number, _ in _entries_of_kind(database, connection, Profile.ends)]
        ask_with_next(connection, questions_of_bodies(connection, profiled))


def by_model(database: Store) -> dict[int, list[int]]:
    """Return, by the entry that certifies a model, the jobs whose statements are about it, the newest first."""
    with database.sharing(), database.reading() as connection:
        jobs: dict[int, list[int]] = {}
        evaluations = [job for _, job in _entries_of_kind(database, connection, Evaluation.ends)]
        read_bodies(connection, evaluations)
        measured = {job: asked_of(connection, job).kind.models[0] for job in evaluations}
        read_bodies(connection, measured.values())
        read_jobs(connection, measured.values())
        for job in evaluations:
            certified = certified_of(connection, measured[job])
            if certified is not None:
                jobs.setdefault(certified, []).append(job)
        return jobs


def _entries_of_kind(database: Store, connection: Connection, kind: str) -> list[tuple[int, int]]:
    """Return entries of this kind, the newest first, each with its job."""
    from accountant.store.entry_index import entry_index  # loads numpy, which most commands do without

    index = entry_index(database, connection)
    return [(int(number), int(index.jobs[number])) for number in index.of_kind(kind).nonzero()[0][::-1]]


def on_dataset(database: Store, dataset: str, most: int) -> list[tuple[int, Mapping[str, Any]]]:
    """Return at most so many evaluations on the rows of a dataset whose statements stand, the newest first, each with
    the `reserved` entry of the job that made the model; none of models that were made otherwise. A process that has no
    index of the ledger makes none for a price: it looks at the newest LOOKED_AT jobs.
    """
    with database.sharing(), database.reading() as connection:
        jobs = _newest_evaluations(database, connection, dataset)
        read_bodies(connection, jobs)
        mine = [job for job in jobs if read_entry(job, body_at(connection, job)).value["dataset"] == dataset][:most]
        made = {job: asked_of(connection, job).kind.models[0] for job in mine}
        for _ in range(2):  # of a certificate, the job that it names
            read_bodies(connection, made.values())
            values = {job: read_entry(entry, body_at(connection, entry)).value for job, entry in made.items()}
            made = {job: values[job].get("reservation", entry) for job, entry in made.items()}
        return [(job, value) for job, value in values.items() if value["type"] == "reserved"]


def _newest_evaluations(database: Store, connection: Connection, dataset: str) -> list[int]:
    """Return jobs of evaluations, the newest first, those of the dataset among them."""
    from accountant.store.entry_index import is_indexed  # loads numpy, which most commands do without

    if is_indexed(database):
        return [job for _, job in _entries_of_kind(database, connection, Evaluation.ends)]
    ended = rows_of(connection, *question_of_ended(dataset))
    return [job for job, index, body in ended if read_entry(index, bytes(body)).value["type"] == Evaluation.ends]


def question_of_ended(dataset: str) -> tuple[Select[Any], dict[str, Any]]:
    """Return the query by which a price looks for what was counted and measured of a dataset, and its values."""
    return _ENDED, {"at": dataset}


def counts_on(database: Store, dataset: str) -> list[tuple[int, Mapping[str, Any]]]:
    """Return the jobs among the newest LOOKED_AT of a dataset whose counts of its rows stand, the newest first, each
    with its `reserved` entry: a price asks it, and makes no index of the ledger.
    """
    with database.reading() as connection:
        ended = rows_of(connection, *question_of_ended(dataset))
        jobs = [job for job, index, body in ended if read_entry(index, bytes(body)).value["type"] == Profile.ends]
        read_bodies(connection, jobs)
        return [(job, read_entry(job, body_at(connection, job)).value) for job in jobs]


def counted_jobs(database: Store, request: Request, most: int) -> list[tuple[int, Mapping[str, Any]]]:
    """Return at most so many jobs whose counts of the same rows as `request` reads stand, the newest first, each with
    its `reserved` entry.
    """
    jobs: list[tuple[int, Mapping[str, Any]]] = []
    with database.reading() as connection:
        for _, job in _entries_of_kind(database, connection, Profile.ends):
            value = read_entry(job, body_at(connection, job)).value
            if _reads_same(value, request):
                jobs.append((job, value))
            if len(jobs) == most:
                break
    return jobs


def _reads_same(value: Mapping[str, Any], request: Request) -> bool:
    """Return whether the job of a `reserved` entry reads the rows that a request does: a part and blocks by their
    numbers, by whatever words they were named.
    """
    return (value["dataset"], value.get("part"), charged_window(value)) == (
        request.dataset, request.part, request.window or (1, 1),
    )  # fmt: skip


def find_same(database: Store, request: Request, others: Iterable[Request] = ()) -> int | None:
    """Return the newest job with the same request on the same rows that has a statement, whether or not it was
    requested with the training. `others`: requests that are as good.
    """
    row, same = job_table.c, [request, *others]
    with database.reading() as connection:
        match request.kind:
            case Evaluation(evaluates, against=None):
                entry = derived_entries.certifying_entry(connection, evaluates).value
                if entry["type"] == "issued":
                    same += [replace(each, kind=Evaluation(entry["reservation"])) for each in same]
        without_words = [replace(each, blocks=None) for each in same]
        where = (row.dataset == request.dataset) & (row.model == request.model) & row.issued.is_not(None)
        for seq in connection.execute(select(row.seq).where(where).order_by(row.seq.desc())).scalars():
            value = read_entry(seq, body_at(connection, seq)).value
            if _reads_same(value, request) and replace(request_from_entry(value), blocks=None) in without_words:
                return int(seq)
    return None
