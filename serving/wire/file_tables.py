"""Records as a file that is sent whole, and as Parquet. They are read by a program of its own
(`training.datasets.one_file`), which reads as registration and `dpserve predict` do, with a limit on its memory, and
whose answer is read as any Arrow body is.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from accountant.system.seal import NO_THREADS
from dpserve_verify.errors import InputError
from models.features.features import Feature
from models.features.table_format import USUAL_FORMAT, TableFormat
from serving.wire.bounds import TEXT_BYTES
from serving.wire.errors import TakesTooLong, TooLarge
from serving.wire.tables_in import Table, arrow_columns
from serving.wire.work_time import WORK_SECONDS, seconds_left

FILE, PARQUET = b"application/octet-stream", b"application/vnd.apache.parquet"
# Never imported: it runs alone, and what it loads is heavy.
PROGRAM = Path(__file__).parents[2] / "training" / "datasets" / "one_file.py"
REFUSED = 3
# One heap and one thread; nothing of the server's own variables, which may hold secrets.
VARIABLES = {**NO_THREADS, "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1"}


def is_parquet(raw: bytes) -> bool:
    """Return whether a body is Parquet, by its first bytes."""
    return raw.startswith(b"PAR1")


def ending_of(name: str) -> str:
    """Return the end of a file's name, as far as it may tell of which kind the file is."""
    return "".join(re.findall(r"\.[a-z0-9]{1,12}", name.lower())[-2:]) or ".file"


def table_of_file(
    raw: bytes, ending: str, features: Sequence[Feature], form: TableFormat, limit: int, keep: str = ""
) -> tuple[Table, list[str]]:
    """Return the features' columns of a file written as `form` says, and the texts of the one that is to be kept, if
    any. `ending`: of its name; of "" the columns of Parquet come as they stand, and any refusal of a cell names its
    record. Blocks, for a second or two.

    Its bytes are only ever in memory. InputError: it cannot be read, or lacks a column; TooLarge; TakesTooLong.
    """
    stream = _read_alone(raw, ending, features, form, limit, keep)
    table = Table("arrow", arrow_columns(stream, features, limit, passes=bool(keep)), USUAL_FORMAT if ending else form)
    return table, table.kept([*table.columns][-1]) if keep else []


def _read_alone(
    raw: bytes, ending: str, features: Sequence[Feature], form: TableFormat, limit: int, keep: str
) -> bytes:
    """Return an Arrow stream of the features' columns, behind them the one that is to be kept, if any."""
    what = "the file" if ending else "Parquet"
    asked: dict[str, Any] = {"keep": keep, "rows": limit, "bytes": TEXT_BYTES}
    asked["features"] = [feature.to_json() if ending else {"name": feature.name} for feature in features]
    asked["format"] = form.to_json([feature.name for feature in features]) if ending else None
    with tempfile.TemporaryDirectory() as folder, os.fdopen(os.memfd_create("records"), "w+b") as memory:
        memory.write(raw)
        memory.seek(0)
        path = Path(folder) / f"records{ending}"
        path.symlink_to("/proc/self/fd/0")
        try:
            done = subprocess.run(
                [sys.executable, "-I", str(PROGRAM), str(path) if ending else "", json.dumps(asked)],
                stdin=memory, capture_output=True, timeout=seconds_left(), env=VARIABLES, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise TakesTooLong(
                f"body: {what} was not read within {WORK_SECONDS:g} seconds; send it once more, or fewer records"
            ) from None
    if done.returncode == 0:
        return done.stdout
    if done.returncode != REFUSED:  # ended by a limit, or by its decoder
        raise TooLarge(f"body: {what} takes too much to read, or harms who does", limit=TEXT_BYTES)
    problem = json.loads(done.stderr.splitlines()[-1])
    if "large" in problem:
        raise TooLarge(f"body: {what} {problem['large']}", limit=limit)
    raise InputError(f"body: {problem['bad']}" if ending else f"body: Parquet {problem['bad']}")
