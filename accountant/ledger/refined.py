"""Comparing what a refined schema says of its profiles with the ledger, when its dataset is registered."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import Connection

from accountant.ledger.families.family_rows import load
from accountant.ledger.families.schema_profiles import ALL, HOLDOUT, TRAINING, SchemaProfile
from accountant.store.store import body_at, size
from dpserve_verify.errors import InputError
from dpserve_verify.log.entry import read_entry

REMEDY = "refine the schema again, from a profile of this ledger (dpserve schema refine)"


def require_profiles(
    connection: Connection, profiles: Sequence[SchemaProfile], families: Collection[str]
) -> tuple[SchemaProfile, ...]:
    """Compare what a schema says of its profiles with the ledger, and mark those of people of these `families`.

    InputError where an entry is no profile of this ledger, or its dataset, part or price is another.
    """
    return tuple(_require(connection, profile, families) for profile in profiles)


def profile_of_entry(connection: Connection, entry: int, families: Collection[str]) -> SchemaProfile:
    """Read what the ledger says of a profile, by the index of its `profiled` entry. InputError where it is none."""
    at = f"schema: refined: entry {entry}"
    if entry >= size(connection):
        raise InputError(f"{at}: this ledger has no such entry; {REMEDY}", entry=entry)
    profiled = read_entry(entry, body_at(connection, entry)).value
    if profiled["type"] != "profiled":
        raise InputError(f"{at}: is no profile of this ledger; {REMEDY}", entry=entry)
    reserved = read_entry(profiled["reservation"], body_at(connection, profiled["reservation"])).value
    counted = load(connection, profiled["dataset"])
    part = HOLDOUT if reserved.get("part") == HOLDOUT else ALL if counted.holdout is None else TRAINING
    claim, same = reserved["claim"], not set(families).isdisjoint(counted.identities)
    return SchemaProfile(entry, profiled["dataset"], part, claim["epsilon"], claim["delta"], same)


def _require(connection: Connection, stated: SchemaProfile, families: Collection[str]) -> SchemaProfile:
    true = profile_of_entry(connection, stated.entry, families)
    for name in ("dataset", "part", "epsilon", "delta"):
        value, expected = getattr(stated, name), getattr(true, name)
        if value != expected:
            raise InputError(
                f"schema: refined: entry {stated.entry}: says {name} {value:.60}, and the ledger says {expected}; "
                f"{REMEDY}",
                entry=stated.entry,
            )
    return true
