"""What `--data` names, as something that can be read: a file, a folder, a pattern, what an object store has, or what a
database answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from accountant.errors import InputError
from accountant.home import Home
from training.rows.sources import duck, remote, sql
from training.rows.sources.described import read_schema


@contextmanager
def rows_at(
    home: Home, data: str, query: str | None, table: str | None, schema: Path
) -> Iterator[tuple[Path, str | None]]:
    """The rows' place while they are read, and where they came from, where that is another. InputError where a query is
    given without a database.
    """
    if not data.strip():
        raise InputError("data: is blank; name a file, a folder, a pattern or a URL")
    if duck.is_duckdb(data):
        with duck.answered(data, query, table, read_schema(schema).form, home.datasets) as path:
            yield path, data
    elif remote.is_remote(data) and (query, table) == (None, None):
        with remote.fetched(data, home.datasets) as path:
            yield path, data
    elif sql.is_url(data) and not remote.is_remote(data):
        form = read_schema(schema).form
        with sql.spooled(data, query, table, form, home.datasets) as path:
            yield path, sql.shown(data)
    elif (query, table) != (None, None):
        raise InputError("query, table: go with --data postgresql://... or another database's URL, or duckdb:FILES")
    else:
        yield Path(data), None
