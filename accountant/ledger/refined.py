"""Comparing what a refined schema says of its profiles with the ledger, when its dataset is registered."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from sqlalchemy import Connection

from accountant.errors import InputError
from accountant.ledger.family_rows import load
from accountant.ledger.schema_profiles import ALL, HOLDOUT, TRAINING, SchemaProfile
from accountant.log.entries import read_entry
from accountant.store.store import body_at, size

REMEDY = "refine the schema again, from a profile of this ledger (dpserve schema refine)"


def require_profiles(
    connection: Connection, profiles: Sequence[SchemaProfile], families: Collection[str]
) -> tuple[SchemaProfile, ...]:
    """Compare what a schema says of its profiles with the ledger, and mark those of people of these `families`.

    InputError where an entry is no profile of this ledger, or its dataset, part or price is another.
    """
    return tuple(_require(connection, profile, families) for profile in profiles)


def _require(connection: Connection, stated: SchemaProfile, families: Collection[str]) -> SchemaProfile:
    at = f"schema: refined: entry {stated.entry}"
    if stated.entry >= size(connection):
        raise InputError(f"{at}: this ledger has no such entry; {REMEDY}", entry=stated.entry)
    profiled = read_entry(stated.entry, body_at(connection, stated.entry)).value
    if profiled["type"] != "profiled":
        raise InputError(f"{at}: is no profile of this ledger; {REMEDY}", entry=stated.entry)
    reserved = read_entry(profiled["reservation"], body_at(connection, profiled["reservation"])).value
    counted = load(connection, profiled["dataset"])
    part = HOLDOUT if reserved.get("part") == HOLDOUT else ALL if counted.holdout is None else TRAINING
    claim = reserved["claim"]
    true = {"dataset": profiled["dataset"], "part": part, "epsilon": claim["epsilon"], "delta": claim["delta"]}
    for name, value in true.items():
        if getattr(stated, name) != value:
            raise InputError(
                f"{at}: says {name} {getattr(stated, name):.60}, and the ledger says {value}; {REMEDY}",
                entry=stated.entry,
            )
    return replace(stated, same_people=not set(families).isdisjoint(counted.identities))
