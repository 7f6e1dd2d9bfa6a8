"""What DuckDB answers about files, or from a database of its own, read once: as a file beside the packed rows, which is
deleted when they are packed. It is given what was named and nothing else: no other file, no network, no extension that
is not part of it, and it writes nowhere.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import dataset, ipc

from accountant.errors import DataError
from accountant.system.machine import processors
from dpserve_verify.errors import InputError, LedgerUnavailable
from models.features.column_law import NULLS
from models.features.written import Form
from training.rows.packed.working import working_folder
from training.rows.sources import remote
from training.rows.sources.catalogs import Check, DuckCatalog, nothing
from training.rows.sources.folders import open_table
from training.rows.sources.tables import BATCH_ROWS
from training.rows.tables.data import reading

BEGINNING, ROWS = "duckdb:", "rows"  # what the files' rows are called in a query
NATIVE = (".duckdb", ".ddb", ".db")
MEMORY = "256MB"  # what it may hold before it uses the disk
FORMS = "must be like duckdb:wards.duckdb, duckdb:'visits/*.parquet' or duckdb:s3://bucket/folder"
CLOSED = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "memory_limit": MEMORY,
}


def is_duckdb(data: str) -> bool:
    """Return whether `--data` asks DuckDB."""
    return data.startswith(BEGINNING)


@contextmanager
def run_query(
    data: str, query: str | None, name: str | None, form: Form, folder: Path, check: Check = nothing
) -> Iterator[Path]:
    """Write what `query` answers, or the whole table `name`, to a file, while it is needed. `form`: how a .csv is
    written. `check` looks at the database before anything is read of it.

    InputError where nothing says what to read, it is no select, or DuckDB is not installed; DataError where a file
    cannot be read, or DuckDB refuses.
    """
    place = data.removeprefix(BEGINNING)
    place = place.removeprefix("///") if place.startswith("///") else place  # as SQLAlchemy's URLs are
    if (query is None) == (name is None):
        raise InputError(f"data: of DuckDB, say either --query or --table; the rows of files are its table {ROWS}")
    if not place:
        raise InputError(f"data={data}: {FORMS}")
    if remote.is_remote(place):
        with remote.fetch_rows(place, folder) as fetched:
            yield from _run_query(data, fetched, query, name, form, folder, check)
    else:
        yield from _run_query(data, Path(place), query, name, form, folder, check)


def _run_query(
    data: str, source: Path, query: str | None, name: str | None, form: Form, folder: Path, check: Check
) -> Iterator[Path]:
    duckdb, native = _driver(), source.suffix.lower() in NATIVE
    if native and not source.is_file():
        raise DataError(f"data={data}: no such file")
    quoted = ".".join('"' + part.replace('"', '""') + '"' for part in (name or "").split("."))
    statement = f"select * from {quoted}" if query is None else query
    folder.mkdir(mode=0o700, exist_ok=True)
    with working_folder(folder) as place:
        settings = {**CLOSED, "threads": str(processors()), "temp_directory": str(place / "spilt")}
        path = place / "query.arrow"
        try:
            with duckdb.connect(str(source) if native else ":memory:", read_only=native, config=settings) as connection:
                if not native:
                    with reading(source):
                        connection.register(ROWS, _dataset(source, form, place / "rows.arrow"))
                connection.execute("set lock_configuration = true")
                check(DuckCatalog(connection, native))
                _copy(duckdb, connection, statement, path)
        except (duckdb.Error, pa.ArrowException) as error:
            raise DataError(f"data={data}: {_kind(duckdb, error)}. Nothing was registered") from None
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            raise LedgerUnavailable(
                f"disk: no room for what DuckDB answers where the home's datasets lie ({error.strerror}). Nothing was "
                "registered"
            ) from None
        yield path


def _copy(duckdb: ModuleType, connection: Any, query: str, path: Path) -> None:
    statements = connection.extract_statements(query)
    if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
        raise InputError("query: must be one select")
    reader = connection.sql(statements[0]).to_arrow_reader(BATCH_ROWS)
    with reader, path.open("xb", buffering=0) as file, ipc.new_file(file, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)


def _dataset(source: Path, form: Form, place: Path) -> dataset.Dataset:
    """Return the files as DuckDB scans them, as often as a query says so: Hive partitions are texts, and so is every
    cell of a .csv, in which nothing is guessed. What it would read otherwise than a registration is written to `place`
    as that reads it. DataError where one file differs from the first.
    """
    table = open_table(source, form)
    kinds, keys = table.types(), [*table.parts[0].keys]
    schema = pa.schema([(name, kind or pa.string()) for name, kind in kinds.items()])
    if not table.is_plain:
        texts, empty = {name: pa.string() for name, kind in kinds.items() if kind is None}, pa.array(NULLS)
        plain = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in schema.types]
        schema = pa.schema([*zip(schema.names, plain, strict=True)])
        with place.open("xb", buffering=0) as file, ipc.new_file(file, schema) as writer:
            for batch in table.batches([*kinds], texts):
                columns = [
                    pc.if_else(pc.is_in(batch[name], empty), None, batch[name]) if name in texts else batch[name]
                    for name in kinds
                ]
                cast = [column.cast(kind) for column, kind in zip(columns, plain, strict=True)]
                writer.write_batch(pa.RecordBatch.from_arrays(cast, schema=schema))
        return dataset.dataset(str(place), schema, "ipc")
    parts = dataset.partitioning(pa.schema([schema.field(name) for name in keys]), flavor="hive") if keys else None
    files, root = [str(part.path) for part in table.parts], str(table.root) if keys else None
    return dataset.dataset(files, schema, table.parts[0].scanned_as, partitioning=parts, partition_base_dir=root)


def _driver() -> ModuleType:
    try:
        import duckdb  # an extra
    except ImportError:
        raise InputError("data=duckdb: it is not installed: pip install duckdb (the extra duckdb)") from None
    return duckdb


def _kind(duckdb: ModuleType, error: Exception) -> str:
    """Return DuckDB's own words where they speak of the query alone, before a row was read: others quote values."""
    kinds = (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException)
    words = f": {str(error).splitlines()[0][:200]}" if isinstance(error, kinds) else ""
    if isinstance(error, duckdb.PermissionException):
        words = ": the query reads or writes what --data does not name"
    return f"DuckDB refused ({type(error).__name__}{words})"
