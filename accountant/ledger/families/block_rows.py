"""Datasets that grow in the database: the accounts of a window of blocks, read and written at once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeAlias

from sqlalchemy import Connection, bindparam, insert, select, update

from accountant.errors import WrongState
from accountant.ledger.families import family_rows
from accountant.ledger.families.families import Dataset, Family, Spent, TotalClaim, account_of
from accountant.ledger.families.family_rows import PERSON, WHOLE, mismatch, text_of
from accountant.ledger.families.records import Request, charged_window
from accountant.ledger.families.row_queries import RowQuery
from accountant.ledger.families.windows import SAY_BLOCKS, Block, Period, Window, named_window, window_of
from accountant.log.entries import Signed
from accountant.log.newest import account_number
from accountant.store.queries import LATER, at_hand, rows_of
from accountant.store.store import body_at
from accountant.store.tables import analyst_table, block_table, entry_table, family_table
from dpserve_verify.errors import InputError, LedgerInvalid
from dpserve_verify.formats.canonical import CanonicalError, parse_decimal
from dpserve_verify.log.entry import Entry, read_entry
from dpserve_verify.privacy.budget import Budget
from dpserve_verify.privacy.filter import Filter, Price, price_from_json, price_to_json

# Built once: building a statement costs more than running it. A parameter that is a column's name is a value to set.
BLOCKS = (
    select(block_table)
    .where(block_table.c.dataset == bindparam("at"), block_table.c.number.between(bindparam("low"), bindparam("high")))
    .order_by(block_table.c.number)
)
_ENTRIES = (
    select(entry_table.c.seq, entry_table.c.body)
    .join(block_table, block_table.c.seq == entry_table.c.seq)
    .where(block_table.c.dataset == bindparam("at"), block_table.c.number.between(bindparam("low"), bindparam("high")))
)
ACCOUNTS = (
    select(*(family_table.c[name] for name in ("id", "seq", "changed", "used", "reserved")), analyst_table.c.used)
    .outerjoin(
        analyst_table, (analyst_table.c.family == family_table.c.id) & (analyst_table.c.name == bindparam("who"))
    )
    .where(family_table.c.id.in_(bindparam("ids", expanding=True)))
)
FOUNDED = select(family_table.c.seq).where(family_table.c.id == bindparam("at"))
_PUT = update(family_table).where(family_table.c.id == bindparam("at")).execution_options(**LATER)
_PUT_ANALYST = (
    update(analyst_table)
    .where(analyst_table.c.family == bindparam("at"), analyst_table.c.name == bindparam("who"))
    .execution_options(**LATER)
)
_NEW_ANALYST = insert(analyst_table).execution_options(**LATER)


_Sums: TypeAlias = tuple[dict[str, Any], Price]  # as a row says them, and what that is


def load(
    connection: Connection,
    name: str,
    analyst: str | None = None,
    part: str | None = None,
    signed: Signed | None = None,
    blocks: str | Window | None = None,
    rows: bool = True,
) -> Dataset:
    """Load a dataset as `family_rows.load` does, by the accounts of these blocks, in words or as they were resolved;
    None: of every block whose rows are there now, where the dataset has grown. `rows`: whether they are to be read;
    else accounts of blocks whose rows were deleted can be named. InputError where the words name others.
    """
    dataset = family_rows.load(connection, name, analyst, part, signed)
    last, dropped = dataset.last or 1, dataset.dropped
    if blocks is None:
        window = (min(dropped, last - 1) + 1, last)
    else:
        means = window_of if rows else named_window
        window = means(blocks, dropped, last, name) if isinstance(blocks, str) else blocks
    return _with_accounts(connection, dataset, window, blocks is not None, analyst, signed)


def load_charged(
    connection: Connection, reservation: Entry, analyst: str | None = None, signed: Signed | None = None
) -> Dataset:
    """Load the dataset of a job by the accounts that its `reserved` entry is charged to, and by no others: what was
    appended since is not read, charged or given back.
    """
    stored = reservation.value
    dataset = family_rows.load(connection, stored["dataset"], analyst, stored.get("part"), signed)
    return _with_accounts(connection, dataset, charged_window(stored), "window" in stored, analyst, signed)


def _with_accounts(
    connection: Connection,
    dataset: Dataset,
    window: Window,
    named: bool,
    analyst: str | None,
    signed: Signed | None,
) -> Dataset:
    """Put the accounts of a window in place of the family's, with that of one person behind them. `named`: whether the
    window was asked for. A dataset that has not grown has the accounts of its families.
    """
    person = _person(connection, dataset, analyst, signed)
    if dataset.last is None and not named:
        return replace(dataset, families=(*dataset.families, *person)) if person else dataset
    if len(dataset.families) > 1:
        name = dataset.registration.name
        raise InputError(f"blocks: dataset {name} belongs to several families, and cannot grow; leave it out")
    blocks = _blocks(connection, dataset, window, signed)
    accounts = _accounts(connection, dataset.families[0], blocks, analyst, signed)
    return replace(dataset, families=(*accounts, *person), blocks=blocks, window=window if named else None)


def load_requested(connection: Connection, request: Request, by: str, signed: Signed) -> Dataset:
    """Load the dataset of a request, by the accounts that it is charged to. InputError where it has grown and the
    request names no blocks, or asks for a delta that is none of its; WrongState where its words meant other blocks when
    it was planned, or it was planned on a dataset of that name that was withdrawn since.
    """
    dataset = load(connection, request.dataset, by, request.part, signed, request.blocks)
    require_window(dataset, request.blocks)
    if request.window not in (None, dataset.window):
        raise WrongState(f"blocks={request.blocks}: a block came or went while the job was planned; ask again")
    if request.registered not in (None, dataset.seq):
        raise WrongState(
            f"dataset={request.dataset}: was withdrawn, and another registered by that name, while the job was "
            "planned; ask again"
        )
    dataset.check_delta(request.budget)
    return dataset


def with_queries(connection: Connection, dataset: Dataset) -> Dataset:
    """Add to each block of the window by which query its rows were read, as its entry states it."""
    if not dataset.blocks:
        return dataset
    ends = {"low": dataset.blocks[0].number, "high": dataset.blocks[-1].number}
    queries: dict[int, RowQuery] = {}
    for seq, body in rows_of(connection, _ENTRIES, {"at": dataset.registration.name, **ends}):
        if b'"query":' in bytes(body):  # few have one, and parsing all would be felt
            value = read_entry(seq, bytes(body)).value
            queries |= {seq: RowQuery.from_json(value["query"])} if "query" in value else {}
    blocks = tuple(replace(block, query=queries.get(block.seq, block.query)) for block in dataset.blocks)
    return replace(dataset, blocks=blocks)


def require_kept(dataset: Dataset, words: str | None) -> None:
    """Raise InputError where rows of a block that these words name were deleted: who has no answer yet cannot get one
    from them.
    """
    if words is not None:
        window_of(words, dataset.dropped, dataset.last or 1, dataset.registration.name)


def require_window(dataset: Dataset, words: str | None) -> None:
    """Raise InputError where a dataset has grown, and a job does not say which blocks it reads."""
    if words is None and dataset.last is not None:
        raise InputError(f"blocks: which of the {dataset.last} of dataset {dataset.registration.name}? {SAY_BLOCKS}")


def known_commitments(connection: Connection) -> dict[str, str]:
    """Return the commitment of every appended block -> its dataset."""
    query = select(block_table.c.commitment, block_table.c.dataset)
    return {row.commitment: row.dataset for row in connection.execute(query)}


def _blocks(connection: Connection, dataset: Dataset, window: Window, signed: Signed | None) -> tuple[Block, ...]:
    about, name = dataset.registration, dataset.registration.name
    blocks = [Block(1, dataset.seq, about.commitment, about.records, query=about.query)] if window[0] == 1 else []
    every, rows = (at_hand(connection) or {}).get((BLOCKS, name)), list[Any]()
    if every is not None:  # all blocks of the dataset were read
        rows = [row for row in every if window[0] <= row.number <= window[1]]
    elif window[1] > 1:
        rows = [*rows_of(connection, BLOCKS, {"at": name, "low": window[0], "high": window[1]})]
    cache = signed.known.blocks if signed else {}
    for row in rows:
        checked, block = cache.get(row.seq, ((), None))
        if checked != tuple(row) or block is None:
            period = None if row.period is None else Period(**json.loads(row.period))
            block = Block(row.number, row.seq, row.commitment, row.records, period)
            if signed:
                entry = signed.entry(row.seq).value
                stated_fields = tuple(entry.get(field) for field in ("dataset", "block", "commitment", "records"))
                if stated_fields != (name, row.number, row.commitment, row.records):
                    raise mismatch(f"block {row.number} of dataset {name}", row.seq)
                cache[row.seq] = tuple(row), block
        blocks.append(block)
    if [block.number for block in blocks] != [*range(window[0], window[1] + 1)]:
        raise mismatch(f"blocks of dataset {name}", dataset.seq)
    return tuple(blocks)


def _accounts(
    connection: Connection, first: Family, blocks: Sequence[Block], analyst: str | None, signed: Signed | None
) -> tuple[Family, ...]:
    """Load the account of each block; that of block 1 is `first`, whose total, quotas and analyst are those of all."""
    before = (replace(first, block=1),) if blocks[0].number == 1 else ()
    places = [
        (block.number, block.seq, account_of(first.identity, first.part, block.number))
        for block in blocks
        if block.number > 1
    ]
    return (*before, *_load_accounts(connection, first, places, analyst, signed))


def _person(connection: Connection, dataset: Dataset, analyst: str | None, signed: Signed | None) -> tuple[Family, ...]:
    """Load the account of one person over all blocks, where there is one: declared with the dataset, or founded when it
    grew. LedgerInvalid where its row is not that of the newest entry about it.
    """
    registration, first = dataset.registration, dataset.families[0]
    if registration.unit.column is None or (registration.person is None and dataset.last is None):
        return ()
    account = account_of(first.identity, first.part, person=True)
    founded = rows_of(connection, FOUNDED, {"at": account})
    seq = founded[0][0] if founded else None
    if signed:
        newest = signed.newest.person_total(first.identity)
        if (seq or 0) != newest:
            raise mismatch(f"account of one person of dataset {registration.name}", newest)
    if seq is None:
        if registration.person is not None:
            raise mismatch(f"account of one person of dataset {registration.name}", dataset.seq + 1)
        return ()
    value = (signed.entry(seq) if signed else read_entry(seq, body_at(connection, seq))).value
    if (value["type"], value.get("family")) != (PERSON, first.identity):
        raise mismatch(f"dataset {registration.name}", seq)
    design = person_filter(first, value)
    quota = first.quota and replace(first.quota, filter=design.part(first.quota.share))
    largest = parse_decimal(value["largest"]) if "carried" in value else design.budget.epsilon
    base = replace(first, filter=design, before=largest, quota=quota, person=True)
    return _load_accounts(
        connection, base, [(None, seq, base.account)], analyst, signed, carried_sums(value, first.part)
    )


def person_filter(first: Family, value: Mapping[str, Any]) -> Filter:
    """Return the admission rule that a `person-total` entry states. LedgerInvalid where it is not that of its total: of
    one that was founded later, at the orders of the family's, so that what was spent before is added up.
    """
    budget = Budget.of(*(value["budget"].get(name, "0") for name in ("epsilon", "delta", "outside")))
    design = first.filter.with_total(budget.epsilon) if "carried" in value else Filter.design(budget)
    if value["filter"] != design.to_json() or budget != design.budget:
        raise mismatch(f"total for one person of family {first.name}", first.seq)
    return design


def carried_sums(value: Mapping[str, Any], part: str | None) -> Mapping[str, Any] | None:
    """Return what a `person-total` entry says was used of a part before it: {"used", "reserved", "analysts"}; None
    where nothing can have been.
    """
    carried: list[Mapping[str, Any]] | None = value.get("carried")
    return None if carried is None else carried[part is not None]


def _load_accounts(
    connection: Connection,
    first: Family,
    places: Sequence[tuple[int | None, int, str]],
    analyst: str | None,
    signed: Signed | None,
    carried: Mapping[str, Any] | None = None,
) -> tuple[Family, ...]:
    """Load accounts that share the total, quotas and analyst of `first`. `places`: block, founding entry and account id
    of each. `carried`: the balance when it was founded; None: nothing.
    """
    accounts = list[Family]()
    rows = _account_rows(connection, [place[2] for place in places], analyst)
    numbers = [account_number(seq, first.part) for _, seq, _ in places]
    newest = dict(zip(numbers, signed.newest.of(numbers), strict=True)) if signed else {}
    charged = dict(zip(numbers, signed.newest.spent(numbers, analyst), strict=True)) if signed and analyst else {}
    nothing = price_to_json(first.filter.nothing(), first.filter.orders)
    untouched = {"used": nothing, "reserved": nothing} if carried is None else carried
    before = nothing if carried is None else carried["analysts"].get(analyst, nothing)
    fields: dict[tuple[str, str, str | None], dict[str, Any]] = {}
    sums: dict[str | None, _Sums] = {None: (nothing, first.filter.nothing())}
    for (block, seq, account), number in zip(places, numbers, strict=True):
        row, owner = rows.get(account, ()), "one person" if block is None else f"block {block}"
        if row[:2] != (seq, None):
            raise mismatch(f"account of {owner}", seq)
        texts = row[2:]
        if texts not in fields:
            sums |= {text: _sums(text, first.filter.orders) for text in texts if text not in sums}
            fields[texts] = _account_fields(connection, first, analyst, texts, sums)
        if signed:
            (used, _), (reserved, _), (analyst_used, _) = (sums[text] for text in texts)
            entry = newest[number]
            line = signed.balance_of(entry, number) if entry else untouched
            if line is None or (used, reserved) != (line["used"], line["reserved"]):
                raise mismatch(f"account of {owner}", entry or seq)
            if analyst is not None and analyst_used != _signed_spent(signed, charged[number], number, analyst, before):
                raise mismatch(f"analyst {analyst} on {owner}", seq)
        accounts.append(replace(first, seq=seq, block=block, **fields[texts]))
    return tuple(accounts)


def _account_rows(connection: Connection, ids: Sequence[str], analyst: str | None) -> dict[str, tuple[Any, ...]]:
    """Return by account: its founding entry, its newest change, what is used and reserved, and the analyst's part."""
    known = at_hand(connection)
    rows = [] if known is None else [known.get((ACCOUNTS, at, analyst)) for at in ids]
    if ids and (not rows or None in rows):
        rows = [connection.execute(ACCOUNTS, {"ids": ids, "who": analyst}).all()]
    return {row[0]: tuple(row[1:]) for found in rows for row in found or ()}


def _account_fields(
    connection: Connection,
    first: Family,
    analyst: str | None,
    texts: tuple[str | None, ...],
    sums: Mapping[str | None, _Sums],
) -> dict[str, Any]:
    """Return the fields in which accounts with these rows differ from `first`: used, reserved, and the analyst's
    part.
    """
    (used_json, used), (_, reserved), (_, analyst_used) = (sums[text] for text in texts)
    closed_by, spent = None, None if analyst is None else Spent(analyst, analyst_used, texts[2] is not None)
    if WHOLE in used_json:
        claimed = read_entry(used_json[WHOLE], body_at(connection, used_json[WHOLE])).value["claim"]
        closed_by = TotalClaim(used_json[WHOLE], parse_decimal(claimed["epsilon"]))
    quota = spent and first.quota and replace(first.quota, used=analyst_used)
    return {"changed": None, "used": used, "reserved": reserved, "whole": closed_by, "spent": spent, "quota": quota}


@lru_cache(maxsize=8192)  # of many blocks most stand alike
def _sums(text: str, orders: tuple[Any, ...]) -> _Sums:
    try:
        sums: dict[str, Any] = json.loads(text)
        return sums, price_from_json(sums, orders)
    except (CanonicalError, ValueError, KeyError, TypeError):
        raise LedgerInvalid(
            "index: the account of a block says nothing that can be read (dpserve ledger audit)"
        ) from None


def _signed_spent(
    signed: Signed, newest: int, number: int, analyst: str, nothing: dict[str, Any]
) -> dict[str, Any] | None:
    """Return what an analyst spent of a block's account, by the latest entry about both; None where it names
    another.
    """
    if not newest:
        return nothing
    line = signed.balance_of(newest, number) or {}
    balance: dict[str, Any] = line.get("analyst", {})
    return balance.get("used") if balance.get("name") == analyst else None


def put(connection: Connection, families: Sequence[Family], lines: Sequence[Mapping[str, Any]]) -> None:
    """Write each family's balance and its analyst's from its line of `after`."""
    rows, updates, inserts = [], [], []
    for family, line in zip(families, lines, strict=True):
        at = family.account
        rows.append({"at": at, "used": text_of(line["used"]), "reserved": text_of(line["reserved"])})
        if "analyst" not in line or family.spent is None:
            continue
        who, spent = line["analyst"]["name"], text_of(line["analyst"]["used"])
        if family.spent.known:
            updates.append({"at": at, "who": who, "used": spent})
        else:
            inserts.append({"family": at, "name": who, "share": None, "used": spent})
    for statement, values in ((_PUT, rows), (_PUT_ANALYST, updates), (_NEW_ANALYST, inserts)):
        if values:
            connection.execute(statement, values)


def merge_equal_blocks(families: Iterable[Family], lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge the lines of blocks with equal balances into one, which names the first block and, under `also`, the
    others. Other accounts keep lines of their own.
    """
    merged: list[dict[str, Any]] = []
    by_balance: dict[tuple[Any, ...], dict[str, Any]] = {}
    for family, line in zip(families, lines, strict=True):
        if family.block is None:
            merged.append(line)
            continue
        figures = line["used"], line["reserved"], line.get("analyst", {}).get("used", {})
        balance = line["changed"], *map(text_of, figures)
        if balance in by_balance:
            by_balance[balance].setdefault("also", []).append(line["family"])
        else:
            by_balance[balance] = dict(line)
            merged.append(by_balance[balance])
    return merged
