"""What a steward decides, each as one reasoned entry: datasets and their families, quotas, totals. Called inside a
writing transaction.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection
from dataclasses import asdict, replace
from decimal import Decimal

from sqlalchemy import insert, select, update

from accountant.errors import CameBetween
from accountant.ledger.families.families import Family, account_of
from accountant.ledger.families.family_rows import (
    PERSON,
    after,
    found_family,
    load,
    load_family,
    put_share,
)
from accountant.ledger.families.records import HOLDOUT, Registration, registration_fields
from accountant.ledger.refined import require_profiles
from accountant.log.entries import Writer, dumps
from accountant.store.tables import dataset_table, family_table
from dpserve_verify.errors import InputError
from dpserve_verify.formats.canonical import decimal_string
from dpserve_verify.privacy.budget import Budget
from dpserve_verify.privacy.filter import Filter


def register(writer: Writer, registration: Registration, compared: Collection[str] | None = None) -> None:
    """Append the entry of a dataset and its rows in the index; see `Ledger.register`.

    CameBetween where a dataset outside of its families is not among `compared`, InputError where name, unit, delta or
    relation do not go together or with the families, or the schema names profiles that the ledger does not have
    so, NameTaken where the name or the rows are registered, UnknownName for a dataset to join.
    """
    name, identity, connection = registration.name, str(uuid.uuid4()), writer.connection
    families = [family.identity for dataset in registration.families for family in load(connection, dataset).families]
    refined = require_profiles(connection, registration.refined, families)
    registration = replace(registration, refined=refined)
    if registration.budget is not None:
        members = [identity]
        seq = _new_family(writer, registration, registration.budget, identity)
    else:
        members = [*dict.fromkeys(families)]
        seq = writer.append("dataset-joined", **registration_fields(registration, identity), families=members)
    for dataset, theirs in connection.execute(select(dataset_table.c.name, dataset_table.c.families)):
        # two registrations at one moment do not miss each other: the later one was compared with the earlier
        if compared is not None and dataset not in compared and set(json.loads(theirs)).isdisjoint(members):
            raise CameBetween(f"dataset={dataset}: was registered after these rows were compared with all others")
    row = {"name": name, "seq": seq, "families": dumps(members), "commitment": registration.commitment}
    connection.execute(insert(dataset_table).values(**row))


def set_quota(writer: Writer, name: str, analyst: str, share: Decimal, reason: str, by: str) -> None:
    """Append the quota for each family of the dataset; see `Ledger.set_quota`.

    InputError where `share` is not above 0 and at most 1 with at most 9 decimals, or a text is not one line of 1 to 200
    characters.
    """
    if not share.is_finite() or not 0 < share <= 1 or share.as_tuple().exponent not in range(-9, 1):
        raise InputError(f"share={share}: must be above 0 and at most 1, with at most 9 decimals")
    _check_words(analyst=analyst, reason=reason)
    text = decimal_string(share)
    for family in load(writer.connection, name).families:
        writer.append("quota-set", family=family.identity, analyst=analyst, share=text, reason=reason, by=by)
        for part in parts_of(family):  # the same share of either
            put_share(writer.connection, replace(family, part=part), analyst, text)


def change_budget(writer: Writer, name: str, epsilon: Decimal, reason: str, by: str) -> None:
    """Append another total for the family of the dataset; see `Ledger.change_budget`.

    InputError where the dataset is of several families, or the total or the reason is not allowed.
    """
    _check_words(reason=reason)
    families = load(writer.connection, name, signed=writer.signed).families
    if len(families) > 1:
        raise InputError(f"dataset={name}: belongs to several families; change the budget of each by its own dataset")
    design = families[0].filter.with_total(Budget(epsilon, families[0].budget.delta).epsilon)
    parts = parts_of(families[0])
    accounts = [
        load_family(writer.connection, families[0].identity, part=account, signed=writer.signed) for account in parts
    ]
    seq = writer.append(
        "budget-changed",
        family=families[0].identity, budget=design.budget.to_entry(), filter=design.to_json(), reason=reason, by=by,
        largest=decimal_string(max(families[0].largest, design.budget.epsilon)),
        after=after(
            [replace(account, changed=writer.tree.size) for account in accounts], [design.nothing() for _ in accounts]
        ),
    )  # fmt: skip
    where = family_table.c.id.in_([replace(families[0], part=part).account for part in parts_of(families[0])])
    writer.connection.execute(update(family_table).where(where).values(changed=seq))


def _new_family(writer: Writer, registration: Registration, budget: Budget, identity: str) -> int:
    """Append a dataset that founds a family: its identity is the family's."""
    design, fields = Filter.design(budget), registration_fields(registration, identity)
    if registration.new_people:
        fields["new_people"] = asdict(registration.new_people)
    if registration.family_name not in (None, registration.name):
        fields["family_name"] = registration.family_name
    seq = writer.append(
        "dataset-registered", **fields, family=identity, budget=budget.to_entry(), filter=design.to_json()
    )
    parts = (None,) if registration.holdout is None else (None, HOLDOUT)
    for part in parts:
        found_family(writer.connection, account_of(identity, part), seq, design)
    if registration.person is not None:
        design = Filter.design(registration.person)
        person_fields = {"dataset": registration.name, "family": identity}
        founded = writer.append(PERSON, **person_fields, budget=design.budget.to_entry(), filter=design.to_json())
        for part in parts:
            found_family(writer.connection, account_of(identity, part, person=True), founded, design)
    return seq


def parts_of(family: Family) -> tuple[str | None, ...]:
    """Return the parts that have accounts of their own."""
    return (None,) if family.holdout is None else (None, HOLDOUT)


def _check_words(**words: str) -> None:
    for name, text in words.items():
        if not 1 <= len(text) <= 200 or not text.isprintable():
            raise InputError(f"{name}: must be 1 to 200 printable characters")
