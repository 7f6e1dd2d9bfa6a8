"""A Parquet file from standard input as an Arrow stream on standard output: a program of its own, run in isolation, for
whoever sends a file decides what its bytes stand for. It takes a limit on memory, time and files before it reads one.

Arguments: the columns (JSON), and how many rows, and bytes of what is unpacked, it may have. It ends with 0; or with
REFUSED and {"large": ...} or {"bad": ...} as JSON on standard error.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pyarrow.compute  # what a cast would load behind the seal
import pyarrow.parquet as pq
from pyarrow import ipc

sys.path.insert(0, str(Path(__file__).parents[3]))  # for it is run alone

from accountant.system.confined import Bounds, confine
from accountant.system.seal import seal
from dpserve_verify.errors import TooMuch

REFUSED = 3
ROOM = 384 << 20  # bytes of address space beside what the program takes by itself
SECONDS = 5  # of a processor
MARK = b"PAR1"
FOOTER, GROUPS, COLUMNS = 4 << 20, 1000, 10_000
BATCH = 1000  # rows at a time
PLAIN = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean, pa.types.is_string,
         pa.types.is_large_string, pa.types.is_string_view, pa.types.is_date, pa.types.is_timestamp, pa.types.is_time,
         pa.types.is_null)  # fmt: skip


def refuse(kind: str, problem: str) -> NoReturn:
    """Print why, as JSON to stderr, and exit with REFUSED."""
    print(json.dumps({kind: problem}), file=sys.stderr)
    sys.exit(REFUSED)


def open_parquet(raw: bytes) -> pq.ParquetFile:
    """Open a file by its footer; nothing else is read."""
    size = int.from_bytes(raw[-8:-4], "little")
    if len(raw) < 12 or raw[:4] != MARK or raw[-4:] != MARK or size > len(raw) - 12:
        refuse("bad", "does not begin and end as Parquet does, or is cut; an encrypted file is not taken")
    if size > FOOTER:
        refuse("large", f"its footer has {size} bytes; at most {FOOTER}")
    return pq.ParquetFile(
        pa.BufferReader(raw), pre_buffer=False, page_checksum_verification=True,
        thrift_string_size_limit=FOOTER, thrift_container_size_limit=GROUPS + COLUMNS,
    )  # fmt: skip


def check_footer(file: pq.ParquetFile, names: list[str], rows: int, size: int) -> None:
    """Check the footer, before anything is unpacked: rows, groups, columns, their types and sizes."""
    footer, schema = file.metadata, file.schema_arrow
    if footer.num_rows > rows:
        refuse("large", f"has {footer.num_rows} records; at most {rows} a request")
    if footer.num_row_groups > GROUPS or footer.num_columns > COLUMNS:
        size_found = f"{footer.num_row_groups} row groups and {footer.num_columns} columns"
        refuse("large", f"has {size_found}; at most {GROUPS} and {COLUMNS}")
    groups = [footer.row_group(at) for at in range(footer.num_row_groups)]
    counts = [group.num_rows for group in groups]
    if min(counts, default=0) < 0 or sum(counts) != footer.num_rows:
        refuse("bad", "its row groups have other numbers of records than the file")
    for name in names:
        places = schema.get_all_field_indices(name)
        if len(places) != 1:
            problem = "stands there twice" if places else "is missing; a column of nulls says that it is not known"
            refuse("bad", f"{name[:80]}: {problem}")
        kind = schema.field(places[0]).type
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not any(fits(plain) for fits in PLAIN):
            wanted = "must be numbers, text, booleans, dates or times"
            refuse("bad", f"{name[:80]}: is a column of {str(kind)[:60]}; {wanted}")
    columns_wanted, claimed = set(names), 0
    for group in groups:
        for at in range(group.num_columns):
            chunk = group.column(at)
            if chunk.file_path:
                refuse("bad", "its columns stand in other files")
            if chunk.path_in_schema in columns_wanted:
                claimed += max(0, chunk.total_uncompressed_size)
    if claimed > size:
        refuse("large", f"unpacks to {claimed} bytes; at most {size} a request")


def unpack(file: pq.ParquetFile, names: list[str], size: int) -> pa.Buffer:
    """Read these columns into an Arrow stream, and count rows and bytes as they come: a footer may lie."""
    count, used, batches = 0, 0, []
    for batch in file.iter_batches(BATCH, columns=names, use_threads=False):
        if sorted(batch.schema.names) != sorted(names):
            refuse("bad", "has nested columns called as the model's are")
        count, used = count + batch.num_rows, used + batch.nbytes
        if count > file.metadata.num_rows or used > size:
            refuse("large", f"unpacks to more than it says, or to more than {size} bytes")
        batches.append(batch)
    if count != file.metadata.num_rows:
        refuse("bad", f"says that it has {file.metadata.num_rows} records, and holds {count}")
    schema = batches[0].schema if batches else pa.schema([file.schema_arrow.field(name) for name in names])
    kinds = [field.type.value_type if pa.types.is_dictionary(field.type) else field.type for field in schema]
    kinds = [pa.string() if pa.types.is_string_view(kind) else kind for kind in kinds]
    plain = pa.schema(list(zip(schema.names, kinds, strict=True)))
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, plain) as writer:
        for batch in batches:
            writer.write_table(pa.Table.from_batches([batch]).cast(plain))
    body: pa.Buffer = sink.getvalue()
    return body


def main() -> None:
    """Unpack one file."""
    names, rows, size = json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    confine(Bounds(ROOM, SECONDS, writes=False))
    try:
        if sys.platform == "linux":
            seal(1 << 40, SECONDS + 1)
    except OSError as error:
        refuse("bad", f"is not read here: this system cannot seal a process ({error})")
    try:
        file = open_parquet(sys.stdin.buffer.read())
        check_footer(file, names, rows, size)
        stream = unpack(file, names, size)
    except (MemoryError, TooMuch):  # Arrow's own is one
        refuse("large", "unpacks to more than there is room for")
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        refuse("bad", f"is not Parquet that can be read ({type(error).__name__})")
    sys.stdout.buffer.write(stream)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
