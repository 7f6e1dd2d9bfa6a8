"""Released models of a server: all of them, and predictions, which travel as Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from dpserve import Client
from models.features.features import Feature, RawColumns, feature_from_json
from models.features.table_format import format_from_json
from models.store.bundle import check_reference
from models.worth.statements import pick_judgement
from serving.cli.backends.abstract import Body, Models, Progress, RowsToPredict
from serving.cli.backends.server.connection import AtServer
from serving.cli.backends.server.jobs import champion_of
from serving.wire.list_parts import Part
from training.datasets.described import read_schema
from training.rows.tables.row_files import Answer, KeptColumns, as_arrow, read_columns, write_predictions

if TYPE_CHECKING:
    from models.parts.beside import Wanted

RECORDS = 10_000  # in a request; a server takes twice as many
CELLS = 1_000_000  # in a request
STREAM = "application/vnd.apache.arrow.stream"


class ServerModels(AtServer, Models):
    """As `Models` says, over REST."""

    def list_part(self, part: Part) -> Body:
        """Return versions, with the statement of worth that each is judged by, as the server says."""
        with self.connection.asking() as service:
            body = dict(service.part("models", **part.to_query()))
            for line in body["models"]:
                measured = line["better"] is not None and line["verified"]
                worth = pick_judgement(service.model(line["model"])["worth"]) if measured else None
                line["worth"] = [] if worth is None else [worth]
            return body

    def champion(self, name: str) -> int | None:
        """Return the version that answers to a name."""
        with self.connection.asking() as service:
            return champion_of(service, name)

    def predict(self, file: RowsToPredict, progress: Progress) -> Body:
        """Predict a file at the server. It is read here, as the server says that the model's dataset is written; what
        is kept never leaves this machine.
        """
        check_reference(file.model)
        with self.connection.asking() as service:
            model = service.model(file.model)
            features = [feature_from_json(body) for body in model["features"]]
            form = format_from_json(model["format"]) if file.schema is None else read_schema(file.schema).format
            batches = read_columns(file.data, features, form)
            names = () if file.wanted is None else file.wanted.names(model["classes"])
            answers = _answers(service, model["model"], features, batches, progress, file.has_notes, file.wanted, names)
            kept = KeptColumns(file.data, file.keep, form) if file.keep else None
            count = write_predictions(file.out, model["classes"], answers, kept, file.has_notes, names)
        body = {"model": model["model"], "target": model["target"], "records": count, "out": str(file.out)}
        word = model["certificate"].get("vouched")
        return body | ({"vouched": word} if word else {})


def _answers(
    service: Client,
    model: str,
    features: Sequence[Feature],
    batches: Iterator[RawColumns],
    progress: Progress,
    has_notes: bool,
    wanted: Wanted | None,
    names: Sequence[str],
) -> Iterator[Answer]:
    """Yield labels (n,), probabilities (n, classes), and the notes and the columns beside, where they are wanted, of
    each request.
    """
    most = max(1, min(RECORDS, CELLS // max(1, len(features))))
    asked: dict[str, Any] = {}
    if wanted is not None:
        asked = {"cover": wanted.level, "group": wanted.group} if wanted.covers else {"interval": wanted.level}
    done = 0
    for columns in batches:
        arrays = [as_arrow(feature, columns[feature.name]) for feature in features]
        batch = pa.record_batch(arrays, names=[feature.name for feature in features])
        for start in range(0, batch.num_rows, most):
            sink = pa.BufferOutputStream()
            with ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch.slice(start, most))
            table = service.predict_table(
                model, sink.getvalue().to_pybytes(), STREAM, notes=has_notes, **asked, format={}
            )
            answer = ipc.open_stream(table).read_all()
            notes = answer["notes"].to_pylist() if has_notes else None
            answer = answer.drop_columns(["notes"]) if has_notes else answer
            beside = {name: answer[name].to_numpy() for name in names}
            answer = answer.drop_columns([*names])
            label, *chances = (column.to_numpy() for column in answer.columns)
            yield label, np.column_stack(chances) if chances else np.empty((len(label), 0), np.float32), notes, beside
            done += len(label)
            progress(done, None)
