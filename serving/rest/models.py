"""The doors to models: predict, and what is served under which certificate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import Response

from accountant.access.grants import Access
from accountant.access.tokens import SCOPES
from accountant.home import Home
from accountant.ledger.archive import archived
from dpserve_verify.errors import InputError
from models.features.notes import notes_of
from models.features.table_format import TableFormat, format_from_json
from models.features.text_numbers import NO_TEXTS
from models.onnx.runtime import columns_from_records
from models.parts.beside import ENDS, Columns, Wanted, read_wanted
from models.store.since import growth_since
from models.worth.statements import mark, worths
from serving.http.rights import LISTED, NAMED, restrict_to_allowed, seen_models
from serving.http.routes import PREDICTING, Door, access, in_snapshot, in_thread, state
from serving.process.registry import NotHeld, Registry, Served
from serving.rest import json_schemas
from serving.wire import csv_tables, file_tables, lists, tables_in
from serving.wire.bounds import check_answer
from serving.wire.errors import JsonBytes, TakesTooLong, TooLarge, json_response
from serving.wire.quick_json import quick_json
from serving.wire.request_bodies import JSON, check_fields, known_query, query_text, read_body, strict_json
from serving.wire.tables_out import Source, table_answer
from serving.wire.work_time import check_time, in_turn
from training.datasets.described import ranges_of
from training.measuring.worth.covers import Cover
from training.planning.other_noise import OtherNoise

PREDICT_BYTES = 16 << 20
RECORDS = 20_000
AT_ONCE = 512 << 10  # bytes: what is larger is answered off the loop
BESIDE = ("interval", "cover", "group")
PREDICT_FIELDS = {"model": (str,), "records": (list,)}
TABLES = (*tables_in.KINDS, csv_tables.CSV, file_tables.PARQUET)
PREDICT_KINDS = (JSON, *TABLES)

Find = Callable[[str], Served]


@dataclass(frozen=True)
class Posted:
    """A request's records before they are read.

    model: of the query; None where the body names it.
    form: of the answer; "" where it is the body's.
    kind: its media type: CSV cannot be told from its first bytes.
    notes: whether to say which values were clipped, unknown or missing.
    beside: what is wanted beside each prediction; None where nothing is.
    keep: the column that goes with the predictions; "" where none does.
    ending: of a file's name that the reader of files reads; "" of any other body.
    written: how its values are written; None: as the model's dataset is.
    passes: whether it may have other columns than the model's, which are passed over.
    """

    raw: bytes
    model: str | None
    form: str
    kind: bytes = JSON
    notes: bool = False
    beside: Wanted | None = None
    keep: str = ""
    ending: str = ""
    written: TableFormat | None = None
    passes: bool = False


async def predict(request: Request) -> Response:
    """Predict records: labels and probabilities, or numbers. On the loop where it takes microseconds."""
    posted = await _read_posted(request)
    serving = state(request)
    serving.require_ready()
    if posted.notes or posted.beside is not None:  # by the dataset's schema, which must be read
        find = restrict_to_allowed(access(request), serving.registry.get)
        return await in_turn(access(request).principal, answer, find, posted, serving.home)
    packed = posted.model is not None and (bool(posted.ending) or file_tables.is_parquet(posted.raw))
    size = AT_ONCE + 1 if packed else len(posted.raw)  # what must be unpacked first is never answered on the loop
    return await run_quickly(serving.registry, access(request), size, answer, posted)


async def run_quickly(
    registry: Registry, rights: Access, size: int, work: Callable[..., Response], *arguments: Any
) -> Response:
    """Call `work` with a finder of the models that the caller may ask: at once where the request is small and the model
    in memory, else in a thread.
    """
    if size <= AT_ONCE:
        try:
            return work(restrict_to_allowed(rights, registry.get_loaded), *arguments)
        except NotHeld:
            return await in_thread(work, restrict_to_allowed(rights, registry.get), *arguments, limiter=PREDICTING)
    return await in_turn(rights.principal, work, restrict_to_allowed(rights, registry.get), *arguments)


async def _read_posted(request: Request) -> Posted:
    raw = await read_body(request, PREDICT_BYTES, *PREDICT_KINDS)
    headers = dict(request.scope["headers"])
    form = _form(headers.get(b"accept", b""))
    kind = headers.get(b"content-type", JSON).partition(b";")[0].strip().lower()
    noted, texts = query_text(request, "notes"), [query_text(request, name) for name in BESIDE]
    if noted not in (None, "0", "1"):
        raise InputError(f"query notes={noted[:40]!r}: must be 1, or left out")
    notes = noted == "1"
    beside = read_wanted(*texts)
    text = query_text(request, "format")
    written = None if text is None else format_from_json(strict_json(text.encode()))
    if kind == JSON:
        known_query(request, "notes", *BESIDE, "format")
        return Posted(raw, None, form or "json", kind, notes, beside, written=written)
    is_file = kind == file_tables.FILE and query_text(request, "file") is not None
    known_query(request, "model", "notes", *BESIDE, "keep", "format", *(["file"] if is_file else []))
    model = query_text(request, "model")
    if model is None:
        raise InputError("query model: is missing; a table is sent to /predict?model=NAME")
    keep = query_text(request, "keep") or ""
    if keep and not (is_file or kind == csv_tables.CSV or file_tables.is_parquet(raw)):
        raise InputError("query keep: goes with CSV, Parquet and files")
    ending = file_tables.ending_of(query_text(request, "file") or "") if is_file else ""
    return Posted(raw, model, form, kind, notes, beside, keep, ending, written, bool(keep) or written is not None)


def _form(accept: bytes) -> str:
    """Return the form of answer that the client accepts; "" where it takes any."""
    for word, form in ((JSON, "json"), (tables_in.STREAM, "arrow"), (tables_in.NPY, "npy"), (csv_tables.CSV, "csv")):
        if word in accept:
            return form
    return ""


def answer(find: Find, posted: Posted, home: Home | None = None) -> Response:
    """Predict records; answer in JSON, Arrow, CSV or .npy as the client accepts, for Parquet in Arrow. Blocks. `home`:
    that has the schemas and plans, where notes or intervals are wanted.
    """
    start, form, table, kept = perf_counter(), posted.form, None, None
    if posted.model is None:
        served, columns = from_records(find, posted.raw, posted.written)
    else:
        served = find(posted.model)
        table, kept = _read_table(served, posted)
        runtime, form = served.verified.runtime, form or table.kind
        columns = table.read(served.verified.ensemble.features, runtime.reads, runtime.texts)
    label, probabilities = run_model(served, columns)
    notes = beside = None
    more: dict[str, Any] = {}
    if home is not None:
        inputs = _read_inputs(served, posted, table)
        if posted.notes:  # by the ranges of the model's dataset
            dataset = served.verified.certificate.form.dataset
            ranges = ranges_of(home, dataset.name, dataset.schema_digest)
            notes = notes_of(served.verified.ensemble.features, ranges, inputs)
        if posted.beside is not None:
            beside, more = _beside(served, inputs, posted.beside, home)
    if form == "json":
        if posted.keep:
            raise InputError("query keep: goes with an answer in CSV; ask for it by the Accept header")
        body = answer_json(served, label, probabilities) | ({} if notes is None else {"notes": notes}) | more
        response: Response = JsonBytes(orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY))
    else:
        source = Source(served.reference, served.certificate, served.verified.ensemble.classes)
        response = table_answer(form, source, label, probabilities, notes, kept, beside)
    served.count(len(label), perf_counter() - start)
    return response


def _read_table(served: Served, posted: Posted) -> tuple[tables_in.Table, csv_tables.Kept | None]:
    """Return a body's columns, and the one that is kept, if any. A file, or Parquet, is read by a program of its
    own.
    """
    ensemble, raw, keep = served.verified.ensemble, posted.raw, posted.keep
    written = served.verified.format if posted.written is None else posted.written
    if keep:
        csv_tables.check_kept(keep, ensemble.classes, posted.beside.names(ensemble.classes) if posted.beside else ())
    if posted.ending or (posted.kind != csv_tables.CSV and file_tables.is_parquet(raw)):
        table, kept = file_tables.table_of_file(raw, posted.ending, ensemble.features, written, RECORDS, keep)
    elif posted.kind == csv_tables.CSV:
        table = csv_tables.table_of(raw, ensemble.features, RECORDS, written, posted.passes)
        kept = table.kept(keep) if keep else []
    else:
        table, kept = tables_in.table_of(raw, ensemble.features, RECORDS, written), []
    return table, (keep, kept) if keep else None


def _read_inputs(served: Served, posted: Posted, table: tables_in.Table | None) -> dict[str, NDArray[Any]]:
    """Return every feature of each record, also those that the graph passes over."""
    features = served.verified.ensemble.features
    if table is None:
        written = posted.written or served.verified.format
        columns = columns_from_records(features, parse(posted.raw)["records"], RECORDS, NO_TEXTS, written)
    else:
        columns = table.read(features, [feature.name for feature in features])
    check_answer(len(columns[features[0].name]), len(features))
    check_time()
    return columns


def _beside(
    served: Served, columns: dict[str, NDArray[Any]], wanted: Wanted, home: Home
) -> tuple[Columns, dict[str, Any]]:
    """Return what is wanted beside each prediction, as columns and as JSON."""
    model, statement = served.verified.ensemble, None
    if wanted.covers:
        cover = Cover.of(home, model, served.verified.certificate, wanted.group)
        found, statement = cover.answer(columns, wanted), cover.entry
    else:
        found = dict(zip(ENDS, _ends(served, columns, wanted.level, home).T, strict=True))
    return found, wanted.to_json(found, model.classes, statement)


def _ends(served: Served, columns: dict[str, NDArray[Any]], level: float, home: Home) -> NDArray[np.float64]:
    """Return the ends of the interval of each record: (n, 2). Refits that were made stay with the model in memory, so
    that a request that takes too long for them is answered when it is sent again.
    """
    noise = served.memory.get(OtherNoise.__name__)
    if noise is None:
        noise = OtherNoise.of(home, served.verified.ensemble, served.verified.certificate)
        served.memory[OtherNoise.__name__] = noise

    def check(done: int, of: int) -> None:
        try:
            check_time()
        except TakesTooLong:
            raise TakesTooLong(f"interval: {done} of {of} refits under other noise are made; ask again") from None

    return noise.interval(columns, level, check)


def from_records(find: Find, raw: bytes, written: TableFormat | None = None) -> tuple[Served, dict[str, NDArray[Any]]]:
    """Read a body of JSON, its values written as they are `written`, or as the model's dataset is; return the model it
    names, and its records as columns.
    """
    body = parse(raw)
    served = find(body["model"])
    return served, columns_of(served, body["records"], written)


def parse(raw: bytes) -> dict[str, Any]:
    """Parse a body of /predict and check its fields."""
    return check_fields(quick_json(raw, RECORDS), PREDICT_FIELDS, {})


def columns_of(served: Served, records: list[Any], written: TableFormat | None = None) -> dict[str, NDArray[Any]]:
    """Return the columns of records. RecordError names the first record and field that do not fit."""
    if len(records) > RECORDS:
        raise TooLarge(f"records: {len(records)}; at most {RECORDS} a request", limit=RECORDS)
    check_time()
    model = served.verified
    written = model.format if written is None else written
    return columns_from_records(model.ensemble.features, records, RECORDS, model.runtime.texts, written)


def answer_records(find: Find, body: dict[str, Any]) -> tuple[Served, dict[str, Any]]:
    """Return the model that answered, and its answer: with classes and probabilities, unless it is a number."""
    served = find(body["model"])
    return served, answer_json(served, *run_model(served, columns_of(served, body["records"])))


def run_model(served: Served, columns: dict[str, NDArray[Any]]) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Run a model on columns as `OnnxModel.infer` takes them; return label (n,) and probabilities (n, classes).
    TooLarge, TakesTooLong.
    """
    check_answer(len(next(iter(columns.values()), ())), len(served.verified.ensemble.classes) or 1)
    check_time()
    return served.verified.runtime.infer(columns)


def answer_json(served: Served, label: NDArray[Any], probabilities: NDArray[np.float32]) -> dict[str, Any]:
    """Return an answer before it is encoded. label (n,), probabilities (n, classes), which a number has not."""
    ensemble = served.verified.ensemble
    plain: dict[str, Any] = {"model": served.reference, "target": ensemble.target, "certificate": served.fragment}
    plain["predictions"], classes = label.tolist(), ensemble.classes
    return {**plain, "classes": classes, "probabilities": probabilities} if classes else plain


async def list_models(request: Request) -> Response:
    """Return the versions that the caller may see, served or not."""
    part, serving = lists.part_of(request, "archived"), state(request)
    serving.require_ready()
    lines = seen_models(access(request), serving.registry.to_json(), serving.registry)

    def read() -> dict[str, Any]:
        hidden = archived(serving.home.ledger, "model")
        wanted, following = part.cut(lines, lambda line: str(line["model"]), None, lambda line: line["name"] in hidden)
        return {"models": mark(serving.home, wanted), "next": following}

    return json_response(await in_snapshot(request, read))


async def show_model(request: Request) -> Response:
    """Return one model: its features, classes, certificate, the format of its dataset's files, and what it is worth."""
    served, home = await served_model(request), state(request).home
    return json_response(_description(served) | await in_snapshot(request, _known_of, home, served))


def _known_of(home: Home, served: Served) -> dict[str, Any]:
    """Return what this home knows of a model beside its files."""
    certificate = served.verified.certificate
    return {
        "format": format_json(served),
        "worth": worths(home, certificate.issued),
        "since": list(growth_since(home.ledger, certificate)),
    }


def format_json(served: Served) -> dict[str, Any] | None:
    """Return how tables of the model's dataset are written; None: as tables usually are, or its certificate does
    not say it.
    """
    names = [feature.name for feature in served.verified.ensemble.features]
    with suppress(InputError):
        return served.verified.format.to_json(names)
    return None


async def show_certificate(request: Request) -> Response:
    """Return all that a verifier needs beside the model and the pinned keys; the exact bytes, as they are signed."""
    served = await served_model(request)
    bundle = served.verified.bundle
    return json_response(
        {
            "model": served.reference,
            "envelope": orjson.Fragment(bundle.envelope),
            "proof": bundle.proof.decode(),
            "statement": served.verified.certificate.statement,
        }
    )


async def served_model(request: Request, version: str | None = None, more: Sequence[str] = ()) -> Served:
    """Return the model that the path names, verified, from memory or from its files. `more`: what the query may say."""
    known_query(request, *more)
    serving = state(request)
    serving.require_ready()
    name = request.path_params["name"]
    return await in_thread(serving.registry.get, name if version is None else f"{name}@{version}")


def _description(served: Served) -> dict[str, Any]:
    ensemble = served.verified.ensemble
    return {
        "model": served.reference,
        "name": served.name,
        "version": served.version,
        "target": ensemble.target,
        "classes": ensemble.classes,
        "target_range": ensemble.target_range,
        "features": [feature.to_json() for feature in ensemble.features],
        "certificate": served.certificate,
    }


RECORD = {
    "type": "object",
    "description": "every feature of the model: a number, a text, true or false, or null where it is not known",
}
PREDICT = {
    "type": "object",
    "additionalProperties": False,
    "required": ["model", "records"],
    "properties": {
        "model": {"type": "string", "description": "adult, adult@champion or adult@2"},
        "records": {"type": "array", "items": RECORD, "maxItems": RECORDS},
    },
}
TABLE = {
    "type": "string",
    "format": "binary",
    "description": "Arrow IPC, .npy, CSV, Parquet, or a file that `file` names: a column for each feature",
}
MODEL_QUERY = {"type": "string", "description": "the model, where the body is a table; JSON names it itself"}
NOTES_QUERY = {
    "type": "integer",
    "enum": [0, 1],
    "description": "1: say which values of each record were clipped, unknown or missing; of a table in column `notes`",
}
INTERVAL_QUERY = {
    "type": "number",
    "minimum": 0.5,
    "maximum": 0.99,
    "description": "the level of the part of each prediction's interval that noise makes, for models of ebm: the ends "
    "between which the same rows would have given it under other noise, of the chance of the second class or of the "
    "number; of a table in columns `low` and `high`",
}
COVER_QUERY = {
    "type": "number",
    "minimum": 0.5,
    "maximum": 0.99,
    "description": "the level of answers that hold the truth so often: sets of classes, or the ends of intervals; for "
    "models whose cover was counted by an evaluation; of a table in columns `in_<class>`, or `low` and `high`",
}
GROUP_QUERY = {
    "type": "string",
    "description": "with `cover`: a column in each of whose groups the answers hold the truth so often",
}
FORMAT_QUERY = {
    "type": "string",
    "maxLength": 32_000,
    "description": "how what is sent is written, where not as the model's dataset is, as `format` of GET "
    "/v1/models/{name} says that; {}: as usual. Of CSV other columns than the model's are passed over",
}
FILE_QUERY = {
    "type": "string",
    "maxLength": 200,
    "description": "the name of a file that is sent whole, whose end says how it is read, as `dpserve predict` reads "
    "it; other columns than the model's are passed over",
}
KEEP_QUERY = {
    "type": "string",
    "description": "a column of a table, such as an id, that stands first in an answer in CSV, as it is",
}
DOORS = (
    Door(
        "POST",
        "/predict",
        ("predict",),
        predict,
        "Predict records",
        takes=PREDICT,
        gives=json_schemas.PREDICTED,
        query={
            "model": MODEL_QUERY,
            "format": FORMAT_QUERY,
            "notes": NOTES_QUERY,
            "interval": INTERVAL_QUERY,
            "cover": COVER_QUERY,
            "group": GROUP_QUERY,
            "file": FILE_QUERY,
            "keep": KEEP_QUERY,
        },
        also={kind.decode(): TABLE for kind in TABLES},
        on=NAMED,
    ),
    Door(
        "GET",
        "/v1/models",
        SCOPES,
        list_models,
        "Models, served or not",
        gives=json_schemas.MODELS,
        query=lists.ARCHIVED,
        on=LISTED,
    ),
    Door(
        "GET",
        "/v1/models/{name}",
        SCOPES,
        show_model,
        "A model: features, classes or range, certificate",
        gives=json_schemas.MODEL,
    ),
    Door(
        "GET",
        "/v1/models/{name}/certificate",
        SCOPES,
        show_certificate,
        "A certificate and its proof",
        gives=json_schemas.CERTIFIED,
    ),
)
