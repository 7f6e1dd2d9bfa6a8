"""Datasets that grow in the database: the accounts of a window of blocks, read and written at once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from accountant.canonical import parse_decimal
from accountant.errors import InputError, LedgerInvalid, WrongState
from accountant.ledger import family_rows
from accountant.ledger.blocks.windows import SAY_BLOCKS, Block, Period, Window, window_of
from accountant.ledger.families import Dataset, Family, Spent, Whole, account_of
from accountant.ledger.family_rows import WHOLE, mismatch
from accountant.ledger.records import Request, window_from_entry
from accountant.log.entries import Signed, dumps, read_entry
from accountant.log.newest import account_number
from accountant.privacy.claims import Price
from accountant.privacy.filter import price_from_json, price_to_json
from accountant.store.store import body_at
from accountant.store.tables import analyst_table, block_table, dataset_table, family_table

# Built once: building a statement costs more than running it. A parameter that is a column's name is a value to set.
_BLOCKS = (
    select(block_table)
    .where(block_table.c.dataset == bindparam("at"), block_table.c.number.between(bindparam("low"), bindparam("high")))
    .order_by(block_table.c.number)
)
_ACCOUNTS = (
    select(family_table, analyst_table.c.used.label("spent"))
    .outerjoin(
        analyst_table, (analyst_table.c.family == family_table.c.id) & (analyst_table.c.name == bindparam("who"))
    )
    .where(family_table.c.id.in_(bindparam("ids", expanding=True)))
)
_PUT = update(family_table).where(family_table.c.id == bindparam("at"))
_PUT_ANALYST = update(analyst_table).where(
    analyst_table.c.family == bindparam("at"), analyst_table.c.name == bindparam("who")
)
_NEW_ANALYST = insert(analyst_table)
_SUMS = ("pure", "unbounded", WHOLE)


def load(
    connection: Connection,
    name: str,
    analyst: str | None = None,
    part: str | None = None,
    signed: Signed | None = None,
    blocks: str | Window | None = None,
) -> Dataset:
    """As `family_rows.load`, by the accounts of these blocks, in words or as they were resolved; None: of every block
    whose rows are there, where the dataset has grown. InputError where the words name others.
    """
    dataset = family_rows.load(connection, name, analyst, part, signed)
    if dataset.last is None and blocks is None:
        return dataset
    last, dropped = dataset.last or 1, dataset.dropped
    if blocks is None:
        window = (min(dropped, last - 1) + 1, last)
    else:
        window = window_of(blocks, dropped, last, name) if isinstance(blocks, str) else blocks
    if len(dataset.families) > 1:
        raise InputError(f"blocks: dataset {name} belongs to several families, and cannot grow; leave it out")
    found = _blocks(connection, dataset, window, signed)
    accounts = _accounts(connection, dataset.families[0], found, analyst, signed)
    return replace(dataset, families=accounts, blocks=found, window=None if blocks is None else window)


def charged_by(
    connection: Connection, stored: Mapping[str, Any], analyst: str | None = None, signed: Signed | None = None
) -> Dataset:
    """The dataset of a job, by the accounts that its `reserved` entry is charged to."""
    return load(connection, stored["dataset"], analyst, stored.get("part"), signed, window_from_entry(stored))


def asked(connection: Connection, request: Request, by: str, signed: Signed) -> Dataset:
    """The dataset of a request, by the accounts that it is charged to. InputError where it has grown, and the request
    does not say which blocks; WrongState where its words meant others when it was planned.
    """
    dataset = load(connection, request.dataset, by, request.part, signed, request.blocks)
    require_window(dataset, request.blocks)
    if request.window not in (None, dataset.window):
        raise WrongState(f"blocks={request.blocks}: a block came or went while the job was planned; ask again")
    return dataset


def require_window(dataset: Dataset, words: str | None) -> None:
    """InputError where a dataset has grown, and a job does not say which blocks it reads."""
    if words is None and dataset.last is not None:
        raise InputError(f"blocks: which of the {dataset.last} of dataset {dataset.registration.name}? {SAY_BLOCKS}")


def require_alone(connection: Connection, name: str) -> None:
    """InputError where a dataset has grown: nobody joins a family whose people stand in blocks."""
    last = connection.execute(select(dataset_table.c.last).where(dataset_table.c.name == name)).scalar()
    if last is not None:
        raise InputError(
            f"family: dataset {name} grows by blocks, and rows of another dataset would be of no block; append them "
            f"(dpserve dataset append {name}), or say that the people are new"
        )


def known_commitments(connection: Connection) -> dict[str, str]:
    """Of every block that was appended: its commitment -> its dataset."""
    query = select(block_table.c.commitment, block_table.c.dataset)
    return {row.commitment: row.dataset for row in connection.execute(query)}


def _blocks(connection: Connection, dataset: Dataset, window: Window, signed: Signed | None) -> tuple[Block, ...]:
    about, name = dataset.registration, dataset.registration.name
    found = [Block(1, dataset.seq, about.commitment, about.records)] if window[0] == 1 else []
    rows = connection.execute(_BLOCKS, {"at": name, "low": window[0], "high": window[1]}).all() if window[1] > 1 else []
    known = signed.known.blocks if signed else {}
    for row in rows:
        checked, block = known.get(row.seq, ((), None))
        if checked != tuple(row) or block is None:
            period = None if row.period is None else Period(**json.loads(row.period))
            block = Block(row.number, row.seq, row.commitment, row.records, period)
            if signed:
                entry = signed.entry(row.seq).value
                said = tuple(entry.get(each) for each in ("dataset", "block", "commitment", "records"))
                if said != (name, row.number, row.commitment, row.records):
                    raise mismatch(f"block {row.number} of dataset {name}", row.seq)
                known[row.seq] = tuple(row), block
        found.append(block)
    if [block.number for block in found] != [*range(window[0], window[1] + 1)]:
        raise mismatch(f"blocks of dataset {name}", dataset.seq)
    return tuple(found)


def _accounts(
    connection: Connection, first: Family, blocks: Sequence[Block], analyst: str | None, signed: Signed | None
) -> tuple[Family, ...]:
    """Of each block; that of the first is `first`, whose total, quotas and analyst are those of all."""
    found = {1: replace(first, block=1)}
    ids = {block.number: account_of(first.identity, first.part, block.number) for block in blocks if block.number > 1}
    asked = connection.execute(_ACCOUNTS, {"ids": [*ids.values()], "who": analyst}) if ids else ()
    rows = {row.id: row for row in asked}
    numbers = [account_number(block.seq, first.part) for block in blocks]
    newest = dict(zip(numbers, signed.newest.of(numbers), strict=True)) if signed else {}
    charged = dict(zip(numbers, signed.newest.spent(numbers, analyst), strict=True)) if signed and analyst else {}
    nothing = price_to_json(first.filter.nothing(), first.filter.orders)
    untouched = {"used": nothing, "reserved": nothing}
    alike: dict[tuple[str, str, str | None], Family] = {}
    for block, number in zip(blocks, numbers, strict=True):
        if block.number == 1:
            continue
        row = rows.get(ids[block.number])
        if row is None or (row.seq, row.changed) != (block.seq, None):
            raise mismatch(f"account of block {block.number}", block.seq)
        said = row.used, row.reserved, row.spent
        if said not in alike:
            alike[said] = _standing(connection, first, analyst, *said)
        if signed:
            used, reserved, own = (nothing if text is None else _sums(text, first.filter.orders)[0] for text in said)
            entry = newest[number]
            line = signed.said_of(entry, number) if entry else untouched
            if line is None or (used, reserved) != (line["used"], line["reserved"]):
                raise mismatch(f"account of block {block.number}", entry or block.seq)
            if analyst is not None and own != _said_spent(signed, charged[number], number, analyst, nothing):
                raise mismatch(f"analyst {analyst} on block {block.number}", block.seq)
        found[block.number] = alike[said].but(seq=block.seq, block=block.number)
    return tuple(found[block.number] for block in blocks)


def _standing(
    connection: Connection, first: Family, analyst: str | None, used: str, reserved: str, spent: str | None
) -> Family:
    """How the accounts of blocks stand whose rows, and their analyst's, say this."""
    orders = first.filter.orders
    (sums, spent_of_all), (_, waits), whole = _sums(used, orders), _sums(reserved, orders), None
    if WHOLE in sums:
        claimed = read_entry(sums[WHOLE], body_at(connection, sums[WHOLE])).value["claim"]
        whole = Whole(sums[WHOLE], parse_decimal(claimed["epsilon"]))
    own, quota = None, None
    if analyst is not None:
        own = Spent(analyst, first.filter.nothing() if spent is None else _sums(spent, orders)[1], spent is not None)
        quota = first.quota and replace(first.quota, used=own.used)
    return first.but(changed=None, used=spent_of_all, reserved=waits, whole=whole, spent=own, quota=quota)


@lru_cache(maxsize=8192)  # of many blocks most stand alike
def _sums(text: str, orders: tuple[Any, ...]) -> tuple[dict[str, Any], Price]:
    try:
        found: dict[str, Any] = json.loads(text)
        return found, price_from_json(found, orders)
    except (ValueError, KeyError, TypeError):
        raise LedgerInvalid(
            "index: the account of a block says nothing that can be read (dpserve ledger audit)"
        ) from None


def _said_spent(
    signed: Signed, newest: int, number: int, analyst: str, nothing: dict[str, Any]
) -> dict[str, Any] | None:
    """What the newest entry about an analyst and a block's account says of both."""
    if not newest:
        return nothing
    line = signed.said_of(newest, number) or {}
    said: dict[str, Any] = line.get("analyst", {})
    return said.get("used") if said.get("name") == analyst else None


def put(connection: Connection, families: Sequence[Family], lines: Sequence[Mapping[str, Any]]) -> None:
    """Put each family's sums, and what its analyst has used, at what its line of `after` says."""
    texts: dict[int, str] = {}  # of the same objects
    rows, known, new = [], [], []
    for family, line in zip(families, lines, strict=True):
        for figures in (line["used"], line["reserved"]):
            if id(figures) not in texts:
                texts[id(figures)] = dumps(figures)
        at = family.account
        rows.append({"at": at, "used": texts[id(line["used"])], "reserved": texts[id(line["reserved"])]})
        if "analyst" not in line or family.spent is None:
            continue
        spent = line["analyst"]["used"]
        if id(spent) not in texts:
            texts[id(spent)] = dumps(spent)
        if family.spent.known:
            known.append({"at": at, "who": line["analyst"]["name"], "used": texts[id(spent)]})
        else:
            new.append({"family": at, "name": line["analyst"]["name"], "share": None, "used": texts[id(spent)]})
    connection.execute(_PUT, rows)
    if known:
        connection.execute(_PUT_ANALYST, known)
    if new:
        connection.execute(_NEW_ANALYST, new)


def together(families: Iterable[Family], lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """What an entry says of these accounts: of blocks of which it says the same, one line, which names the first and,
    under `also`, the others. Accounts that are not of blocks have lines of their own.
    """
    found: list[dict[str, Any]] = []
    known: dict[tuple[Any, ...], dict[str, Any]] = {}
    for family, line in zip(families, lines, strict=True):
        if family.block is None:
            found.append(line)
            continue
        figures = line["used"], line["reserved"], line.get("analyst", {}).get("used", {})
        flat = ((*(each.get(name) for name in _SUMS), *each.get("rdp", {}).items()) for each in figures)
        own = line["changed"], *flat
        if own in known:
            known[own].setdefault("also", []).append(line["family"])
        else:
            known[own] = dict(line)
            found.append(known[own])
    return found
