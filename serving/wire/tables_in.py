"""Records as a table in place of JSON: Arrow IPC (stream or file) and `.npy`. Checked as strictly: nothing is pickled,
nothing is unpacked, and no size that a body claims is believed before its bytes are counted.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import ipc

from accountant.errors import RecordError
from accountant.system.numpy_files import literal
from dpserve_verify.errors import InputError
from models.features.column_law import Misfit, is_text, plain_column, read_column, read_texts
from models.features.csv_lines import name_columns
from models.features.features import MISSING_TEXT, CalendarFeature, CategoricalFeature, Feature
from models.features.table_format import USUAL_FORMAT, TableFormat
from models.features.text_numbers import NO_TEXTS, Numbers
from models.features.written import Written
from serving.wire.arrow_messages import check_messages
from serving.wire.bounds import Room, check_cells
from serving.wire.errors import TooLarge
from serving.wire.work_time import check_time

Feed = dict[str, NDArray[Any]]
Column: TypeAlias = "pa.Array | pa.ChunkedArray | NDArray[np.float64]"

STREAM, FILE = b"application/vnd.apache.arrow.stream", b"application/vnd.apache.arrow.file"
NPY = b"application/x-npy"
ANY = b"application/octet-stream"  # told apart by its first bytes
KINDS = (STREAM, FILE, NPY, ANY)

MAX_HEADER_BYTES, MAX_AXIS = 10_000, 1 << 31  # most bytes of a header, most cells of an axis
MAX_TEXT_BYTES = 1000  # bytes of a text that are read, whatever the categories are
MAGIC = b"\x93NUMPY"


@dataclass(frozen=True)
class Table:
    """A body as columns (n,) with the names that `name_columns` gives them, among them all features of a model, and how
    their values are written; numbers in NumPy's arrays are what the model compares. `kind`: "arrow", "csv",
    "npy" or "v2".
    """

    kind: str
    columns: Mapping[str, Column]
    written: TableFormat

    def read(self, features: Sequence[Feature], reads: Container[str], texts: Mapping[str, Numbers] = NO_TEXTS) -> Feed:
        """Return columns (n,) for `OnnxModel.infer`, by the law of columns. All are checked, those that the model
        `reads` are returned; those of its `texts` as the numbers that it makes of them. Null, NaN and the empty text
        are missing. RecordError: a value that does not fit.
        """
        room, feed = Room(), Feed()
        for feature in features:
            column, written = self.columns[feature.name], self.written.written_as(feature.name)
            is_any = not isinstance(column, np.ndarray) and is_text(column.type)
            if feature.name in reads or not (is_any and isinstance(feature, CategoricalFeature)):  # which any text fits
                feed[feature.name] = _read(feature, column, room, written, texts.get(feature.name))
        return feed

    def kept(self, name: str) -> list[str]:
        """Return the cells of a column as texts, as they stand. InputError where there is none."""
        if name not in self.columns:
            raise InputError(f"keep {name[:80]!r}: the header has no column of that name")
        return list(plain_column(self.columns[name]).cast(pa.string()).fill_null("").to_pylist())


def table_of(raw: bytes, features: Sequence[Feature], limit: int, written: TableFormat = USUAL_FORMAT) -> Table:
    """Read a body in Arrow or .npy, its values `written` so.

    The columns are exactly the features, in any order; a plain .npy has them in the model's order. InputError: neither
    form, or spoilt; RecordError: not the model's columns, or a type that none may have; TooLarge: more than `limit`
    records.
    """
    if raw.startswith(MAGIC):
        return Table("npy", _from_array(_array(raw), features, limit), written)
    return Table("arrow", arrow_columns(raw, features, limit), written)


# Arrow


def arrow_columns(raw: bytes, features: Sequence[Feature], limit: int, passes: bool = False) -> dict[str, Column]:
    """Read the whole table and validate it; its columns are checked before any batch is read: others than the features
    are refused, unless it `passes` over them.
    """
    try:
        with ipc.open_stream(check_messages(raw)) as reader:
            names = check_names(reader.schema.names, features, passes)
            for feature in features:
                with columns_by_law(feature):  # a type that no column may have is refused before any is read
                    read_column(feature, pa.array([], reader.schema.field(names.index(feature.name)).type))
            batches, records = [], 0
            for batch in reader:
                records += batch.num_rows
                if records > limit:
                    raise TooLarge(f"records: more than {limit}; at most that many a request", limit=limit)
                batches.append(batch)
            check_cells(records, len(features))
            table = pa.Table.from_batches(batches, reader.schema)
        table.validate(full=True)
        return dict(zip(names, table.columns, strict=True))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(f"body: not Arrow IPC ({type(error).__name__})") from None


def check_names(given: Sequence[str], features: Sequence[Feature], passes: bool = False) -> list[str]:
    """Return the names of a header, each once as `name_columns` names them. RecordError unless these are exactly the
    features, in any order; others where it `passes` over them.
    """
    expected, names = {feature.name for feature in features}, name_columns(given)
    for name in sorted(expected - set(names)):
        raise RecordError(f"{name}: is missing; a column of nulls says that it is not known", field=name)
    for name, stands in zip(names, given, strict=True):
        if name in expected or passes:
            continue
        if name != stands and stands:
            raise RecordError("columns: a name stands there twice")
        raise RecordError(f"{stands[:80]!r}: is not a field of this model", field=stands[:80])
    return names


@contextmanager
def columns_by_law(feature: Feature, start: int = 0) -> Iterator[None]:
    """Turn a Misfit within into the RecordError of this field, whose first record is `start`."""
    try:
        yield
    except Misfit as misfit:
        if misfit.row is None:
            raise RecordError(f"{feature.name}: {misfit.problem}", field=feature.name) from None
        record = start + misfit.row
        where = f"records[{record}].{feature.name}"
        raise RecordError(f"{where}: {misfit.problem}", record=record, field=feature.name) from None


def _read(
    feature: Feature,
    column: Column,
    room: Room,
    written: Written,
    numbers: Numbers | None,
) -> NDArray[Any]:
    check_time()
    if isinstance(column, np.ndarray):
        return column
    if not isinstance(feature, CategoricalFeature):
        with columns_by_law(feature):
            return read_column(feature, column, written)
    parts: list[NDArray[Any]] = []
    start = 0
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:  # each may have its own dictionary
        with columns_by_law(feature, start):
            texts = read_texts(feature.values, chunk, written)
        start += len(chunk)
        if numbers is not None:
            parts.append(_arrow_numbers(numbers, texts))
        elif pa.types.is_dictionary(texts.type):
            parts.append(_dictionary_texts(feature, texts, room))
        else:
            parts.append(_arrow_texts(feature, texts, room))
    return np.concatenate(parts) if parts else np.empty(0, object if numbers is None else np.float32)


def _arrow_numbers(numbers: Numbers, values: pa.Array) -> NDArray[np.float32]:
    """Return the model's number of each text, without a Python text for any."""
    missing, other_place = numbers.known.get(MISSING_TEXT, numbers.other), len(numbers.texts)
    if pa.types.is_null(values.type):
        return np.full(len(values), missing, np.float32)
    if pa.types.is_dictionary(values.type):
        of_dictionary = np.append(_arrow_numbers(numbers, values.dictionary), np.float32(missing))
        codes = pc.fill_null(pc.cast(values.indices, pa.int64()), -1)
        result: NDArray[np.float32] = of_dictionary[codes.to_numpy(zero_copy_only=False)]
        return result
    places = pc.call_function("index_in", [values], _lookup(numbers.texts, values.type))
    places = pc.fill_null(places, other_place) if places.null_count else places
    result = numbers.table[places.to_numpy()]
    if values.null_count:
        result[values.is_null().to_numpy(zero_copy_only=False)] = missing
    return result


@lru_cache(maxsize=4096)
def _lookup(texts: tuple[str, ...], kind: pa.DataType) -> pc.SetLookupOptions:
    return pc.SetLookupOptions(pa.array(texts, kind))


def _arrow_texts(feature: CategoricalFeature, values: pa.Array, room: Room) -> NDArray[Any]:
    """Return a text for each cell. One with more bytes than every category becomes "other", and is never copied."""
    if pa.types.is_null(values.type):
        return np.full(len(values), MISSING_TEXT, object)
    widest, stand_in_text = stand_in(feature)
    long = pc.greater(pc.binary_length(values), widest)
    if pc.any(long).as_py():
        values = pc.if_else(long, pa.scalar(stand_in_text, values.type), values)
    room.take(values.nbytes, feature.name)
    filled = pc.fill_null(values, MISSING_TEXT) if values.null_count else values
    texts: NDArray[Any] = filled.to_numpy(zero_copy_only=False)
    return texts


def _dictionary_texts(feature: CategoricalFeature, values: pa.DictionaryArray, room: Room) -> NDArray[Any]:
    """Return a text for each cell, one Python object for each that differs; the model has a copy for each cell."""
    check_time()
    codes: NDArray[Any] = pc.fill_null(pc.cast(values.indices, pa.int64()), -1).to_numpy(zero_copy_only=False)
    dictionary = values.dictionary
    if len(dictionary) > len(codes):  # no more than these cells name
        used, codes = np.unique(codes, return_inverse=True)
        dictionary = dictionary.take(pa.array(used, mask=used < 0))
        codes = codes.reshape(-1)
    texts: NDArray[Any] = np.append(_arrow_texts(feature, dictionary, Room()), MISSING_TEXT)
    sizes = np.fromiter(map(len, texts), np.int64, len(texts))
    room.take(int(sizes[codes].sum()), feature.name)
    chosen: NDArray[Any] = texts[codes]
    return chosen


@lru_cache(maxsize=4096)
def stand_in(feature: CategoricalFeature) -> tuple[int, str]:
    """Return the bytes of the widest category (at least MAX_TEXT_BYTES), and a short text that is no category."""
    widest = max(MAX_TEXT_BYTES, *(len(value.encode()) for value in feature.values))
    return widest, next(text for text in map(str, count()) if text not in feature.values)


# .npy


def _array(raw: bytes) -> NDArray[Any]:
    """Return the array over the body's own bytes: numpy's reader would trust the size that a header claims."""
    dtype, fortran, shape, start = _header(raw)
    cells = math.prod(shape)
    if dtype.hasobject or dtype.itemsize == 0 or len(raw) - start != cells * dtype.itemsize:
        raise InputError("body: .npy whose header does not go with its size, or that holds Python objects")
    array = np.frombuffer(raw, dtype, cells, start) if cells else np.empty(0, dtype)
    return array.reshape(shape[::-1]).T if fortran else array.reshape(shape)


def _header(raw: bytes) -> tuple[np.dtype[Any], bool, tuple[int, ...], int]:
    wide = 4 if raw[6:7] in (b"\2", b"\3") else 2
    size = int.from_bytes(raw[8 : 8 + wide], "little")
    if raw[6:8] not in (b"\1\0", b"\2\0", b"\3\0") or size > MAX_HEADER_BYTES:
        raise InputError("body: a form of .npy that is not known")
    start = 8 + wide + size
    try:
        header = literal(raw[8 + wide : start].decode("utf-8" if raw[6:7] == b"\3" else "latin-1"))
        shape, fortran = header["shape"], header["fortran_order"]
        good = (
            type(shape) is tuple
            and len(shape) <= 2
            and all(type(axis) is int and 0 <= axis < MAX_AXIS for axis in shape)
        )
        if set(header) != {"shape", "fortran_order", "descr"} or type(fortran) is not bool or not good:
            raise ValueError
        return np.lib.format.descr_to_dtype(header["descr"]), fortran, shape, start
    except (ArithmeticError, KeyError, MemoryError, RecursionError, SyntaxError, TypeError, ValueError):
        raise InputError("body: a .npy whose header cannot be read") from None


def _from_array(array: NDArray[Any], features: Sequence[Feature], limit: int) -> dict[str, Column]:
    """Return the columns of an array: fields by their names, or plain numbers (n, features) where no feature is a
    text.
    """
    if array.dtype.names is not None and array.ndim == 1:
        check_names(array.dtype.names, features)  # NumPy has each name once, and none that is empty
        cells: Mapping[str, NDArray[Any]] = {feature.name: array[feature.name] for feature in features}
    elif array.dtype.names is None and array.ndim == 2 and array.shape[1] == len(features):
        cells = {feature.name: array[:, index] for index, feature in enumerate(features)}
    else:
        raise InputError(f"body: .npy must be ({len(features)},) fields of n records, or (n, {len(features)}) numbers")
    if len(array) > limit:
        raise TooLarge(f"records: {len(array)}; at most {limit} a request", limit=limit)
    check_cells(len(array), len(features))
    return {feature.name: _array_column(feature, cells[feature.name]) for feature in features}


def _array_column(feature: Feature, cells: NDArray[Any]) -> Column:
    check_time()
    if cells.ndim != 1:
        raise RecordError(f"{feature.name}: holds arrays; must be one value a record", field=feature.name)
    if isinstance(feature, CalendarFeature) and cells.dtype.kind in "iuf":
        return cells.astype(np.float64)  # an array of numbers has what the model compares
    if cells.dtype.kind == "U":
        cells = _array_texts(feature, cells)
    elif cells.dtype.kind not in "biufM":
        wanted = "must be numbers, truth values, dates or texts (numpy's U)"
        raise RecordError(f"{feature.name}: holds {str(cells.dtype)[:60]}; {wanted}", field=feature.name)
    return pa.array(np.ascontiguousarray(cells, cells.dtype.newbyteorder("=")))


def _array_texts(feature: Feature, cells: NDArray[Any]) -> NDArray[Any]:
    """Return a column of texts; RecordError where one is not Unicode, which numpy does not check."""
    width = cells.dtype.itemsize // 4
    if width == 0:
        return np.full(len(cells), MISSING_TEXT)
    native = np.array(cells, cells.dtype.newbyteorder("="), order="C")
    points = native.view(np.uint32)
    if points.size and points.max() < 0xD800:  # as nearly always
        return native
    wrong = (points > 0x10FFFF) | ((points >= 0xD800) & (points < 0xE000))
    if wrong.any():
        index = int(np.argmax(wrong)) // width
        raise RecordError(f"records[{index}].{feature.name}: must be Unicode", record=index, field=feature.name)
    return native
