"""Tensors of the Open Inference Protocol (V2), in JSON and binary, from and to the columns of a model.

A request has one tensor for each feature, of shape [n] or [n, 1], of any datatype that the law of columns reads
(`models.features.column_law`): numbers as FP32, FP64 or any integer, booleans as BOOL or 0 and 1, texts as BYTES, dates
and times as BYTES (ISO 8601) or the numbers that the exported model takes. Missing is NaN, null, or the empty text.
Binary data follow the JSON in the order of the inputs, little-endian; a text is four bytes of length and UTF-8. A
`content_type`, as MLServer's codecs write it, says how the texts are written; parameters that change nothing are passed
over.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Container, Mapping, Sequence
from itertools import chain
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from accountant.errors import RecordError
from dpserve_verify.errors import InputError
from models.features.features import (
    MISSING_TEXT,
    CalendarFeature,
    CategoricalFeature,
    Feature,
    encodable,
)
from models.features.table_format import USUAL_FORMAT, TableFormat
from serving.wire.bounds import check_cells
from serving.wire.errors import TooLarge
from serving.wire.request_bodies import check_fields, strict_json
from serving.wire.tables_in import Column, Table
from serving.wire.work_time import check_time

FLOATS = {"FP16": "<f2", "FP32": "<f4", "FP64": "<f8"}
INTEGERS = {f"{sign}INT{8 * size}": f"<{kind}{size}" for sign, kind in (("", "i"), ("U", "u")) for size in (1, 2, 4, 8)}
NUMBERS = {**FLOATS, **INTEGERS}
INPUT = {"name": (str,), "shape": (list,), "datatype": (str,)}
INPUT_MORE = {"parameters": (dict,), "data": (list,)}
BINARY_SIZE = "binary_data_size"
NOT_OFFERED = ("classification", "sequence_", "shared_memory_")  # how the names of such parameters begin
ENCODED: Mapping[str, Callable[[bytes], Any]] = {
    "base64": lambda raw: b64decode(raw, validate=True).decode(),
    "pd_json": strict_json,
}  # content types, each with what reads a text of it
PLAIN_TYPES = ("str", "np", "pd", "datetime")  # content types whose data are as they would be without


def datatype_of(feature: Feature) -> str:
    """Return the datatype that can hold every value, missing ones too."""
    return "BYTES" if isinstance(feature, CategoricalFeature | CalendarFeature) else "FP64"


def table_of(
    tensors: Sequence[Any], binary: bytes, features: Sequence[Feature], limit: int, written: TableFormat = USUAL_FORMAT
) -> Table:
    """Read the request's inputs, `written` so. InputError: not of the protocol's form; RecordError: not the model's
    features; TooLarge: more than `limit` records.
    """
    by_name = {feature.name: feature for feature in features}
    columns: dict[str, Column] = {}
    count, start = None, 0
    for tensor in tensors:
        fields = check_fields(tensor, INPUT, INPUT_MORE)
        feature, end = _feature(fields, by_name, columns), start + _size(fields)
        count = _count(fields, count, limit)
        check_cells(count, len(features))
        check_time()
        if end > len(binary):
            raise InputError(f"{BINARY_SIZE}: more bytes than there are after the JSON")
        columns[feature.name] = _column(feature, fields, binary[start:end], count)
        start = end
    if start != len(binary):
        raise InputError(f"body: {len(binary) - start} bytes that belong to no input")
    for name in by_name.keys() - columns.keys():
        raise RecordError(f"{name}: is missing (NaN or the empty text says that it is not known)", field=name)
    return Table("v2", columns, written.of_json)


def _feature(fields: Mapping[str, Any], known: Mapping[str, Feature], before: Container[str]) -> Feature:
    name = fields["name"]
    if name not in known:
        raise RecordError(f"{name[:80]!r}: is not a field of this model", field=name[:80])
    if name in before:
        raise InputError(f"inputs: {name!r} stands there twice")
    return known[name]


def read_parameters(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters of a request, an input or an output. InputError where one asks for what is not offered;
    others may stand there and say nothing.
    """
    parameters: Mapping[str, Any] = fields.get("parameters") or {}
    refused = [name for name in parameters if name.startswith(NOT_OFFERED)]
    if refused:
        raise InputError(
            f"parameters: {refused[0][:80]!r}: sequences, shared memory and classification are not offered"
        )
    return parameters


def _size(fields: Mapping[str, Any]) -> int:
    parameters = read_parameters(fields)
    size = parameters.get(BINARY_SIZE, 0)
    if type(size) is not int or size < 0:
        raise InputError(f"{BINARY_SIZE}: must be a whole number")
    if (BINARY_SIZE in parameters) == (fields.get("data") is not None):
        raise InputError(f"inputs: each has either data or {BINARY_SIZE}")
    return size


def _count(fields: Mapping[str, Any], before: int | None, limit: int) -> int:
    shape = fields["shape"]
    good = 1 <= len(shape) <= 2 and all(type(axis) is int and axis >= 0 for axis in shape) and shape[1:] in ([], [1])
    if not good or before not in (None, shape[0]):
        raise InputError("shape: must be [n] or [n, 1], the same n for every input")
    if shape[0] > limit:
        raise TooLarge(f"records: {shape[0]}; at most {limit} a request", limit=limit)
    return int(shape[0])


def _column(feature: Feature, fields: Mapping[str, Any], raw: bytes, count: int) -> Column:
    kind, data = fields["datatype"], fields.get("data")
    if kind != "BYTES" and kind not in NUMBERS and kind != "BOOL":
        _misfit(feature, f"datatype {kind[:20]!r} is not known; {datatype_of(feature)} fits")
    cells = _flat(data, count) if data is not None else None
    if kind == "BYTES":
        texts = _read_texts(feature, raw, count) if cells is None else _given_texts(feature, cells)
        return pa.array(_decode_texts(feature, texts, read_parameters(fields).get("content_type")), pa.string())
    column = _raw_numbers(kind, raw, count) if cells is None else _given_numbers(feature, kind, cells)
    return _compared(feature, column) if isinstance(feature, CalendarFeature) and kind != "BOOL" else column


def _raw_numbers(kind: str, raw: bytes, count: int) -> pa.Array:
    number = np.dtype(NUMBERS.get(kind, "u1"))
    if len(raw) != count * number.itemsize:
        raise InputError(f"{BINARY_SIZE}={len(raw)}: {count} values of {kind} have {count * number.itemsize} bytes")
    numbers = np.frombuffer(raw, number)
    if kind != "BOOL":
        return pa.array(numbers)
    if (numbers > 1).any():
        raise InputError("BOOL: a byte that is neither 0 nor 1")
    return pa.array(numbers == 1)


def _compared(feature: CalendarFeature, column: pa.Array) -> NDArray[np.float64]:
    """Return the numbers that the model compares, as they came."""
    numbers = column.cast(pa.float64(), safe=False).fill_null(float("nan")).to_numpy(zero_copy_only=False)
    if np.isinf(numbers).any():
        _misfit(feature, "must be finite", int(np.argmax(np.isinf(numbers))))
    return np.asarray(numbers, np.float64)


def _flat(data: list[Any], count: int) -> list[Any]:
    """Flatten rows that are nested, as a tensor of two axes is."""
    if data and all(type(row) is list for row in data):
        data = list(chain.from_iterable(data))
    if len(data) != count:
        raise InputError(f"data: {len(data)} values; the shape says {count}")
    return data


def _given_numbers(feature: Feature, kind: str, cells: list[Any]) -> pa.Array:
    allowed = {bool} if kind == "BOOL" else {int} if kind in INTEGERS else {int, float}
    if not set(map(type, cells)) <= {*allowed, type(None)}:
        index = next(i for i, cell in enumerate(cells) if type(cell) not in {*allowed, type(None)})
        _misfit(feature, f"must be {kind}, or null", index)
    try:
        if kind in FLOATS:
            return pa.array([None if cell is None else float(cell) for cell in cells], pa.float64())
        return pa.array(cells, pa.bool_() if kind == "BOOL" else pa.from_numpy_dtype(np.dtype(INTEGERS[kind])))
    except (OverflowError, pa.ArrowInvalid):
        _misfit(feature, f"a number beyond every {kind}")


def _given_texts(feature: Feature, cells: list[Any]) -> list[str]:
    texts = [MISSING_TEXT if cell is None else cell for cell in cells]
    for index, text in enumerate(texts):
        if type(text) is not str or not (text == MISSING_TEXT or encodable(text)):
            _misfit(feature, "must be a text or null", index)
    return texts


def _decode_texts(feature: Feature, texts: list[str], content_type: Any) -> list[str]:
    """Return the texts that MLServer's codec of this name has written. InputError: no codec of texts."""
    if content_type in (None, *PLAIN_TYPES):
        return texts
    decode = ENCODED.get(str(content_type))
    if decode is None:
        raise InputError(f"content_type={str(content_type)[:40]!r}: must be one of {[*PLAIN_TYPES, *ENCODED]}")
    cells = []
    for index, text in enumerate(texts):
        try:
            cells.append(decode(text.encode()))
        except (InputError, ValueError):
            _misfit(feature, f"is not written as {content_type}", index)
    return _given_texts(feature, cells)


def _read_texts(feature: Feature, raw: bytes, count: int) -> list[str]:
    texts: list[str] = []
    at = 0
    while len(texts) < count and at + 4 <= len(raw):
        end = at + 4 + int.from_bytes(raw[at : at + 4], "little")
        if end > len(raw):
            break
        try:
            texts.append(raw[at + 4 : end].decode())
        except UnicodeDecodeError:
            _misfit(feature, "must be UTF-8", len(texts))
        at = end
    if len(texts) != count or at != len(raw):
        raise InputError(f"{feature.name}: its bytes are not {count} texts")
    return texts


def _misfit(feature: Feature, problem: str, index: int | None = None) -> NoReturn:
    where = {} if index is None else {"record": index}
    at = feature.name if index is None else f"records[{index}].{feature.name}"
    raise RecordError(f"{at}: {problem}", **where, field=feature.name)


def tensor_of(name: str, values: NDArray[Any], binary: bool) -> tuple[dict[str, Any], bytes]:
    """Return an output's JSON, and its bytes where it is `binary`. Texts (objects), integers, float32 or float64."""
    kind = {"f4": "FP32", "f8": "FP64", "i8": "INT64"}.get(values.dtype.str[1:], "BYTES")
    head: dict[str, Any] = {"name": name, "datatype": kind, "shape": list(values.shape)}
    if not binary:
        return {**head, "data": values.ravel().tolist()}, b""
    if kind == "BYTES":
        texts = [str(text).encode() for text in values.ravel()]
        raw = b"".join(len(text).to_bytes(4, "little") + text for text in texts)
    else:
        raw = np.ascontiguousarray(values, values.dtype.newbyteorder("<")).tobytes()
    return {**head, "parameters": {BINARY_SIZE: len(raw)}}, raw
