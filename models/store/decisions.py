"""What was decided about a name: written into the ledger first, then done in the folder of models.

A process may be cut off between the two. So a file in the name's folder says, from before the entry until all is done,
which entries to look at; whoever finds it and no living process at work does what those entries say.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from accountant.errors import UnknownName
from accountant.home import Home
from accountant.ledger.model_names import PROMOTED, RESTORED, RETIRED
from dpserve_verify.errors import DpserveError
from dpserve_verify.system.files import PRIVATE, holding, open_directory, read_beginning, replace_file
from models.store.bundle import ModelStore

LOG = logging.getLogger("dpserve.models")
BEGUN = "deciding"  # holds the ledger's size before the entry


@contextmanager
def alone(home: Home, name: str, wait: bool = True) -> Iterator[None]:
    """Let one process at a time decide about a name, after finishing what a process that was cut off had decided.
    Without `wait`, BlockingIOError where another process is deciding.
    """
    with holding(open_directory(home.models / name), wait):
        _finish(home, name)
        yield


@contextmanager
def deciding(home: Home, name: str) -> Iterator[None]:
    """Guard, within `alone`, an entry and what it decides: what is cut off inside, or fails, is finished later."""
    with home.ledger.log.signed() as signed:
        size = signed.size
    begun = home.models / name / BEGUN
    replace_file(begun, str(size).encode("ascii"), PRIVATE)
    yield
    begun.unlink()


def carry_out(store: ModelStore, kind: str, name: str, version: int) -> None:
    """Carry out what an entry of this kind decides; one of another kind decides nothing."""
    if kind == PROMOTED:
        store.promote(name, version)
    elif kind == RETIRED:
        store.retire(name, version)
    elif kind == RESTORED:
        store.restore(name, version)


def undone(models: Path) -> list[str]:
    """Return names whose decision has begun, or was cut off."""
    return [name for name in ModelStore(models).candidates() if (models / name / BEGUN).exists()]


def finish_decisions(home: Home) -> None:
    """Do what was decided about any name by a process that was cut off before it was done. One that cannot be done now,
    or that a living process is at, keeps nobody from the others, and is looked at again later.
    """
    for name in undone(home.models):
        try:
            with alone(home, name, wait=False):
                pass
        except BlockingIOError:
            continue
        except (DpserveError, OSError) as error:
            LOG.error("model %s: what was decided cannot be done now, %s", name, type(error).__name__)


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
                with suppress(UnknownName):  # its files are gone: the audit says what that means
                    carry_out(store, value["type"], name, value.get("version", 0))
    begun.unlink()
