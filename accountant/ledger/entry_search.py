"""Entries by what they are about, newest first.

Names lead to jobs and tokens by the ledger's index tables, kinds and jobs to entries by `entry_index`. Only free text
is looked for in the entries themselves, by the database, a bounded number of them in one question.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, Select, Text, bindparam, cast, func, select

from accountant.ledger.families.family_rows import load
from accountant.store.entry_index import EntryIndex, entry_index
from accountant.store.queries import rows_of
from accountant.store.store import Store, body_at, read_bodies, size
from accountant.store.tables import entry_table, job_table, token_table
from dpserve_verify.entries.kinds import FORMS
from dpserve_verify.errors import InputError
from dpserve_verify.formats.canonical import spell
from dpserve_verify.log.entry import Entry, read_entry

AT_ONCE = 500  # entries that are read together
MAX_ENTRIES_READ = 250_000  # entries that one question for a text reads: a longer ledger is searched in several


_JOBS_OF = select(job_table.c.seq).where(job_table.c.dataset == bindparam("name"))
Chosen: TypeAlias = NDArray[np.bool_]  # of every entry, whether it is one of them


@dataclass(frozen=True)
class Wanted:
    """What is asked for, all of it at once; None or empty: whatever it is. `name`: of a model, a token or an analyst.
    `text`: stands anywhere in the entry, in small or capital letters.
    """

    dataset: str | None = None
    kind: str | None = None
    job: int | None = None
    name: str | None = None
    text: str | None = None


@dataclass(frozen=True)
class Found:
    """`entries`: newest first, out of a ledger of `size`; every match from the entry `looked` on. `older`: the `before`
    that gives more; None where all of it was looked through.
    """

    entries: tuple[Entry, ...]
    size: int
    looked: int
    older: int | None


def search(database: Store, wanted: Wanted, before: int | None = None, limit: int = 50) -> Found:
    """Return at most `limit` entries with an index below `before` (None: the newest). UnknownName for a dataset that is
    none, InputError for a kind that is none.
    """
    _checked(wanted)
    with database.sharing(), database.reading() as connection:
        count = size(connection)
        top = count if before is None else min(count, max(0, before))
        floor = max(0, top - MAX_ENTRIES_READ) if wanted.text else 0
        shown = _numbers(connection, database, wanted, range(floor, top), limit + 1)
        read_bodies(connection, shown[:limit])
        entries = tuple(read_entry(number, body_at(connection, number)) for number in shown[:limit])
    if len(shown) > limit:
        return Found(entries, count, shown[limit - 1], shown[limit - 1])
    return Found(entries, count, floor, floor or None)


def _checked(wanted: Wanted) -> Wanted:
    if wanted.kind and wanted.kind not in FORMS:
        raise InputError(f"kind={wanted.kind!r:.80}: must be one of {list(FORMS)}")
    return wanted


@dataclass
class Walk:
    """Entries of a ledger, whatever text they hold, read a few at a time, however many: from behind `after` on, the
    oldest first; else from below `before` on (None: the newest), the newest first. At most `limit`; `following`, once
    all were read: the `after` or `before` that gives more, None where there are none. Iterating raises as `search`.
    """

    database: Store
    wanted: Wanted
    after: int | None
    before: int | None
    limit: int
    following: int | None = None

    def __iter__(self) -> Iterator[Entry]:
        with self.database.reading() as connection:
            numbers = self._numbers(connection)
            if len(numbers) > self.limit:
                numbers = numbers[: self.limit]
                self.following = int(numbers[-1])
            for first in range(0, len(numbers), AT_ONCE):
                part = [int(number) for number in numbers[first : first + AT_ONCE]]
                rows = connection.execute(select(entry_table).where(entry_table.c.seq.in_(part)))
                bodies = {row[0]: bytes(row[1]) for row in rows}
                yield from (read_entry(number, bodies[number]) for number in part)

    def _numbers(self, connection: Connection) -> Sequence[int]:
        top = size(connection) if self.before is None else min(size(connection), max(0, self.before))
        among: Sequence[int] = range(0 if self.after is None else min(self.after + 1, top), top)
        chosen = [*_parts(connection, self.database, _checked(self.wanted))]
        if chosen:
            found = np.flatnonzero(np.logical_and.reduce(chosen)[:top])
            among = found[found > (-1 if self.after is None else self.after)].tolist()
        return among if self.after is not None else among[::-1]


def _numbers(connection: Connection, database: Store, wanted: Wanted, among: range, most: int) -> list[int]:
    """Return the numbers of at most `most` matching entries, the newest first."""
    chosen = [*_parts(connection, database, wanted)]
    if not chosen:
        return _with_text(connection, wanted.text, among, most) if wanted.text else [*among[::-1][:most]]
    numbers = np.flatnonzero(np.logical_and.reduce(chosen)[: among.stop])
    numbers = numbers[numbers >= among.start]
    if wanted.text:
        numbers = np.intersect1d(numbers, np.array(_with_text(connection, wanted.text, among), np.int64))
    return [int(number) for number in numbers[::-1][:most]]


def _parts(connection: Connection, database: Store, wanted: Wanted) -> Iterator[Chosen]:
    """Yield one mask over all entries per filter, text excepted."""
    if wanted.kind:
        yield entry_index(database, connection).of_kind(wanted.kind)
    if wanted.job is not None:
        yield entry_index(database, connection).of_jobs([wanted.job])
    if wanted.dataset:
        yield _of_dataset(connection, entry_index(database, connection), wanted.dataset)
    if wanted.name:
        yield _of_name(connection, entry_index(database, connection), wanted.name)


def _of_dataset(connection: Connection, index: EntryIndex, name: str) -> Chosen:
    """Select the entries that concern a dataset: its registration, its blocks, its jobs, what was decided about the
    families that it belongs to, and comparisons of files that it was named in.
    """
    dataset = load(connection, name)
    chosen = index.of_jobs([job for (job,) in rows_of(connection, *question_of_jobs(name))])
    wanted = {"dataset": {name}, "family": {*dataset.identities}}
    key_of = dict[int, str]()  # of entries that may say it themselves
    for kind, form in FORMS.items():
        keys = [] if form.about_job() else [key for key in wanted if key in form.keys()]  # noqa: SIM118
        key_of |= dict.fromkeys(np.flatnonzero(index.of_kind(kind)).tolist(), keys[0]) if keys else {}
    read_bodies(connection, key_of)
    for number, key in key_of.items():
        value = read_entry(number, body_at(connection, number)).value
        chosen[number] = value[key] in wanted[key] or name in value.get("concerns", ())
    return chosen


def question_of_jobs(dataset: str) -> tuple[Select[Any], dict[str, Any]]:
    """Return the query of the jobs of a dataset, and its values."""
    return _JOBS_OF, {"name": dataset}


def _of_name(connection: Connection, index: EntryIndex, name: str) -> Chosen:
    """Select jobs of the model or the analyst of that name, and what was decided about a token of that name."""
    is_named = (job_table.c.model == name) | (job_table.c.analyst == name)
    chosen = index.of_jobs([*connection.execute(select(job_table.c.seq).where(is_named)).scalars().all()])
    tokens = select(token_table.c.seq, token_table.c.revoked).where(token_table.c.name == name)
    numbers = [number for row in connection.execute(tokens) for number in row if number is not None]
    chosen[numbers] = True
    return chosen


def _with_text(connection: Connection, text: str, among: range, most: int | None = None) -> list[int]:
    """Return the entries that contain a text, the newest first. An entry is ASCII: other characters stand in it as JSON
    escapes.
    """
    part = "".join("/" + letter if letter in "%_/" else letter for letter in spell(text).decode("ascii")[1:-1])
    query = select(entry_table.c.seq).where(entry_table.c.seq >= among.start, entry_table.c.seq < among.stop)
    query = query.where(_like(connection, f"%{part}%")).order_by(entry_table.c.seq.desc()).limit(most)
    return [*connection.execute(query).scalars().all()]


def _like(connection: Connection, pattern: str) -> ColumnElement[bool]:
    if connection.dialect.name == "sqlite":
        return cast(entry_table.c.body, Text).like(pattern, escape="/")  # its LIKE knows no capitals
    return func.convert_from(entry_table.c.body, "UTF8").ilike(pattern, escape="/")
