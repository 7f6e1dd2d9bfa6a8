"""A file of records that was sent to a server, by the reader that registration and `dpserve predict` use, as an Arrow
stream on standard output: a program of its own, run in isolation, for whoever sends a file decides what its bytes stand
for. It takes a limit on memory, time and files before it reads one.

Arguments: the file, and as JSON the features, how it is written (`models.features.table_format`), a column that is to
be kept, or "", and how many rows and bytes of Arrow there may be. Of "" in place of a file, the bytes on standard input
are Parquet, whose columns are told as they stand, and read behind the seal. It ends with 0, or with REFUSED and
{"large": ...} or {"bad": ...} as JSON on standard error.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # for it is run alone

import json
from collections.abc import Iterator
from itertools import chain
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from accountant.system.confined import Bounds, confine
from accountant.system.lazy_import import later
from accountant.system.seal import seal
from dpserve_verify.errors import DpserveError, TooMuch
from models.features.features import feature_from_json
from models.features.table_format import format_from_json
from training.rows.sources.text_bytes import PACKED
from training.rows.sources.typed_tables import open_parquet

row_files = later("training.rows.tables.row_files")  # heavy, and of no use to Parquet
quotes = later("training.rows.kernels.quotes")
REFUSED = 3
ROOM = 384 << 20  # bytes of address space beside what the program takes by itself
SECONDS = 5  # of a processor


def refuse(kind: str, problem: str) -> NoReturn:
    """Print why, as JSON to stderr, and exit with REFUSED."""
    print(json.dumps({kind: problem}), file=sys.stderr)
    sys.exit(REFUSED)


def main() -> None:
    """Read one file."""
    path, asked = sys.argv[1], json.loads(sys.argv[2])
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    if path and may_hold_quotes(Path(path)):
        # What follows them may have to be compiled, which takes more than a file may, and writes.
        quotes.follow(np.frombuffer(b"", np.uint8), ord(","), np.zeros(7, np.int64))
    confine(Bounds(ROOM, SECONDS, writes=False))
    try:
        stream = write_stream(read_records(Path(path), asked) if path else read_parquet(asked), asked)
    except (MemoryError, TooMuch):  # Arrow's own is one
        refuse("large", "takes more to read than there is room for")
    except DpserveError as error:
        refuse("bad", error.message)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        refuse("bad", f"cannot be read ({type(error).__name__}); write it anew")
    sys.stdout.buffer.write(stream)
    sys.stdout.buffer.flush()


def may_hold_quotes(path: Path) -> bool:
    """Return whether there is a quote among the bytes, or they are packed."""
    return path.suffix in PACKED or b'"' in path.read_bytes()


def write_stream(batches: Iterator[pa.RecordBatch], asked: dict[str, Any]) -> pa.Buffer:
    """Write batches, at least one, as a stream, and count rows and bytes as they come: a footer may lie."""
    rows, used, sink, first = 0, 0, pa.BufferOutputStream(), next(batches)
    with ipc.new_stream(sink, first.schema) as writer:
        for batch in chain([first], batches):
            rows, used = rows + batch.num_rows, used + batch.nbytes
            if rows > asked["rows"] or used > asked["bytes"]:
                limits = f"{asked['rows']} records, or {asked['bytes']} bytes"
                refuse("large", f"has more than {limits}; send fewer at a time")
            writer.write_batch(batch)
    stream: pa.Buffer = sink.getvalue()
    return stream


def read_parquet(asked: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    """Read the columns of these features as they stand, texts without codes, and behind them the one that is kept."""
    raw = sys.stdin.buffer.read()
    try:
        if sys.platform == "linux":
            seal(1 << 40, SECONDS + 1)
    except OSError as error:
        refuse("bad", f"is not read here: this system cannot seal a process ({error})")
    table = open_parquet(raw)
    if table.most_rows() > asked["rows"]:
        refuse("large", f"has {table.most_rows()} records; at most {asked['rows']} a request")
    types, own = table.types(), [name for name, _ in table.own]
    names = [*(feature["name"] for feature in asked["features"]), *filter(None, [asked["keep"]])]
    kinds = []
    for name in names:
        if name not in types or own.count(name) > 1:
            problem = (
                "stands there twice" if name in types else "is missing; a column of nulls says that it is not known"
            )
            refuse("bad", f"{name[:80]}: {problem}")
        kind: Any = types[name]
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        if pa.types.is_nested(plain) or pa.types.is_binary(plain) or pa.types.is_large_binary(plain):
            wanted = "must be numbers, text, booleans, dates or times"
            refuse("bad", f"{name[:80]}: is a column of {str(kind)[:60]}; {wanted}")
        kinds.append(pa.string() if pa.types.is_string_view(plain) else plain)
    schema = pa.schema([*zip(names, kinds, strict=True)])
    yield pa.RecordBatch.from_arrays([pa.array([], kind) for kind in kinds], schema=schema)
    for batch in table.batches(names, {}):
        columns = [column.cast(kind) for column, kind in zip(batch.columns, kinds, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def read_records(path: Path, asked: dict[str, Any]) -> Iterator[pa.RecordBatch]:
    """Read the batches of a file, at least one; the last column, without a name, is the one that is kept."""
    features = [feature_from_json(body) for body in asked["features"]]
    form = format_from_json(asked["format"])
    kept = row_files.KeptColumns(path, [asked["keep"]], form) if asked["keep"] else None
    names = [*(feature.name for feature in features), *([""] if kept else [])]
    none = {feature.name: np.empty(0) for feature in features}
    for columns in chain(row_files.read_columns(path, features, form), [none]):
        arrays = [row_files.as_arrow(feature, columns[feature.name]) for feature in features]
        if kept:
            arrays += [column.combine_chunks() for column in kept.take(len(arrays[0]))]
        yield pa.record_batch(arrays, names=names)


if __name__ == "__main__":
    main()
