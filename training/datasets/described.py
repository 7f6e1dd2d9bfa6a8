"""How a file that is brought to a model is written: as its dataset's was, or as another schema says."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from accountant.errors import RowsUnavailable
from accountant.home import Home
from dpserve_verify.errors import InputError
from models.features.written import PLAIN, Form, Written
from training.datasets.datasets import schema_bytes
from training.rows.schema.schema import Schema, parse_schema, schema_of

MOST_WAYS = 16  # in which the columns of one file have their days: each takes time to tell from others


@dataclass(frozen=True)
class _Format:
    """`format` of GET /v1/models/{name}: how files are cut, and the columns that are not written as usual."""

    form: Form = PLAIN
    columns: Mapping[str, Written] = field(default_factory=dict)


_FORMAT = TypeAdapter(_Format)


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


def format_to_json(schema: Schema | None, columns: Collection[str]) -> dict[str, Any] | None:
    """Return how files with these columns are written: `form`, and of `columns` those not written as usual; None: as
    files usually are. It is part of the schema, so public.
    """
    if schema is None:
        return None
    written = {name: form for name, form in schema.written.items() if name in columns}
    return asdict(_Format(schema.form, written))


def format_from_json(body: Any) -> Schema | None:
    """Return a schema that says how files are written, and nothing else, from `format_to_json`. Raises InputError."""
    if body is None:
        return None
    try:
        read = _FORMAT.validate_python(body)
    except ValidationError:
        raise InputError("format: is none that this version of dpserve reads; name a schema with --schema") from None
    if len({written.dates for written in read.columns.values()}) > MOST_WAYS:
        raise InputError(f"format: days in more than {MOST_WAYS} ways; write the columns of one file alike")
    for name, written in read.columns.items():
        if problem := written.problem():
            raise InputError(f"format: {name[:80]}: {problem}")
    return Schema((), 1, (), (), "", form=read.form, written=read.columns)
