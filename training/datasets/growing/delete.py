"""Deleting the rows of the oldest blocks from disk: what was spent on them stays in the ledger."""

from __future__ import annotations

from accountant.home import Home
from accountant.ledger import block_appending
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.records import Why
from dpserve_verify.errors import InputError
from dpserve_verify.system.files import locked, sync_directory
from training.datasets.copy_guard import LOCK
from training.datasets.overlap import SKETCH

KEPT = (SKETCH, "schema.yaml")  # by which the same rows are known again, and what everybody may know


def delete(home: Home, name: str, upto: int, why: Why) -> Dataset:
    """Delete the packed rows of the blocks up to `upto`, after an entry of the ledger says so; asked again, what a
    crash left of them. Their sketches stay, so that nobody appends the same rows once more. Raises as `appending.drop`.
    """
    if upto < 1:
        raise InputError(f"upto={upto}: must be the number of a block, from 1")
    if upto > home.ledger.dataset(name).dropped:
        block_appending.drop(home.ledger.log, name, upto, why)
    dropped = home.ledger.dataset(name).dropped
    with locked(home.path / LOCK):
        for commitment in home.ledger.dataset(name, blocks=(1, dropped)).commitments if dropped else ():
            folder = home.datasets / commitment
            for file in [path for path in folder.glob("*") if path.name not in KEPT]:
                file.unlink()
            if folder.exists():
                sync_directory(folder)
    return home.ledger.dataset(name)
