"""Copies of registered schemas, which are public: servers that hold no rows find them in the home's `schemas/`."""

from __future__ import annotations

import hashlib

from accountant.home import Home
from dpserve_verify.system.files import PRIVATE, replace_file
from training.rows.packed.names import COPIES, SCHEMA


def copy_schema(home: Home, raw: bytes) -> None:
    """Copy the bytes of a schema that is being registered."""
    (home.path / COPIES).mkdir(mode=0o700, exist_ok=True)
    replace_file(home.path / COPIES / f"{hashlib.sha256(raw).hexdigest()}.yaml", raw, PRIVATE)


def copy_schemas(home: Home) -> None:
    """Copy every schema that lies beside rows here and has no copy yet: of populations, and of datasets that were
    registered before copies were made.
    """
    for about in (dataset.registration for dataset in home.ledger.datasets()):
        beside = home.datasets / about.commitment / SCHEMA
        if beside.exists() and not (home.path / COPIES / f"{about.schema}.yaml").exists():
            raw = beside.read_bytes()
            if hashlib.sha256(raw).hexdigest() == about.schema:  # else whoever uses it says so
                copy_schema(home, raw)
