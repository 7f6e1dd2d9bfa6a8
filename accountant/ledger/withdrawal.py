"""Withdrawing a registration that nothing was spent on: its name, its rows and its family's name are free again, and
the total that they had ends with it (docs/budgets.md).

Whether nothing was spent is read from the signed entries since the registration, and from no row of the index: a job
that was reserved and not given back, another dataset of its family, a block, and what would pass on to a new dataset of
that name (grants, schedules) each stand in the way.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import delete

from accountant.errors import WrongState
from accountant.ledger.comparisons import REGISTER, Comparison, check_answers
from accountant.ledger.families import family_rows
from accountant.ledger.families.families import Dataset, account_of
from accountant.ledger.families.records import Why
from accountant.ledger.family_changes import parts_of
from accountant.log.entries import WITHDRAWN, Signed, Writer
from accountant.log.newest import signed_entries
from accountant.store.tables import analyst_table, dataset_table, family_table
from dpserve_verify.log.entry import read_entry

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
        if dataset.registration.remote:
            raise WrongState(f"dataset={name}: its rows stay with their owners, who know it by its name; retire it")
        holding = list(_what_holds(writer.signed, dataset))
        if holding:
            raise WrongState(f"dataset={name}: cannot be withdrawn: {'; '.join(holding[:5])}")
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


def _what_holds(signed: Signed, dataset: Dataset) -> Iterator[str]:
    """Yield what stands in the way, in words, with what ends it: everything that the entries since the registration
    began for it, and did not end.
    """
    about, now = dataset.registration, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    families, own = {*dataset.identities}, {about.name}
    on: list[dict[str, str]] = [{"dataset": about.name}]
    if about.budget is not None:
        on.append({"family": about.family_name or about.name})
    open_: dict[int, str] = {}
    tokens: dict[int, int] = {}
    for seq, body in signed_entries(signed.connection, dataset.seq + 1, signed.size, signed.root):
        value: dict[str, Any] = read_entry(seq, body).value
        match value["type"]:
            case "reserved" if value["dataset"] in own:
                open_[seq] = f"job {seq} was reserved on it; cancel it before it starts"
            case "started" if value["reservation"] in open_:
                open_[value["reservation"]] = (
                    f"job {value['reservation']} has started: its price stays spent; retire it"
                )
            case "released":
                open_.pop(value["reservation"], None)
            case "charged" if value["dataset"] in own:
                open_[seq] = f"entry {seq} charged a release made elsewhere to it, which stays; retire it"
            case "dataset-joined" if families.intersection(value["families"]):
                open_[seq] = f"dataset {value['dataset']} was registered in its family since; withdraw that first"
            case "dataset-withdrawn":
                open_.pop(value["registered"], None)
            case "dataset-appended" if value["dataset"] in own:
                open_[seq] = f"it has grown by block {value['block']}; retire it"
            case "grant-added" if value["on"] in on and not (value["expires"] and value["expires"] <= now):
                open_[seq] = f"grant {seq} of {value['principal']} is on it; dpserve grant revoke {seq}"
            case "grant-revoked":
                open_.pop(value["grant"], None)
            case "learner-admitted" if about.name in value.get("datasets", ()):
                open_[seq] = f"learner {value['name']} is admitted for its jobs; dpserve learner remove {value['name']}"
            case "learner-removed":
                open_.pop(value["admitted"], None)
            case "schedule-added" if value["asked"].get("dataset") in own:
                open_[seq] = f"schedule {value['name']} is on it; dpserve schedule remove {value['name']}"
                tokens[seq] = value["token"]
            case "schedule-removed":
                open_.pop(value["schedule"], None)
            case "token-revoked":
                for schedule in [number for number, token in tokens.items() if token == value["created"]]:
                    open_.pop(schedule, None)
    yield from open_.values()
