"""A file of records that was sent to a server, by the reader that registration and `dpserve predict` use, as an Arrow
stream on standard output: a program of its own, run in isolation, for whoever sends a file decides what its bytes stand
for.

Arguments: the file, and as JSON the features, how it is written (`models.features.table_format`), a column that is to
be kept, or "", and how many rows and bytes of Arrow there may be. It ends with 0, or with REFUSED and {"large": ...} or
{"bad": ...} as JSON on standard error.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # for it is run alone

import json
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from accountant.system.confined import Bounds, confine
from dpserve_verify.errors import DpserveError, TooMuch
from models.features.features import feature_from_json
from models.features.table_format import format_from_json
from training.rows.sources.unpacked import REFUSED, ROOM, SECONDS, refuse
from training.rows.tables.row_files import KeptColumns, as_arrow, read_columns

__all__ = ["REFUSED"]


def main() -> None:
    """Read one file."""
    path, asked = Path(sys.argv[1]), json.loads(sys.argv[2])
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    confine(Bounds(ROOM, SECONDS, writes=False))
    try:
        batches = read_all(path, asked)
    except (MemoryError, TooMuch):  # Arrow's own is one
        refuse("large", "takes more to read than there is room for")
    except DpserveError as error:
        refuse("bad", error.message)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        refuse("bad", f"cannot be read ({type(error).__name__})")
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    sys.stdout.buffer.write(sink.getvalue())
    sys.stdout.buffer.flush()


def read_all(path: Path, asked: dict[str, Any]) -> list[pa.RecordBatch]:
    """Read the batches of a file, at least one; the last column, without a name, is the one that is kept."""
    features = [feature_from_json(body) for body in asked["features"]]
    form = format_from_json(asked["format"])
    kept = KeptColumns(path, [asked["keep"]], form) if asked["keep"] else None
    names = [*(feature.name for feature in features), *([""] if kept else [])]
    rows, used, batches = 0, 0, list[pa.RecordBatch]()
    none = {feature.name: np.empty(0) for feature in features}
    for columns in chain(read_columns(path, features, form), [none]):
        arrays = [as_arrow(feature, columns[feature.name]) for feature in features]
        if kept:
            arrays += [column.combine_chunks() for column in kept.take(len(arrays[0]))]
        batches.append(pa.record_batch(arrays, names=names))
        rows, used = rows + batches[-1].num_rows, used + batches[-1].nbytes
        if rows > asked["rows"] or used > asked["bytes"]:
            refuse("large", f"has more than {asked['rows']} records, or {asked['bytes']} bytes; send fewer at a time")
    return batches


if __name__ == "__main__":
    main()
