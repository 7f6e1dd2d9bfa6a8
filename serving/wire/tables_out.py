"""Predictions as a table: Arrow IPC or `.npy`. Columns as `dpserve predict` writes them: label and p_<class>, or value.

What a JSON answer says of the model stands in the headers `Dpserve-Model` and `Dpserve-Certificate`, and in Arrow's
schema as well.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import ipc
from starlette.responses import Response

from dpserve_verify.errors import InputError
from models.features.notes import Note, note_text
from serving.wire.csv_tables import NOTES, Kept, csv_of
from serving.wire.tables_in import NPY, STREAM

if TYPE_CHECKING:
    from models.parts.beside import Columns

Classes = tuple[str | int, ...]


@dataclass(frozen=True)
class Source:
    """The model that answered: its reference, its certificate as answers have it, its classes (none: a number)."""

    reference: str
    certificate: Mapping[str, Any]
    classes: Classes

    @property
    def headers(self) -> dict[str, str]:
        """Return what an answer in JSON says of the model, as headers."""
        return {"Dpserve-Model": self.reference, "Dpserve-Certificate": json.dumps(self.certificate)}


def table_answer(
    form: str,
    source: Source,
    label: NDArray[Any],
    probabilities: NDArray[Any],
    notes: Sequence[Sequence[Note]] | None = None,
    kept: Kept | None = None,
    beside: Columns | None = None,
) -> Response:
    """Return predictions as a table; `form`: "arrow", "csv" or "npy". label (n,), probabilities (n, classes) float32,
    of which a number has none; `notes` of each record, where they are wanted, as texts in the last column; a
    column that is `kept` stands first in CSV, and what is wanted `beside` before the notes. InputError for a `.npy`
    with notes or columns beside, and where another form than CSV is to have a column that is kept.

    A `.npy` is the probabilities in the order of the model's classes, or the values (n,) float64.
    """
    headers, texts = source.headers, None if notes is None else [note_text(each) for each in notes]
    if form == "csv":
        content = csv_of(source.classes, label, probabilities, texts, kept, beside)
        return Response(content, headers=headers, media_type="text/csv; charset=utf-8")
    if kept is not None:
        raise InputError("query keep: goes with an answer in CSV; ask for it by the Accept header")
    if form != "npy":
        content = _arrow(source.classes, label, probabilities, headers, texts, beside)
        return Response(content, headers=headers, media_type=STREAM.decode())
    if texts is not None or beside is not None:
        asked = "cover, interval" if texts is None else "notes"
        raise InputError(f"query {asked}: a .npy holds numbers alone; ask for JSON, Arrow or CSV by the Accept header")
    sink = io.BytesIO()
    np.save(sink, probabilities if source.classes else label, allow_pickle=False)
    return Response(sink.getvalue(), headers=headers, media_type=NPY.decode())


def _arrow(
    classes: Classes,
    label: NDArray[Any],
    probabilities: NDArray[Any],
    about: dict[str, str],
    notes: Sequence[str] | None,
    beside: Columns | None,
) -> bytes:
    kind = pa.string() if classes and isinstance(classes[0], str) else pa.int64()
    columns = {"label": pa.array(label, kind)} if classes else {"value": pa.array(label)}
    for index, name in enumerate(classes):
        columns[f"p_{name}"] = pa.array(np.ascontiguousarray(probabilities[:, index]))
    columns |= {name: pa.array(np.ascontiguousarray(column)) for name, column in (beside or {}).items()}
    if notes is not None:
        columns[NOTES] = pa.array(notes, pa.string())
    batch = pa.record_batch(list(columns.values()), names=list(columns))
    batch = batch.replace_schema_metadata({name.lower().replace("-", "."): text for name, text in about.items()})
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    raw: bytes = sink.getvalue().to_pybytes()
    return raw
