"""Datasets read in sets: all that loading each of them asks, in three statements for all of them.

What was read is remembered for the snapshot that this thread shares (`Store.sharing`), and `block_rows.load` finds it
there.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, select

from accountant.ledger.families.block_rows import ACCOUNTS, BLOCKS, FOUNDED
from accountant.ledger.families.families import EVERYBODY, account_of
from accountant.ledger.families.family_rows import BESIDE, DATASET, FAMILY, VERSION, WHOLE
from accountant.store.queries import Queries, at_hand, rows_of
from accountant.store.store import BODY, Store, batched, read_bodies
from accountant.store.tables import analyst_table, block_table, dataset_table, entry_table, family_table

_WHOLE = re.compile(f'"{WHOLE}":([0-9]+)')
_NAMES: Any = bindparam("names", expanding=True)
_SOME = select(dataset_table, entry_table.c.body).outerjoin(
    entry_table, (entry_table.c.seq == dataset_table.c.seq) & dataset_table.c.name.in_(_NAMES)
)
_ALL = select(dataset_table, entry_table.c.body).outerjoin(entry_table, entry_table.c.seq == dataset_table.c.seq)
_FAMILIES = (
    select(family_table, analyst_table.c.name, analyst_table.c.share, analyst_table.c.used.label("spent"))
    .outerjoin(
        analyst_table,
        (analyst_table.c.family == family_table.c.id) & analyst_table.c.name.in_(bindparam("who", expanding=True)),
    )
    .where(family_table.c.id.in_(bindparam("ids", expanding=True)))
)
_MEMBERS = select(dataset_table.c.name, dataset_table.c.families)
_BLOCKS_OF = select(block_table).where(block_table.c.dataset.in_(_NAMES)).order_by(block_table.c.number)


def dataset_names(database: Store) -> list[str]:
    """Return the name of every dataset, sorted."""
    with database.reading() as connection:
        return sorted(connection.execute(select(dataset_table.c.name)).scalars())


def question_of_members() -> tuple[Select[Any], dict[str, Any]]:
    """Return the query of `members_of`, and its values."""
    return _MEMBERS, {}


def members_of(connection: Connection, identities: Collection[str]) -> list[str]:
    """Return the names of the datasets that belong to one of these families, sorted."""
    rows = rows_of(connection, *question_of_members())
    return sorted(row.name for row in rows if not {*identities}.isdisjoint(json.loads(row.families)))


def questions(names: Iterable[str] | None = None) -> Queries:
    """List what `read_datasets` asks first."""
    return [(_ALL, {}) if names is None else (_SOME, {"names": sorted(set(names))})]


def read_datasets(
    connection: Connection,
    names: Collection[str] | None,
    analysts: Collection[str | None],
    parts: Collection[str | None] = (None,),
) -> list[str]:
    """Read datasets (None: every one) in a snapshot that is shared, by the accounts of these parts, and of the blocks
    whose rows are there, with the parts of these analysts; return the names of those that there are, sorted.
    """
    known = at_hand(connection)
    assert known is not None
    ((statement, values),) = questions(names)
    rows = connection.execute(statement, values).all()
    wanted = [row for row in rows if names is None or row.name in names]
    known |= {(DATASET, name): [] for name in names or ()} | {(DATASET, row.name): [row] for row in wanted}
    known |= {(BODY, row.seq): [(row.body,)] for row in wanted if row.body is not None}
    members = Counter[str]()
    for row in sorted(rows, key=lambda row: int(row.seq)):
        identities = json.loads(row.families)
        members.update(identities)
        known[VERSION, row.seq, identities[0]] = [(members[identities[0]],)]
    grown = sorted(row.name for row in wanted if row.last is not None)
    if grown:
        known |= {(BLOCKS, name): [] for name in grown}
        for row in connection.execute(_BLOCKS_OF, {"names": grown}):
            known[BLOCKS, row.dataset] = [*known[BLOCKS, row.dataset], row]
    _read_accounts(connection, known, wanted, analysts, parts)
    return sorted(row.name for row in wanted)  # by no database's locale


def _read_accounts(
    connection: Connection,
    known: dict[Any, Sequence[Any]],
    datasets: Iterable[Row[Any]],
    analysts: Collection[str | None],
    parts: Collection[str | None],
) -> None:
    """Read the accounts of these rows of datasets, and what the entries say that founded or changed them."""
    stated, blocks = dict[str, None](), dict[str, None]()
    for row in datasets:
        identities, has_person = (
            json.loads(row.families),
            row.last is not None or b'"person":' in bytes(row.body or b""),
        )
        for identity in identities:
            for part in parts:
                stated[account_of(identity, part)] = None
                if has_person:
                    stated[account_of(identity, part, person=True)] = None
                numbers = range(max(2, (row.dropped or 0) + 1), (row.last or 1) + 1)
                blocks |= {account_of(identity, part, number): None for number in numbers}
    who = sorted({*filter(None, analysts), EVERYBODY}) if any(analysts) else []
    accounts = defaultdict[str, list[Row[Any]]](list)
    for ids in batched([*stated, *blocks]):
        for row in connection.execute(_FAMILIES, {"who": who, "ids": ids}):
            accounts[row.id].append(row)
    entries = set[int]()
    for at in (*stated, *blocks):
        rows = accounts.get(at, [])
        known[FOUNDED, at], known[FAMILY, at] = [(row.seq,) for row in rows[:1]], rows[:1]
        for analyst in analysts:
            known[BESIDE, at, analyst] = rows
            spent = next((row.spent for row in rows if row.name == analyst), None)
            known[ACCOUNTS, at, analyst] = [(at, *row[1:5], spent) for row in rows[:1]]
        for row in rows[:1]:
            entries |= {row.seq, row.changed} if at in stated else set()
            entries |= {int(job) for job in _WHOLE.findall(row.used)}
    read_bodies(connection, filter(None, entries))
