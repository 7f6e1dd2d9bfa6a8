"""The total for one person over all blocks of a dataset that grows, founded when it grows first or changed later: an
account that has used what was used before it (docs/privacy/filter.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from accountant.ledger.families import block_rows
from accountant.ledger.families.families import Dataset, Family
from accountant.ledger.families.family_rows import PERSON, WHOLE, text_of
from accountant.ledger.families.records import Why
from accountant.ledger.family_changes import parts_of
from accountant.log.entries import TransparencyLog, Writer
from accountant.store.tables import analyst_table, family_table
from dpserve_verify.errors import InputError
from dpserve_verify.formats.canonical import decimal_string
from dpserve_verify.privacy.budget import Budget
from dpserve_verify.privacy.filter import Filter, price_to_json


def change_person_total(log: TransparencyLog, name: str, epsilon: Decimal, why: Why) -> None:
    """Give one person another total over all blocks of a dataset, by a reasoned entry; what was spent stays spent.

    InputError where the dataset has no such total, or has had it since it was registered; or `epsilon` is no total.
    """
    with log.writing() as writer:
        dataset = block_rows.load(writer.connection, name, signed=writer.signed)
        if dataset.person is None:
            raise InputError(f"dataset={name}: has no total for one person over all blocks that could be changed")
        found_person_total(writer, dataset, epsilon, why)


def found_person_total(writer: Writer, dataset: Dataset, epsilon: Decimal, why: Why | None) -> None:
    """Append a `person-total` entry and put its accounts into the index, inside a writing transaction. Each of them has
    used what the account before it has: that of one person, or, where the dataset has not grown yet, its family's.

    `why`: needed where the total is another than the family's. InputError where `epsilon` is no total, or below that of
    a block where none stands yet.
    """
    family = dataset.families[0]
    budget = Budget(epsilon, family.budget.delta)
    design = family.filter.with_total(budget.epsilon)
    accounts = [_account(writer, dataset, part) for part in parts_of(family)]
    carried = [_carry(writer, dataset, account, design) for account in accounts]
    largest = max(budget.epsilon, *(account.largest for account in accounts))
    seq = writer.append(
        PERSON,
        dataset=dataset.registration.name, family=family.identity, budget=design.budget.to_entry(),
        filter=design.to_json(),
        largest=decimal_string(largest), carried=carried,
        **({} if why is None else {"reason": why.reason, "by": why.by}),
    )  # fmt: skip
    for account, sums in zip(accounts, carried, strict=True):
        _write_account(writer.connection, replace(account, block=None, person=True).account, seq, sums)


def _account(writer: Writer, dataset: Dataset, part: str | None, analyst: str | None = None) -> Family:
    """Load the account whose sums are carried on."""
    window = None if dataset.last is None else (1, 1)
    loaded = block_rows.load(writer.connection, dataset.registration.name, analyst, part, writer.signed, window)
    return loaded.person or loaded.own[0]


def _carry(writer: Writer, dataset: Dataset, account: Family, design: Filter) -> dict[str, Any]:
    """Return what an account has used, as a `person-total` entry states it: by whom, too. A job that took the whole of
    a total closes a person's account of the same total as well.
    """
    orders = design.orders
    used: dict[str, Any] = dict(price_to_json(account.used, orders))
    if account.whole is not None and account.whole.job is not None and design.budget == account.budget:
        used[WHOLE] = account.whole.job
    names = select(analyst_table.c.name).where(analyst_table.c.family == account.account).order_by(analyst_table.c.name)
    analysts = {}
    for name in writer.connection.execute(names).scalars().all():
        spent = _account(writer, dataset, account.part, name).spent  # which is compared with what was signed
        if spent is not None and spent.used != design.nothing():
            analysts[name] = price_to_json(spent.used, orders)
    return {"used": used, "reserved": price_to_json(account.reserved, orders), "analysts": analysts}


def _write_account(connection: Connection, account: str, seq: int, sums: Mapping[str, Any]) -> None:
    """Put an account's rows in the place of those that it had, if any."""
    connection.execute(delete(family_table).where(family_table.c.id == account))
    connection.execute(delete(analyst_table).where(analyst_table.c.family == account))
    row = {"id": account, "seq": seq, "changed": None}
    figures = {name: text_of(sums[name]) for name in ("used", "reserved")}
    connection.execute(insert(family_table).values(**row, **figures))
    for name, used in sums["analysts"].items():
        connection.execute(insert(analyst_table).values(family=account, name=name, share=None, used=text_of(used)))
