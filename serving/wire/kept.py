"""A column of a table that goes with its predictions, such as an id: as texts, and in an answer in CSV alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
from pyarrow import ipc

from dpserve_verify.errors import InputError
from dpserve_verify.system.printable import uncomputed
from models.features.column_law import plain_column
from models.features.written import Form
from serving.wire import csv_tables


class Kept(NamedTuple):
    """A column's name, and the text of each record."""

    name: str
    texts: Sequence[str]


def check_kept(name: str, answered: Sequence[str]) -> None:
    """Raise InputError where the answer has a column of that name."""
    if name in answered:
        raise InputError(f"keep {name[:80]!r}: a column of the predictions is called so; rename that of the file")


def kept_of_csv(raw: bytes, name: str, limit: int, form: Form) -> Kept:
    """Return the column called so of a body of CSV that was read already. InputError where there is none."""
    return Kept(name, [uncomputed(text) for text in csv_tables.texts_of(raw, name, limit, form)])


def kept_of_arrow(raw: bytes, name: str) -> Kept:
    """Return the column called so of a table in Arrow which has no other."""
    texts = plain_column(ipc.open_stream(raw).read_all()[name]).cast(pa.string()).fill_null("").to_pylist()
    return Kept(name, [uncomputed(text) for text in texts])
