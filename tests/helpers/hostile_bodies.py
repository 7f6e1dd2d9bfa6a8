"""Bodies for the doors of models: good ones of every format, and those that stand for much more than they are."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import ipc
from small_home import records

JSON, STREAM, NPY = "application/json", "application/vnd.apache.arrow.stream", "application/x-npy"
ARROW_FILE, ANY = "application/vnd.apache.arrow.file", "application/octet-stream"
TABLE, INFER = "/predict?model=adult", "/v2/models/adult/infer"
MOST = 16 << 20  # bytes of a body


@dataclass(frozen=True)
class Body:
    """One request: where, in which form, and what."""

    name: str
    path: str
    kind: str
    raw: bytes
    headers: dict[str, str] = field(default_factory=dict)


def stream(table: pa.Table, chunk: int | None = None, write: Callable[..., Any] = ipc.new_stream) -> bytes:
    """The table as Arrow IPC."""
    sink = io.BytesIO()
    with write(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=chunk)
    return sink.getvalue()


def npy(array: np.ndarray[Any, Any]) -> bytes:
    """The array as `.npy`."""
    sink = io.BytesIO()
    np.save(sink, array)
    return sink.getvalue()


def rows(count: int) -> np.ndarray[Any, Any]:
    """Records as an array of fields."""
    found = records(count)
    kinds = [(name, "U20" if isinstance(value, str) else "f4") for name, value in found[0].items()]
    return np.array([tuple("" if cell is None else cell for cell in each.values()) for each in found], kinds)


def tensors(count: int) -> list[dict[str, Any]]:
    """Records as tensors of the open inference protocol."""
    found = records(count)
    texts = {name: isinstance(value, str) for name, value in found[0].items()}
    return [
        {"name": n, "shape": [count], "datatype": "BYTES" if text else "FP64", "data": [each[n] for each in found]}
        for n, text in texts.items()
    ]


def binary(count: int) -> Body:
    """Records as binary tensors."""
    heads, parts = [], []
    for each in tensors(count):
        data = each.pop("data")
        raw = (
            np.array(data, "<f8").tobytes()
            if each["datatype"] == "FP64"
            else b"".join(len(text).to_bytes(4, "little") + text for text in ((cell or "").encode() for cell in data))
        )
        heads.append({**each, "parameters": {"binary_data_size": len(raw)}})
        parts.append(raw)
    head = json.dumps({"inputs": heads}).encode()
    return Body("v2 binary", INFER, ANY, head + b"".join(parts), {"Inference-Header-Content-Length": str(len(head))})


@lru_cache(maxsize=1)
def good() -> tuple[Body, ...]:
    """One of every format, each answered with 200; the last ones are no question to a model."""
    table = pa.Table.from_pylist(records(3))
    asked = json.dumps({"model": "adult", "records": records(3)}).encode()
    infer = json.dumps({"inputs": tensors(3)}).encode()
    plan = {"dataset": "adult", "learner": "lazybb", "epsilon": "0.1", "parameters": {"rounds": 3}}
    return (
        Body("json", "/predict", JSON, asked),
        Body("explain", "/explain", JSON, asked),
        Body("arrow stream", TABLE, STREAM, stream(table)),
        Body("arrow file", TABLE, ARROW_FILE, stream(table, write=ipc.new_file)),
        Body("arrow dictionaries", TABLE, ANY, stream(coded(table))),
        Body("npy", TABLE, NPY, npy(rows(3))),
        Body("v2 json", INFER, JSON, infer),
        binary(3),
        Body("v2 gzip", INFER, JSON, gzip.compress(infer), {"Content-Encoding": "gzip"}),
        Body("v2 deflate", INFER, JSON, zlib.compress(infer), {"Content-Encoding": "deflate"}),
        Body("plan", "/v1/plans", JSON, json.dumps(plan).encode()),
    )


def coded(table: pa.Table) -> pa.Table:
    """The same with dictionaries for its texts."""
    for index, name in enumerate(table.schema.names):
        if pa.types.is_string(table.schema.field(name).type):
            table = table.set_column(index, name, table[name].dictionary_encode())
    return table


def one_text(size: int, count: int, chunk: int | None = None) -> bytes:
    """`count` cells that are all one text of `size` bytes."""
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, "i4")), pa.array(["a" * size]))
    return stream(with_column(count, "education", column), chunk)


def with_column(count: int, name: str, column: Any) -> pa.Table:
    """A table of nulls with one column that is none."""
    names = list(records(1)[0])
    return pa.table({each: column if each == name else pa.nulls(count) for each in names})


def growing(size: int, times: int) -> bytes:
    """A dictionary to which is added again and again, and which each batch has whole."""
    texts = [f"{number:0{size}d}" for number in range(times)]
    sink = io.BytesIO()
    names = list(records(1)[0])
    kinds = {name: pa.dictionary(pa.int32(), pa.string()) if name == "education" else pa.null() for name in names}
    options = ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    with ipc.new_stream(sink, pa.schema(kinds.items()), options=options) as writer:
        for end in range(1, times + 1):
            column = pa.DictionaryArray.from_arrays(pa.array([end - 1], pa.int32()), pa.array(texts[:end]))
            cells = [column if name == "education" else pa.nulls(1) for name in names]
            writer.write_batch(pa.record_batch(cells, names=names))
    return sink.getvalue()


def filled(begin: bytes, unit: bytes, end: bytes, size: int = MOST) -> bytes:
    """As many units as fit, the last without its comma."""
    return begin + (unit * ((size - len(begin) - len(end)) // len(unit)))[:-1] + end


def later(name: str, path: str, kind: str, make: Callable[[], bytes], **headers: str) -> Callable[[], Body]:
    """A body that is made when it is wanted: all of them together would take a gigabyte here."""
    return lambda: Body(name, path, kind, make(), headers)


def hostile() -> Iterator[Callable[[], Body]]:
    """Bodies within the bound of a body that would take gigabytes, or minutes, if they were believed."""
    begin, end = b'{"model": "adult", "records": [', b"]}"
    inputs = b'{"inputs": [{"name": "age", "data": ['
    tables: dict[str, Callable[[], bytes]] = {
        "one text of 15 MB": lambda: one_text(15_000_000, 20_000),
        "one text of 9.8 MB": lambda: one_text(9_800_000, 20_000),
        "one text in a thousand batches": lambda: one_text(9_000_000, 20_000, 20),
        "batches of one": lambda: one_text(10, 20_000, 1),
        "long texts": lambda: stream(with_column(20_000, "education", pa.array(["b" * 700] * 20_000))),
        "growing dictionary": lambda: growing(4000, 900),
        "many texts": lambda: stream(with_column(1, "education", dictionary_of(1_000_000))),
    }
    for name, make in tables.items():
        yield later(name, TABLE, STREAM, make)
    yield later("wide npy", TABLE, NPY, lambda: npy(np.zeros(3, [(name, "U90000") for name in records(1)[0]])))
    units = {
        "numbers": b"0.1,", "texts": b'"ab",', "objects": b'{"":0},', "empty objects": b"{},", "lists": b"[],",
        "texts of braces": b'"{{{{{{",',
    }  # fmt: skip
    for name, unit in units.items():
        yield later(f"json {name}", "/predict", JSON, partial(filled, begin, unit, end))
        yield later(f"explain {name}", "/explain", JSON, partial(filled, begin, unit, end))
        yield later(f"v2 {name}", INFER, JSON, partial(filled, inputs, unit, b"]}]}"))
    texts: dict[str, Callable[[], bytes]] = {
        "json keys": lambda: begin[:-1] + b"[{%s}]}" % b",".join(b'"%x": []' % number for number in range(1_000_000)),
        "json digits": lambda: begin + b'{"age": ' + b"9" * 15_000_000 + b"}" + end,
        "json one text": lambda: begin + b'{"age": "' + "é".encode() * 7_000_000 + b'"}' + end,
        "json wide text": lambda: begin + b'{"age": "' + b"a" * 15_000_000 + "🦉".encode() + b'"}' + end,
        "json unclosed": lambda: b"{" * 30_000 + b'"' + b'\\"' * 7_000_000,
    }
    for name, make in texts.items():
        yield later(name, "/predict", JSON, make)
    for depth, (mark, close) in product((40, 900, 1000, 1_000_000), ((b"[", b"]"), (b'{"a":', b"}"))):
        nested, name = mark * depth + b"1" + close * depth, f"{depth} {mark.decode()} deep"
        yield later(f"json {name}", "/predict", JSON, partial(bytes, begin + nested + end))
        yield later(f"explain {name}", "/explain", JSON, partial(bytes, begin + nested + end))
        yield later(f"v2 {name}", INFER, JSON, partial(bytes, b'{"inputs": [' + nested + b"]}"))
        yield later(f"plan {name}", "/v1/plans", JSON, partial(bytes, nested[: 1 << 20]))
    for encoding, pack in (("gzip", gzip.compress), ("deflate", zlib.compress)):
        for size in (MOST, 100 << 20):
            make = partial(packed, pack, size)
            yield later(f"{encoding} of {size}", INFER, JSON, make, **{"Content-Encoding": encoding})


def packed(pack: Callable[[bytes], bytes], size: int) -> bytes:
    """So many spaces, packed."""
    return pack(b" " * size)


def dictionary_of(count: int) -> pa.DictionaryArray:
    """One cell, and as many texts that it might have been."""
    texts = pa.array(np.char.mod("%x", np.arange(count)).tolist())
    return pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), texts)
