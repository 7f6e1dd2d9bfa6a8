"""Predictions as a table: Arrow IPC or `.npy`. Columns as `dpserve predict` writes them: label and p_<class>, or value.

What a JSON answer says of the model stands in the headers `Dpserve-Model` and `Dpserve-Certificate`, and in Arrow's
schema as well.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import ipc
from starlette.responses import Response

from serving.registry import Served
from serving.wire.tables_in import NPY, STREAM


def table_answer(form: str, served: Served, label: NDArray[Any], probabilities: NDArray[Any]) -> Response:
    """`form`: "arrow" or "npy". label (n,), probabilities (n, classes), of which a number has none."""
    about = {"Dpserve-Model": served.reference, "Dpserve-Certificate": orjson.dumps(served.certificate).decode()}
    if form == "npy":
        content = _npy(probabilities if served.verified.ensemble.classes else label)
        return Response(content, headers=about, media_type=NPY.decode())
    return Response(_arrow(served, label, probabilities, about), headers=about, media_type=STREAM.decode())


def _npy(answer: NDArray[Any]) -> bytes:
    """Probabilities (n, classes) float32 in the order of the model's classes, or values (n,) float64."""
    sink = io.BytesIO()
    np.save(sink, answer, allow_pickle=False)
    return sink.getvalue()


def _arrow(served: Served, label: NDArray[Any], probabilities: NDArray[Any], about: dict[str, str]) -> bytes:
    classes = served.verified.ensemble.classes
    columns = {"label": _labels(classes, label)} if classes else {"value": pa.array(label)}
    for index, name in enumerate(classes):
        columns[f"p_{name}"] = pa.array(np.ascontiguousarray(probabilities[:, index]))
    batch = pa.record_batch(list(columns.values()), names=list(columns))
    batch = batch.replace_schema_metadata({name.lower().replace("-", "."): text for name, text in about.items()})
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def _labels(classes: tuple[Any, ...], label: NDArray[Any]) -> pa.Array:
    return pa.array(label, pa.string() if isinstance(classes[0], str) else pa.int64())
