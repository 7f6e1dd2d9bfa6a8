"""How a file that is brought to a model is written: as its dataset's was, or as another schema says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from accountant.errors import RowsUnavailable
from accountant.home import Home
from dpserve_verify.errors import InputError
from training.datasets.datasets import schema_bytes
from training.rows.schema.schema import Schema, parse_schema, schema_of


def written_as(home: Home, dataset: str, digest: str, said: Path | None) -> Schema | None:
    """Return the schema that says how a file for a model is written: `said`, or else that of the dataset `dataset`
    which the model learnt from, where this home has it with this digest; None: as files usually are.
    """
    if said is not None:
        return read_schema(said)
    record = next((candidate for candidate in home.ledger.datasets() if candidate.registration.name == dataset), None)
    if record is None or record.registration.schema != digest or record.registration.remote:
        return None
    try:
        return schema_of(home, record)
    except RowsUnavailable:
        return None


def ranges_of(home: Home, dataset: str, digest: str) -> Mapping[str, tuple[float, float]]:
    """Return, of each number that a model of this dataset reads, the range beyond which it is clipped. InputError where
    this home has not the schema, with this digest, that declares them.
    """
    schema = written_as(home, dataset, digest, None)
    if schema is None:
        raise InputError(
            f"notes: the schema of dataset {dataset} is not here, which declares the ranges; ask for the prediction "
            "without notes, or a server that has the schema"
        )
    return schema.ends


def read_schema(path: Path) -> Schema:
    """Return the schema in a file."""
    return parse_schema(schema_bytes(path))
