"""What a database answers, read once, as a file: rows stream through a cursor on the server's side into a .csv file
beside the packed rows, which is deleted when they are packed. No message and no entry holds the URL: it may hold a
password.
"""

from __future__ import annotations

import csv
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, make_url, quoted_name, select, table, text
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from accountant.errors import DataError
from dpserve_verify.errors import InputError
from models.features.written import Form
from training.rows.packed.working import working_folder
from training.rows.sources import remote
from training.rows.sources.catalogs import Check, SqlCatalog, nothing

AT_ONCE = 4096  # rows of the cursor
FORMS = "must be like postgresql://user@host/database, sqlite:///file, or env:NAME of a variable that holds one"


def is_url(data: str) -> bool:
    """Return whether `--data` names a database, or a variable that does."""
    return "://" in data or data.startswith("env:")


def shown_url(data: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the database as it may be shown: where it is, and never who asks, nor by which password."""
    url = _parse_url(data, environment)
    return f"{url.get_backend_name()}://{url.host or ''}/{Path(url.database or '').name}"


@contextmanager
def spool_query(
    data: str,
    query: str | None,
    name: str | None,
    form: Form,
    folder: Path,
    environment: Mapping[str, str] = os.environ,
    check: Check = nothing,
    ignores: Callable[[str], bool] = lambda column: False,
) -> Iterator[Path]:
    """Write what `query` answers, or the whole table `name`, to a file, while it is needed. `check` looks at the
    database before anything is read of it. `ignores`: whether a column is ignored; its bytes and lists are left out.
    InputError where nothing says what to read, or the driver is not installed; DataError where the database refuses.
    """
    if (query is None) == (name is None):
        raise InputError("data: of a database, say either --query or --table")
    engine = _engine(_parse_url(data, environment))
    folder.mkdir(mode=0o700, exist_ok=True)
    with working_folder(folder) as place:  # held: the registration that reads it clears away what nobody holds
        path = place / "query.csv"
        try:
            with engine.connect() as connection, path.open("x", encoding=form.encoding, newline="") as file:
                connection = _read_only(connection)
                check(SqlCatalog(connection))
                _allow_reading_alone(connection)
                _copy(connection, query, name, csv.writer(file, delimiter=form.mark), ignores)
        except (SQLAlchemyError, UnicodeEncodeError) as error:
            raise DataError(f"data={shown_url(data, environment)}: {_kind(error)}") from None
        finally:
            engine.dispose()
        yield path


def _read_only(connection: Connection) -> Connection:
    if connection.dialect.name == "postgresql":
        return connection.execution_options(postgresql_readonly=True)
    if connection.dialect.name == "sqlite":
        connection.execute(text("pragma query_only = on"))
    return connection


def _allow_reading_alone(connection: Connection) -> None:
    """Let SQLite open no other file, and change no setting, from here on: `attach` and `vacuum into` begin files. The
    database itself is open for reading alone.
    """
    if connection.dialect.name == "sqlite":
        connection.connection.driver_connection.set_authorizer(_authorize)  # type: ignore[union-attr]


def _authorize(action: int, first: str | None, *_: str | None) -> int:
    opens = action in (sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH)
    sets = action == sqlite3.SQLITE_PRAGMA and first != "data_version"  # which full-text search looks at
    return sqlite3.SQLITE_DENY if opens or sets else sqlite3.SQLITE_OK


def dialect_of(data: str, environment: Mapping[str, str] = os.environ) -> str:
    """Name the kind of database, as SQLAlchemy calls it."""
    return _parse_url(data, environment).get_backend_name()


def _copy(
    connection: Connection, query: str | None, name: str | None, writer: Any, ignores: Callable[[str], bool]
) -> None:
    schema, _, plain = (name or "").rpartition(".")
    whole_table = select(text("*")).select_from(
        table(quoted_name(plain, quote=True), schema=quoted_name(schema, quote=True) if schema else None)
    )
    statement = whole_table if query is None else text(query.replace(":", r"\:"))  # a colon is no place for a value
    result = connection.execution_options(stream_results=True, yield_per=AT_ONCE).execute(statement)
    if not result.returns_rows:
        raise DataError("query: answers no rows; it must be a select")
    names = [*result.keys()]
    writer.writerow(names)
    ignored = [ignores(name) for name in names]
    for part in result.partitions():
        writer.writerows(map(_cell, row, names, ignored) for row in part)


def _cell(value: Any, name: str, is_ignored: bool) -> Any:
    """Return a cell as a .csv has it: nothing for null, dates and times as ISO texts."""
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bytes | memoryview | list | tuple | dict):
        if is_ignored:
            return None
        raise DataError(
            f"query: column {name!r} holds bytes, lists or documents; say it under `ignore` in the schema, or select a "
            "text or a number of it"
        )
    return value


def _parse_url(data: str, environment: Mapping[str, str]) -> URL:
    address = environment.get(data.removeprefix("env:"), "") if data.startswith("env:") else data
    try:
        url = make_url(address)
        url.get_dialect()
    except NoSuchModuleError:
        raise InputError(f"data={url.get_backend_name()}://: no rows come from there. Fetch the file and name that; "
                         f"a database {FORMS}; an object store {remote.FORMS}") from None  # fmt: skip
    except (ArgumentError, ValueError):
        raise InputError(f"data: names no database that can be read; {FORMS}") from None
    if url.drivername in ("postgresql", "postgres"):
        return url.set(drivername="postgresql+psycopg")
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").is_file():
        raise DataError("data: no such SQLite file")
    return url


def _engine(url: URL) -> Engine:
    name = url.get_backend_name()
    try:
        if name == "sqlite":  # never to be written to, not even its journal's mode
            file = f"file:{quote(str(Path(url.database or '').absolute()))}?mode=ro"
            return create_engine("sqlite://", creator=lambda: sqlite3.connect(file, uri=True), poolclass=NullPool)
        return create_engine(url)
    except ImportError:
        install = "pip install 'psycopg[binary]'" if name == "postgresql" else "install it beside dpserve"
        raise InputError(f"data={name}://: its driver is not installed; {install}") from None


def _kind(error: Exception) -> str:
    """Describe an error without a word of the server's message, which quotes users, hosts and values."""
    if isinstance(error, UnicodeEncodeError):
        return f"a text that {error.encoding} cannot write; say `encoding: utf-8` in the schema"
    cause = error.orig if isinstance(error, DBAPIError) else None
    state = getattr(cause, "sqlstate", None)
    return f"the database refused ({type(cause or error).__name__}{f', SQLSTATE {state}' if state else ''})"
