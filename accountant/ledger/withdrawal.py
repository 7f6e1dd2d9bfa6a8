"""Withdrawing a registration that nothing was spent on: its name, its rows and its family's name are free again, and
the total that they had ends with it (docs/budgets.md).

Whether nothing was spent its entry's rule judges, by the signed entries and by no row of the index: a job that was
reserved and not given back, another dataset of its family, a block, and what would pass on to a new dataset of that
name (grants, schedules) each stand in the way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import delete

from accountant.ledger.comparisons import REGISTER, Comparison, check_answers
from accountant.ledger.families import family_rows
from accountant.ledger.families.families import Dataset, account_of
from accountant.ledger.families.records import Why
from accountant.ledger.family_changes import parts_of
from accountant.log.entries import Writer
from accountant.log.rare_entries import WITHDRAWN
from accountant.store.tables import analyst_table, dataset_table, family_table

if TYPE_CHECKING:
    from accountant.ledger.ledger import Ledger


def withdraw(ledger: Ledger, name: str, why: Why, holds_keys: bool = False) -> int:
    """Append the entry that withdraws a registration; return its index. `holds_keys`: whether it is done at the command
    line by who holds the home's keys, and may know whose rows are registered.

    Raises:
        UnknownName: There is no such dataset.
        WrongState: Something was spent on it, or holds to it; the message says what.
        InputError: As many files of theirs were compared, or registrations withdrawn, in the last hour as there may
            be: each tells that nobody of the file is registered elsewhere.
    """
    with ledger.log.writing() as writer:
        dataset = family_rows.load(writer.connection, name, signed=writer.signed)
        if not holds_keys:
            check_answers(ledger.log.database, writer.connection, Comparison(REGISTER, name, why.by))
        return _enter(writer, dataset, why)


def _enter(writer: Writer, dataset: Dataset, why: Why) -> int:
    name = dataset.registration.name
    seq = writer.append(WITHDRAWN, dataset=name, registered=dataset.seq, reason=why.reason, by=why.by)
    writer.connection.execute(delete(dataset_table).where(dataset_table.c.name == name))
    if dataset.registration.budget is not None:
        family = dataset.families[0]
        accounts = [account_of(family.identity, part, person=of) for part in parts_of(family) for of in (False, True)]
        writer.connection.execute(delete(analyst_table).where(analyst_table.c.family.in_(accounts)))
        writer.connection.execute(delete(family_table).where(family_table.c.id.in_(accounts)))
    return seq
