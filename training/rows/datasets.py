"""Registering a dataset: read once, check, pack, commit, and only then enter it in the ledger. For the steward alone.

Packed rows lie in the home's `datasets/<commitment>/`: `bins.npy` (features, rows), `labels.npy` (rows,), int32 targets
where a number is to be predicted, and `schema.yaml`. The commitment is an HMAC over all of it, its key held by the
accountant: it names the rows in the ledger and says nothing about them.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.budget import Budget, Relation, check_name
from accountant.errors import DataError, JobFailed, LedgerUnavailable, NameTaken, SchemaError
from accountant.files import PRIVATE, replace_unsynced, sync_file
from accountant.home import Home
from accountant.ledger.families import Dataset
from accountant.ledger.records import RECORD, Registration, Unit
from accountant.ledger.started import Started
from training.rows.data import answer_dtype, bin_dtype, encode_answers, encode_column, read_batches
from training.rows.people import FirstOfEach
from training.rows.rows import Rows
from training.rows.schema import Schema, parse_schema

CHUNK = 1 << 24


@dataclass(frozen=True)
class Packed:
    """Rows as integers: `bins` (features, rows), `labels` (rows,): uint8 classes, or int32 targets of a number."""

    bins: NDArray[Any]
    labels: NDArray[Any]


def register(
    home: Home,
    name: str,
    data: Path,
    schema_file: Path,
    budget: Budget | None,
    relation: Relation,
    unit: str | None,
    contributions: int = 1,
    families: Sequence[str] = (),
) -> Dataset:
    """Register `data` under `name`: with its total budget, or in the families of other datasets, whose budgets it
    shares. Nothing is entered unless all of it fits the schema.
    """
    raw = _read_schema(schema_file)
    schema = parse_schema(raw)
    _check_free(home, check_name("dataset", name))
    how = RECORD if unit is None and contributions == 1 else Unit("person", unit, contributions)
    about = Registration(name, relation, budget, how, schema.records, schema.digest, "", tuple(families))
    for total in [budget] if budget else [home.ledger.dataset(family).budget for family in families]:
        total.check_delta(schema.records)
    packed = pack(data, schema, how)
    if relation is Relation.REPLACE_ONE and packed.labels.size != schema.records:
        raise DataError(
            f"records={schema.records}: under replace-one the number of rows is public and must be exact; it is another"
        )
    folder = home.datasets / f"{uuid.uuid4()}.partial"
    try:
        _write(folder, packed, raw)
        commitment = home.keys.commitment(_content(folder))
        _check_new_rows(home, commitment)
        place = home.datasets / commitment
        if place.exists():  # left by a start that was cut before its entry: the same bytes, by their name
            shutil.rmtree(place)
        folder.rename(place)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    dataset = home.ledger.register(replace(about, commitment=commitment))
    _note(home, name, {"data": str(data.absolute()), "schema": str(schema_file.absolute()), "rows": commitment})
    return dataset


def pack(data: Path, schema: Schema, unit: Unit = RECORD) -> Packed:
    """All rows of the file in packed bins; of each unit, the first rows in file order, as many as it may contribute."""
    dtype, kind = bin_dtype(schema.features), answer_dtype(schema)
    bins, labels = [bytearray() for _ in schema.features], bytearray()  # grow in place; small arrays would fragment
    keep = FirstOfEach(unit.column, unit.contributions) if unit.column else None
    others = {unit.column} - {None} - {feature.name for feature in schema.features}
    start = 0
    for batch in read_batches(data, schema, tuple(column for column in others if column)):
        chosen = slice(None) if keep is None else keep(batch, start)
        for store, feature in zip(bins, schema.features, strict=True):
            store += encode_column(feature, batch[feature.name], start).astype(dtype)[chosen].tobytes()
        labels += encode_answers(schema, batch[schema.target], start)[chosen].tobytes()
        start += len(batch)
    if keep is not None:
        keep.check()
    if not start:
        raise DataError(f"data={data.name}: the file has no rows")
    answers = np.frombuffer(labels, dtype=kind)
    packed = np.empty((len(bins), answers.size), dtype=dtype)
    for index in range(len(bins)):
        packed[index] = np.frombuffer(bins[index], dtype=dtype)
        bins[index] = bytearray()
    return Packed(packed, answers)


def schema_of(home: Home, dataset: Dataset) -> Schema:
    """The public schema as registered. Reads no rows. LedgerUnavailable where the home has lost the file."""
    path = home.datasets / dataset.registration.commitment / "schema.yaml"
    if not path.exists():
        name = dataset.registration.name
        raise LedgerUnavailable(f"dataset={name}: its files are not in the home; restore datasets/ from a backup")
    schema = parse_schema(path.read_bytes())
    if schema.digest != dataset.registration.schema:
        raise SchemaError(f"dataset={dataset.registration.name}: its schema file is not the registered one")
    return schema


def open_rows(home: Home, started: Started, schema: Schema) -> Rows:
    """Map the packed rows of a job that has STARTED, after checking that they are the rows that were registered."""
    commitment = started.dataset.registration.commitment
    folder = home.datasets / commitment
    if home.keys.commitment(_content(folder)) != commitment:
        raise JobFailed("rows: the packed file is not the one that was registered")
    bins, labels = (np.load(folder / file, mmap_mode="r", allow_pickle=False) for file in ("bins.npy", "labels.npy"))
    return Rows(bins, labels, [feature.bins for feature in schema.features], len(schema.classes or ()))


def _read_schema(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SchemaError(f"schema={path}: cannot be read: {error.strerror}") from None


def _check_free(home: Home, name: str) -> None:
    if any(dataset.registration.name == name for dataset in home.ledger.datasets()):
        raise NameTaken(f"dataset={name}: is registered already; a budget is given once", dataset=name)


def _check_new_rows(home: Home, commitment: str) -> None:
    for dataset in home.ledger.datasets():
        if dataset.registration.commitment == commitment:
            known = dataset.registration.name
            raise NameTaken(
                f"data: these rows are registered already, as {known}; the same people have one budget", dataset=known
            )


def _write(folder: Path, packed: Packed, schema: bytes) -> None:
    folder.mkdir(mode=0o700)
    np.save(folder / "bins.npy", packed.bins, allow_pickle=False)
    np.save(folder / "labels.npy", packed.labels, allow_pickle=False)
    (folder / "schema.yaml").write_bytes(schema)
    for file in folder.iterdir():
        file.chmod(PRIVATE)
        sync_file(file)


def _content(folder: Path) -> Iterator[bytes]:
    for name in ("bins.npy", "labels.npy", "schema.yaml"):
        yield name.encode()
        with (folder / name).open("rb") as file:
            yield from iter(lambda file=file: file.read(CHUNK), b"")  # type: ignore[misc]


def _note(home: Home, name: str, about: dict[str, str]) -> None:
    """`datasets.json`: where the steward's files came from. For people; nothing is decided by it."""
    path = home.path / "datasets.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    replace_unsynced(path, f"{json.dumps({**known, name: about}, indent=2)}\n".encode(), PRIVATE)
