"""The versions of a name as they stand: read from the folder of models and the ledger's index, no model looked at."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from accountant.errors import UnknownName
from accountant.home import Home
from accountant.keys import key_rows
from dpserve_verify.errors import ModelInvalid
from models.store.bundle import ModelStore
from models.store.standing import Standing, entry_of, standing


def champion_of(home: Home, name: str) -> str | None:
    """Return what the name alone means now, such as `adult@2`; None where it means nothing."""
    with suppress(UnknownName):
        champion = ModelStore(home.models).champion(name)
        return None if champion is None else f"{name}@{champion}"
    return None


def versions_by_entry(home: Home, name: str) -> dict[int, tuple[int, Standing]]:
    """Map each entry that issued a certificate for a version of this name to the version's number and standing."""
    store = ModelStore(home.models)
    try:
        versions, champion, retired = store.versions(name), store.champion(name), store.retired(name)
    except (UnknownName, ModelInvalid):
        return {}
    with home.ledger.log.database.reading() as connection:
        revoked = key_rows.revoked_certificates(connection)
    found = {}
    for version in versions:
        entry = entry_of(home.models / name / str(version))
        if entry is not None:
            found[entry] = version, standing(version, champion, version in retired, entry in revoked)
    return found


def champions(models: Path) -> dict[str, int]:
    """Return by name the version that the name alone means, as the folder of models has it."""
    store, found = ModelStore(models), {}
    for name in store.names():
        with suppress(UnknownName, ModelInvalid):
            found[name] = store.champion(name)
    return {name: version for name, version in found.items() if version is not None}
