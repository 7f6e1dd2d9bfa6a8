"""What a job is made from: the releases behind its dataset's schema and behind what it begins from, as its entry names
them and as statements spell them out (docs/privacy/outside.md).

A `reserved` entry names entries that bind statements, one of each release: those that these were made from stand
among them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection

from accountant.ledger.families.families import Dataset
from accountant.ledger.families.family_rows import load
from accountant.ledger.families.records import CERTIFYING, HOLDOUT
from accountant.ledger.families.schema_profiles import ALL, TRAINING
from accountant.store.store import body_at, size
from dpserve_verify.errors import InputError
from dpserve_verify.formats.canonical import parse_decimal
from dpserve_verify.log.entry import read_entry
from dpserve_verify.privacy.made_from import MODEL, MOST, PROFILE, SCHEMA, START, Source, merge_events

KINDS = {**dict.fromkeys(CERTIFYING, MODEL), "profiled": PROFILE}  # by the type of the entry that binds the statement


def close(connection: Connection, entries: Iterable[int]) -> list[int]:
    """Return these entries and those that their releases were made from, in order, the newest of each release.

    InputError where one binds no statement that something is made from, or they are more than MOST.
    """
    newest: dict[int, int] = {}
    for entry in entries:
        reservation = _binding(connection, entry)["reservation"]
        inside = read_entry(reservation, body_at(connection, reservation)).value.get("made_from", ())
        for each in (entry, *inside):
            job = _binding(connection, each)["reservation"]
            newest[job] = max(each, newest.get(job, 0))
    if len(newest) > MOST:
        raise InputError(f"made_from: {len(newest)} releases stand behind this one, and at most {MOST} may")
    return sorted(newest.values())


def with_sources(connection: Connection, dataset: Dataset, reserved: Mapping[str, Any], origin: str) -> Dataset:
    """Add to the dataset of a job the releases that its `reserved` entry says it was made from, with their prices."""
    entries = reserved.get("made_from", ())
    if not entries:
        return dataset
    schema = {_binding(connection, each.entry)["reservation"] for each in dataset.registration.refined}
    about = dataset.identities, schema
    return replace(dataset, made_from=tuple(source(connection, entry, origin, *about) for entry in entries))


def source(
    connection: Connection, entry: int, origin: str, families: Collection[str], schema: Collection[int]
) -> Source:
    """Return the release whose statement an entry binds, as one that went into a job on a dataset of these `families`.

    `schema`: the reservations of the profiles that the dataset's schema was refined from.
    """
    bound = _binding(connection, entry)
    job = bound["reservation"]
    reserved = read_entry(job, body_at(connection, job)).value
    counted = load(connection, reserved["dataset"])
    part = HOLDOUT if reserved.get("part") == HOLDOUT else ALL if counted.holdout is None else TRAINING
    epsilon, delta = (parse_decimal(reserved["claim"][name]) for name in ("epsilon", "delta"))
    return Source(
        origin, job, entry, bound["statement"], KINDS[bound["type"]], SCHEMA if job in schema else START,
        reserved["dataset"], tuple(counted.identities), part, epsilon, delta, merge_events(reserved["plan"]),
        not set(families).isdisjoint(counted.identities),
    )  # fmt: skip


def _binding(connection: Connection, entry: int) -> dict[str, Any]:
    """Return the entry that binds the statement of a release. InputError where it binds none."""
    if 0 <= entry < size(connection):
        value = read_entry(entry, body_at(connection, entry)).value
        if value["type"] in KINDS:
            return value
    raise InputError(f"made_from={entry}: no model and no profile of this ledger", entry=entry)
