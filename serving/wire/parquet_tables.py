"""Records as a Parquet file. It is unpacked by a program of its own (`training.rows.sources.unpacked`), with a limit
on its memory, whose answer is read as any Arrow body is.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from accountant.system.seal import NO_THREADS
from dpserve_verify.errors import InputError
from models.features.features import Feature
from models.features.table_format import TableFormat
from serving.wire.bounds import TEXT_BYTES
from serving.wire.errors import TakesTooLong, TooLarge
from serving.wire.tables_in import Table, arrow_columns
from serving.wire.work_time import WORK_SECONDS, seconds_left

PARQUET = b"application/vnd.apache.parquet"
# Never imported: it runs alone, and what it loads is heavy.
PROGRAM = Path(__file__).parents[2] / "training" / "rows" / "sources" / "unpacked.py"
MARK, REFUSED = b"PAR1", 3
# One heap and one thread; nothing of the server's own variables, which may hold secrets.
VARIABLES = {**NO_THREADS, "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}


def is_parquet(raw: bytes) -> bool:
    """Return whether a body is Parquet, by its first bytes."""
    return raw.startswith(MARK)


def table_of(
    raw: bytes, features: Sequence[Feature], limit: int, written: TableFormat, keep: str = ""
) -> tuple[Table, list[str]]:
    """Return the features' columns, and the texts of the one that is to be kept, if any, as `as_arrow` unpacks them."""
    stream = as_arrow(raw, [feature.name for feature in features], limit)
    table = Table("arrow", arrow_columns(stream, features, limit), written)
    if not keep:
        return table, []
    return table, Table("arrow", arrow_columns(as_arrow(raw, [keep], limit), (), limit, True), written).kept(keep)


def as_arrow(raw: bytes, names: Sequence[str], limit: int) -> bytes:
    """Return the columns called so as an uncompressed Arrow stream; other columns are not read. Blocks, for a fraction
    of a second.

    InputError: no Parquet file, spoilt, nested, or without a column; TooLarge: more than `limit` records, or more than
    TEXT_BYTES unpacked, as its footer says or as it turns out; TakesTooLong.
    """
    arguments = [json.dumps(list(names)), str(limit), str(TEXT_BYTES)]
    try:
        done = subprocess.run(
            [sys.executable, "-I", str(PROGRAM), *arguments],
            input=raw, capture_output=True, timeout=seconds_left(), env=VARIABLES, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise TakesTooLong(
            f"body: Parquet was not unpacked within {WORK_SECONDS:g} seconds; send it once more, or fewer records"
        ) from None
    if done.returncode == 0:
        return done.stdout
    if done.returncode != REFUSED:  # ended by a limit, or by its decoder
        raise TooLarge("body: Parquet that takes too much to unpack, or harms who does", limit=TEXT_BYTES)
    problem = json.loads(done.stderr.splitlines()[-1])
    if "large" in problem:
        raise TooLarge(f"body: Parquet {problem['large']}", limit=limit)
    raise InputError(f"body: Parquet {problem['bad']}")
