"""Models of a server: all of them, and predictions, which travel as Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import ipc

from dpserve import Client
from models.features.features import BooleanFeature, CategoricalFeature, Feature, RawColumns, feature_from_json
from models.worth.statements import judged
from serving.cli.backends.server.asking import asking
from training.datasets.described import read_schema
from training.rows.tables.row_files import read_columns, write_predictions

RECORDS = 10_000  # in a request; a server takes twice as many
CELLS = 1_000_000  # in a request
STREAM = "application/vnd.apache.arrow.stream"


def listed() -> list[dict[str, Any]]:
    """Every version, with the statement of worth that it is judged by, as the server says."""
    with asking() as service:
        versions = [dict(each.raw) for each in service.models()]
        for line in versions:
            measured = line.get("better") is not None
            found = judged(service.model(line["model"])["worth"]) if measured and line["verified"] else None
            line["worth"] = [] if found is None else [found]
        return versions


def predicted(
    name: str, data: Path, schema: Path | None, out: Path, progress: Callable[[int, int | None], None]
) -> dict[str, Any]:
    """Every row of a file, written as `schema` says, predicted in its order into another; what was done."""
    with asking() as service:
        told = service.model(name)
        features = [feature_from_json(each) for each in told["features"]]
        most = max(1, min(RECORDS, CELLS // max(1, len(features))))
        batches = read_columns(data, features, None if schema is None else read_schema(schema))
        answers = _answers(service, told["model"], features, batches, most, progress)
        count = write_predictions(out, told["classes"], answers)
    return {"model": told["model"], "target": told["target"], "records": count, "out": str(out)}


def _answers(
    service: Client,
    model: str,
    features: Sequence[Feature],
    batches: Iterator[RawColumns],
    most: int,
    progress: Callable[[int, int | None], None],
) -> Iterator[tuple[NDArray[Any], NDArray[np.float32]]]:
    done = 0
    for columns in batches:
        arrays = [_as_arrow(feature, np.asarray(columns[feature.name])) for feature in features]
        batch = pa.record_batch(arrays, names=[feature.name for feature in features])
        for start in range(0, batch.num_rows, most):
            sink = pa.BufferOutputStream()
            with ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch.slice(start, most))
            answer = ipc.open_stream(service.predict_table(model, sink.getvalue().to_pybytes(), STREAM)).read_all()
            label, *chances = (column.to_numpy() for column in answer.columns)
            yield label, np.column_stack(chances) if chances else np.empty((len(label), 0), np.float32)
            done += len(label)
            progress(done, None)


def _as_arrow(feature: Feature, values: NDArray[Any]) -> pa.Array:
    """A column as the server takes it: texts, booleans or numbers; NaN and the empty text are missing."""
    if isinstance(feature, CategoricalFeature):
        return pa.array(values.tolist(), pa.string())
    if isinstance(feature, BooleanFeature):
        missing = np.isnan(values)
        return pa.array(np.where(missing, 0, values).astype(bool), mask=missing)
    return pa.array(values, pa.float64())
