"""A file of records that was sent to a server, by the reader that registration and `dpserve predict` use, as Arrow
streams on standard output: a program of its own, run in
isolation, for whoever sends a file decides what its bytes stand for.

Arguments: the file, and as JSON the features, how it is written (`models.features.table_format`), a column that is to
be kept, or "", and how many rows and bytes of Arrow there may be. A stream of the features and one of what is kept,
each after its length; it ends with 0, or with REFUSED and {"large": ...} or {"bad": ...} as JSON on standard error.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # for it is run alone

import json

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
    features = [feature_from_json(body) for body in asked["features"]]
    form = format_from_json(asked["format"])
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    confine(Bounds(ROOM, SECONDS, writes=False))
    rows = used = 0
    batches: list[pa.RecordBatch] = []
    try:
        for columns in read_columns(path, features, form):
            arrays = [as_arrow(feature, columns[feature.name]) for feature in features]
            batch = pa.record_batch(arrays, names=[feature.name for feature in features])
            rows, used = rows + batch.num_rows, used + batch.nbytes
            if rows > asked["rows"] or used > asked["bytes"]:
                refuse(
                    "large", f"has more than {asked['rows']} records, or {asked['bytes']} bytes; send fewer at a time"
                )
            batches.append(batch)
        if not rows:
            refuse("bad", "has no record")
        streams = [pa.Table.from_batches(batches)]
        if asked["keep"]:
            (kept,) = KeptColumns(path, [asked["keep"]], form).take(rows)
            streams.append(pa.table({asked["keep"]: kept}))
    except (MemoryError, TooMuch):
        refuse("large", "takes more to read than there is room for")
    except DpserveError as error:
        refuse("bad", error.message)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        refuse("bad", f"cannot be read ({type(error).__name__})")
    for table in streams:
        sink = pa.BufferOutputStream()
        with ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        body = sink.getvalue()
        sys.stdout.buffer.write(body.size.to_bytes(8) + body)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
