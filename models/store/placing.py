"""Moving `adult@champion`, and taking versions out of serving: each verified first, and written into the ledger before
it happens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from accountant.errors import InputError
from accountant.home import Home
from accountant.ledger.placement import PROMOTED, RESTORED, RETIRED, record
from models.store.bundle import ModelStore
from models.store.loading import load_of_home


@dataclass(frozen=True)
class Placed:
    """What was done. `entry`: of the ledger, where it says so; `champion`: the version that the name alone means now,
    `retired`: those that are kept and not served."""

    model: str
    entry: int
    champion: int
    retired: list[int]

    def to_json(self) -> dict[str, Any]:
        """Its fields, by name."""
        return asdict(self)


def promote(home: Home, reference: str, reason: str, by: str) -> Placed:
    """Let the name alone mean this version from now on. InputError where it is retired; raises as `load_of_home`."""
    name, version = _version(home, reference)
    if version in ModelStore(home.models).retired(name):
        raise InputError(f"model={name}@{version}: is retired; restore it first")
    return _place(home, PROMOTED, name, version, reason, by, ModelStore.promote)


def retire(home: Home, reference: str, reason: str, by: str) -> Placed:
    """Serve this version no more; its files stay."""
    name, version = _version(home, reference)
    return _place(home, RETIRED, name, version, reason, by, ModelStore.retire)


def restore(home: Home, reference: str, reason: str, by: str) -> Placed:
    """Serve a retired version again."""
    name, version = _version(home, reference)
    return _place(home, RESTORED, name, version, reason, by, ModelStore.restore)


def _version(home: Home, reference: str) -> tuple[str, int]:
    folder = ModelStore(home.models).resolve(reference)
    return folder.parent.name, int(folder.name)


def _place(
    home: Home,
    kind: str,
    name: str,
    version: int,
    reason: str,
    by: str,
    act: Callable[[ModelStore, str, int], None],
) -> Placed:
    """The ledger first: what it says and did not happen is done by asking again."""
    store = ModelStore(home.models)
    issued = load_of_home(home, store.root / name / str(version), name).certificate.issued
    entry = record(home.ledger, kind, name, version, issued, reason, by)
    act(store, name, version)
    return Placed(f"{name}@{version}", entry, store.champion(name), store.retired(name))
