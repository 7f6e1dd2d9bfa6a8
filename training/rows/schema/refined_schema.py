"""Whether a schema names the profiles that it was refined from as the ledger has them: asked before a row is read."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace

from accountant.errors import RowsUnavailable, SchemaError, UnknownName
from accountant.home import Home
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.schema_profiles import SchemaProfile
from accountant.ledger.refined import profile_of_entry, require_profiles
from dpserve_verify.errors import InputError
from training.rows.packed.names import schema_file
from training.rows.schema.schema import MARK, Schema

COMMENT = re.compile(rf"{re.escape(MARK)}\S+, entry (?P<entry>[0-9]{{1,15}}) of the ledger".encode())


def check_refined(home: Home, raw: bytes, schema: Schema, families: Collection[str]) -> None:
    """Compare the profiles that the schema file `raw` names with the ledger; `families`: those that its dataset joins.

    SchemaError where a file that was refined names none: an older version did not write it, or somebody took it out;
    InputError where the ledger says otherwise.
    """
    if raw.startswith(MARK.encode()) and not schema.refined:
        raise SchemaError(
            "schema: was refined from a profile, and does not name it under `refined`; refine it again (dpserve schema "
            "refine), so that certificates name the profile with its price"
        )
    with home.ledger.log.database.reading() as connection:  # and again in the transaction that enters the dataset
        require_profiles(connection, schema.refined, families)


def with_profiles(home: Home, dataset: Dataset) -> Dataset:
    """Add to a dataset the profiles that its schema was refined from, where its entry names none: those registered
    before entries did have a schema that says so in its first line.
    """
    if dataset.registration.refined:
        return dataset
    try:
        raw = schema_file(home, dataset).read_bytes()
    except (
        OSError,
        RowsUnavailable,
    ):  # on another host: the digest of its text stands in the entry, and nothing else is known here
        return dataset
    profiles = _profiles_before(home, raw, dataset.identities)
    return replace(dataset, registration=replace(dataset.registration, refined=profiles)) if profiles else dataset


def _profiles_before(home: Home, raw: bytes, families: Collection[str]) -> tuple[SchemaProfile, ...]:
    """Find the profile that a refined schema's first line names, behind those of the schema that was refined."""
    match = COMMENT.match(raw)
    if match is None:
        return ()
    with home.ledger.log.database.reading() as connection:
        try:
            profile = profile_of_entry(connection, int(match["entry"]), families)
            counted = home.ledger.dataset(profile.dataset)
        except (InputError, UnknownName):  # refined from a profile of another ledger: of people who are not here
            return ()
    before = with_profiles(home, counted).registration.refined
    with home.ledger.log.database.reading() as connection:
        earlier = tuple(profile_of_entry(connection, record.entry, families) for record in before)
    return (*earlier, profile)
