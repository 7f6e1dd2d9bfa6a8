"""A column of a table that goes with its predictions, such as an id: as texts, and in an answer in CSV alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
from pyarrow import ipc

from dpserve_verify.errors import InputError
from dpserve_verify.system.printable import uncomputed
from models.features.column_law import plain_column
from serving.wire import csv_tables, parquet_tables


class Kept(NamedTuple):
    """A column's name, and the text of each record."""

    name: str
    texts: Sequence[str]


def kept_column(
    raw: bytes,
    name: str,
    limit: int,
    file: csv_tables.FileForm | None,
    answered: Sequence[str],
    is_arrow: bool = False,
) -> Kept:
    """Return the column called so of a body of Parquet, or of CSV where `file` says how it is written, or that of a
    table in Arrow which has no other. InputError where
    there is none, or where the answer has a column of that name.
    """
    if name in answered:
        raise InputError(f"keep {name[:80]!r}: a column of the predictions is called so; rename that of the file")
    if file is not None:
        texts: Sequence[str] = csv_tables.texts_of(raw, name, limit, file)
    elif is_arrow or parquet_tables.is_parquet(raw):
        table = ipc.open_stream(raw if is_arrow else parquet_tables.as_arrow(raw, [name], limit)).read_all()
        texts = plain_column(table[name]).cast(pa.string()).fill_null("").to_pylist()
    else:
        raise InputError("query keep: goes with CSV, Parquet and files")
    return Kept(name, [uncomputed(text) for text in texts])
