"""What a database says of the names in a query: whether a table is a plain one, and which functions somebody made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from sqlalchemy import Connection, bindparam, text

Name: TypeAlias = Sequence[tuple[str, bool]]
"""The parts of a table's name, schema first, each with whether it stands in quotes."""

_SQLITE = text("select type, sql from sqlite_master where lower(name) = lower(:name)")
_POSTGRES = text(  # where backslashes escape in plain texts, a query is not read as the parser reads it
    "select relkind, relrowsecurity from pg_catalog.pg_class where oid = pg_catalog.to_regclass(:name) "
    "and pg_catalog.current_setting('standard_conforming_strings') = 'on'"
)
_MYSQL = text(
    "select table_type from information_schema.tables where table_name = :name "
    "and table_schema = coalesce(:of, database())"
)
_POSTGRES_MADE = text(
    "select p.proname from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace "
    "where n.nspname not in ('pg_catalog', 'information_schema') and pg_catalog.lower(p.proname) in :words"
).bindparams(bindparam("words", expanding=True))
_MYSQL_MADE = text(
    "select routine_name from information_schema.routines where lower(routine_name) in :words"
).bindparams(bindparam("words", expanding=True))


class Catalog(Protocol):
    """What is asked of a database."""

    def is_plain(self, name: Name) -> bool:
        """Return whether this surely is a table whose rows lie in it: no view, no function, no rows hidden by a
        policy.
        """

    def made(self, words: Sequence[str]) -> list[str]:
        """Find those of these small-letter words that somebody made a function or macro of."""


Check: TypeAlias = Callable[[Catalog], None]
"""Raises where rows may not be read."""


def nothing(_: Catalog) -> None:
    """Check nothing."""


class SqlCatalog:
    """Of a database behind SQLAlchemy. Of a kind that is not known here nothing is plain."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._kind = {"mariadb": "mysql"}.get(connection.dialect.name, connection.dialect.name)

    def is_plain(self, name: Name) -> bool:
        """Return whether this is a plain table, as `Catalog.is_plain` says."""
        schema, table = [part for part, _ in name[:-1]], name[-1][0]
        match self._kind:
            case "sqlite" if schema in ([], ["main"]):
                rows = self._connection.execute(_SQLITE, {"name": table}).all()
                statements = [(row.type, *(row.sql or "").split()[:2]) for row in rows]
                return statements == [("table", "CREATE", "TABLE")]  # SQLite writes these two words so itself
            case "postgresql":
                spelt = ".".join('"' + part.replace('"', '""') + '"' if quoted else part for part, quoted in name)
                rows = self._connection.execute(_POSTGRES, {"name": spelt}).all()
                return [(row.relkind in ("r", "p", b"r", b"p"), row.relrowsecurity) for row in rows] == [(True, False)]
            case "mysql" if len(schema) < 2:
                values = {"name": table, "of": schema[0] if schema else None}
                return self._connection.execute(_MYSQL, values).scalars().all() == ["BASE TABLE"]
        return False

    def made(self, words: Sequence[str]) -> list[str]:
        """Return what `Catalog.made` says; SQLite keeps no functions."""
        query = {"postgresql": _POSTGRES_MADE, "mysql": _MYSQL_MADE}.get(self._kind)
        if query is None or not words:
            return []
        return sorted({str(name) for name in self._connection.execute(query, {"words": list(words)}).scalars()})


class DuckCatalog:
    """Of a connection of DuckDB: `native`, to a database of its own; else to files, whose rows are its one table."""

    def __init__(self, connection: Any, native: bool) -> None:
        self._connection, self._native = connection, native

    def is_plain(self, name: Name) -> bool:
        """Return whether this is a plain table, as `Catalog.is_plain` says."""
        table = name[-1][0].lower()
        if not self._native:
            return len(name) == 1 and table == "rows"
        plain = self._connection.execute("select table_name from duckdb_tables() where not internal").fetchall()
        views = self._connection.execute("select view_name from duckdb_views()").fetchall()
        names = (
            [relation.lower() for (relation,) in plain],
            [relation.lower() for (relation,) in views],
        )  # a macro may be called lower
        return names[0].count(table) == 1 and table not in names[1] and len(name) <= 3

    def made(self, words: Sequence[str]) -> list[str]:
        """Return what `Catalog.made` says."""
        query = "select function_name from duckdb_functions() where not internal"
        return sorted({name for (name,) in self._connection.execute(query).fetchall() if name.lower() in words})
