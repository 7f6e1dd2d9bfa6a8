"""How a file that is brought to a model is written: as its dataset's was, or as another schema says."""

from __future__ import annotations

from pathlib import Path

from accountant.home import Home
from training.datasets.datasets import schema_bytes
from training.rows.schema.schema import Schema, parse_schema, schema_of


def written_as(home: Home, dataset: str, digest: str, said: Path | None) -> Schema | None:
    """The schema that says how a file for a model is written: `said`, or else that of the dataset `dataset` which the
    model learnt from, where this home has it with this digest; None: as files usually are.
    """
    if said is not None:
        return read_schema(said)
    found = next((each for each in home.ledger.datasets() if each.registration.name == dataset), None)
    if found is None or found.registration.schema != digest or found.registration.unit.remote:
        return None
    return schema_of(home, found) if (home.datasets / found.registration.commitment / "schema.yaml").exists() else None


def read_schema(path: Path) -> Schema:
    """The schema in a file."""
    return parse_schema(schema_bytes(path))
