"""What was decided about a name: written into the ledger first, then done in the folder of models.

A process may be cut off between the two. So a file in the name's folder says, from before the entry until all is done,
which entries to look at; whoever finds it and no living process at work does what those entries say.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from accountant.files import PRIVATE, holding, open_directory, read_beginning, replace_file
from accountant.home import Home
from accountant.ledger import model_names
from accountant.ledger.model_names import record
from models.store.bundle import ModelStore

BEGUN = "deciding"  # holds the ledger's size before the entry


@contextmanager
def alone(home: Home, name: str) -> Iterator[None]:
    """One process at a time decides about a name; what another that was cut off had decided is done first."""
    with holding(open_directory(home.models / name)):
        _finish(home, name)
        yield


def decide(
    home: Home,
    kind: str,
    name: str,
    version: int,
    issued: int,
    reason: str,
    by: str,
    before: int | None,
    worth: int | None,
) -> int:
    """Within `alone`: append the entry (`model_names.record`, which raises) and do as it says; returns its index."""
    with home.ledger.log.signed() as signed:
        size = signed.size
    begun = home.models / name / BEGUN
    replace_file(begun, str(size).encode("ascii"), PRIVATE)
    entry = record(home.ledger, kind, name, version, issued, reason, by, before, worth)
    _do(ModelStore(home.models), kind, name, version)
    begun.unlink()
    return entry


def undone(models: Path) -> list[str]:
    """Names whose decision has begun, or was cut off."""
    return [name for name in ModelStore(models).candidates() if (models / name / BEGUN).exists()]


def finish_decisions(home: Home) -> None:
    """Do what was decided about any name by a process that was cut off before it was done."""
    for name in undone(home.models):
        with alone(home, name):
            pass


def _finish(home: Home, name: str) -> None:
    begun = home.models / name / BEGUN
    try:
        told = read_beginning(begun, 20)
    except FileNotFoundError:
        return
    store = ModelStore(home.models)
    with home.ledger.log.signed() as signed:
        for seq in range(int(told) if told.isdigit() else 0, signed.size):  # a torn file: look at all
            value = signed.entry(seq).value
            if value.get("name") == name:
                _do(store, value["type"], name, value.get("version", 0))
    begun.unlink()


def _do(store: ModelStore, kind: str, name: str, version: int) -> None:
    match kind:
        case model_names.PROMOTED:
            store.promote(name, version)
        case model_names.RETIRED:
            store.retire(name, version)
        case model_names.RESTORED:
            store.restore(name, version)
