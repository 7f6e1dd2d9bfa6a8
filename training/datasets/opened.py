"""What `--data` names, as something that can be read: a file, a folder, a pattern, what an object store has, or what a
database answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from accountant.home import Home
from dpserve_verify.errors import InputError
from training.datasets.described import read_schema
from training.rows.sources import remote, sql
from training.rows.sources.catalogs import Catalog
from training.rows.sources.selects import RowSelect, read_select, require_answer
from training.rows.tables import duck


@dataclass(frozen=True)
class RowSource:
    """Where rows come from, as the steward says it. `query`, `table`: of a database, what is read of it; `reason`: why
    each row that is answered is about one unit alone, where nothing shows it.
    """

    data: str
    query: str | None = None
    table: str | None = None
    reason: str | None = None

    @property
    def stated(self) -> str | None:
        """Return the query whose digest the ledger entry states; None for files, and for a table without a reason."""
        if self.query is not None or self.reason is None:
            return self.query
        return f'select * from "{self.table}"'


@contextmanager
def rows_at(home: Home, source: RowSource, schema: Path, unit: str | None) -> Iterator[tuple[Path, str | None]]:
    """Open the rows' place while they are read, and say where they came from, where that is another. `unit`: the column
    that names it, "record" or None. InputError where a query is given without a database, or needs a reason that was
    not given.
    """
    data, query, table = source.data, source.query, source.table
    if not data.strip():
        raise InputError("data: is blank; name a file, a folder, a pattern or a URL")
    if (query, table) == (None, None) and source.reason is not None:
        raise InputError("query-reason: goes with --query or --table")
    if duck.is_duckdb(data):
        check = _judge(source, "duckdb", unit)
        with duck.run_query(data, query, table, read_schema(schema).form, home.datasets, check) as path:
            yield path, data
    elif remote.is_remote(data) and (query, table) == (None, None):
        with remote.fetch_rows(data, home.datasets) as path:
            yield path, data
    elif sql.is_url(data) and not remote.is_remote(data):
        declared, shown = read_schema(schema), sql.shown_url(data)
        check = _judge(source, sql.dialect_of(data), unit)
        with sql.spool_query(
            data, query, table, declared.form, home.datasets, check=check, ignores=declared.ignores
        ) as path:
            yield path, shown
    elif (query, table) != (None, None):
        raise InputError("query, table: go with --data postgresql://... or another database's URL, or duckdb:FILES")
    else:
        yield Path(data), None


def _judge(source: RowSource, dialect: str, unit: str | None) -> partial[None]:
    """Judge what is read by its text; what is left is looked up in the database once it is open."""
    if source.query is not None:
        select = read_select(source.query, dialect, unit)
    else:
        parts = (source.table or "").rpartition(".") if dialect != "duckdb" else ((source.table or "").split("."))
        select = RowSelect(tuple((part, True) for part in parts if part not in ("", ".")), frozenset(), ())
    require_answer(select.doubts, source.reason)  # before anything is fetched
    return partial(_check_names, select, source.reason)


def _check_names(select: RowSelect, reason: str | None, catalog: Catalog) -> None:
    """Ask the steward where a name is that of a view, or of a function that somebody made; InputError."""
    doubts = []
    if select.table and not catalog.is_plain(select.table):
        name = ".".join(part for part, _ in select.table)
        doubts.append(f"{name[:60]!r} is no plain table: a view or a function of tables is a query in itself")
    doubts += [f"the function {name[:60]!r} was made in this database" for name in catalog.made(sorted(select.words))]
    require_answer(tuple(doubts), reason)
