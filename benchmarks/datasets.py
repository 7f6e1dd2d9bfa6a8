"""Datasets of the benchmarks: Adult is shipped; the others are Parquet files in a folder of yours (`--data`,
DPSERVE_DATA). Their schemas are in benchmarks/schemas, written from the publishers' descriptions, never from the rows;
those whose target is a number are in benchmarks/schemas/regression.

    python -m benchmarks.datasets [--data DIR]    # what there is
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from training.rows.schema.schema import Schema, parse_schema

HERE = Path(__file__).parent
SCHEMAS = HERE / "schemas"
NUMBERS = SCHEMAS / "regression"
SHIPPED = HERE.parent / "examples" / "data"
ADULT = {"adult": "adult_train.parquet", "adult_test": "adult_test.parquet"}
FILES = {
    "fashion": ("fashion_tshirt_shirt_train.parquet", "fashion_tshirt_shirt_test.parquet"),
    "wine_quality": ("wine.parquet",),
    "abalone_rings": ("abalone.parquet",),
}
BOUND = ("adult", "telco", "mushroom", "bank")


@dataclass(frozen=True)
class Dataset:
    """`table` holds the schema's columns and `target`; `schema_bytes` is the public schema file."""

    name: str
    table: pa.Table
    target: str
    schema_bytes: bytes


def names() -> tuple[str, ...]:
    """Datasets with classes, the four of the bound first. `adult_test`, Adult's own test file, is for whoever asks."""
    return (*BOUND, *sorted(file.stem for file in SCHEMAS.glob("*.yaml") if file.stem not in BOUND))


def others() -> tuple[str, ...]:
    return names()[len(BOUND) :]


def regressions() -> tuple[str, ...]:
    """Datasets whose target is a number."""
    return tuple(sorted(file.stem for file in NUMBERS.glob("*.yaml")))


def folder_of(folder: str | Path | None) -> Path | None:
    """The folder with the data: as asked, else DPSERVE_DATA, else none."""
    place = folder or os.environ.get("DPSERVE_DATA")
    return Path(place) if place else None


def load(name: str, folder: str | Path | None = None) -> Dataset:
    """A dataset by its name. Raises FileNotFoundError (the file is not there) or KeyError (no such name)."""
    if name in ADULT:
        return Dataset(name, pq.read_table(SHIPPED / ADULT[name]), "income", schema_of(name))
    if name not in (*names(), *regressions()):
        raise KeyError(f"dataset={name}: none of {', '.join((*names(), *regressions()))}")
    place = folder_of(folder)
    if place is None:
        raise FileNotFoundError(f"dataset={name}: not shipped; name its folder (--data or DPSERVE_DATA)")
    parts = [pq.read_table(place / file) for file in FILES.get(name, (f"{name}.parquet",))]
    table = pa.concat_tables(parts)
    table = table.select([column for column in table.column_names if not column.startswith("__index")])
    if name in GROUPS:
        table = table.set_column(table.column_names.index("target"), "target", GROUPS[name](table["target"]))
    return Dataset(name, table, "target", schema_of(name))


def schema_of(name: str) -> bytes:
    if name in ADULT:
        return (SHIPPED / "adult.schema.yaml").read_bytes()
    return ((NUMBERS if name in regressions() else SCHEMAS) / f"{name}.yaml").read_bytes()


def with_records(schema: bytes, records: int) -> bytes:
    """The schema with another public number of records: a split's training size follows from the published count."""
    changed, times = re.subn(rb"(?m)^records: .*$", b"records: %d" % records, schema)
    if times != 1:
        raise ValueError("schema: one line `records: ...`, at its left margin")
    return changed


class Split(NamedTuple):
    """Rows to train on, whose number the schema says, and others: features and answers of each."""

    schema: Schema
    X: pa.Table
    y: NDArray[Any]
    X_test: pa.Table
    y_test: NDArray[Any]


def split(data: Dataset, seed: int) -> Split:
    """A random split: four fifths to train on, a fifth to test on."""
    order = np.random.default_rng(seed).permutation(data.table.num_rows)
    train, test = np.split(order, [int(0.8 * order.size)])
    schema = parse_schema(with_records(data.schema_bytes, train.size))
    features, answers = data.table.drop([data.target]), np.asarray(data.table[data.target])
    return Split(schema, features.take(train), answers[train], features.take(test), answers[test])


def _steps(*bounds: int) -> Callable[[pa.ChunkedArray], pa.ChunkedArray]:
    """Class k: above k of the bounds."""

    def grouped(column: pa.ChunkedArray) -> pa.ChunkedArray:
        classes = pa.chunked_array([pa.array([0] * len(column), pa.int64())])
        for bound in bounds:
            classes = pc.add(classes, pc.greater(column, bound).cast(pa.int64()))
        return classes

    return grouped


GROUPS = {"abalone": _steps(8, 10), "wine": _steps(5, 6)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder of the Parquet files")
    folder = parser.parse_args().data
    for name in (*names(), *regressions()):
        schema = parse_schema(schema_of(name))
        try:
            size = f"{load(name, folder).table.num_rows:,} rows"
        except FileNotFoundError:
            size = "no file"
        print(f"{name:<20}{size:>15}  {len(schema.features):>4} features  {_target_of(schema)}")


def _target_of(schema: Schema) -> str:
    return f"classes {list(schema.classes)}" if schema.classes else f"range {list(schema.target_range or ())}"


if __name__ == "__main__":
    main()
