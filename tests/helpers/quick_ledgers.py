"""What tests would do anew for each of their thousands of databases is done once for each kind.

The first empty database of a process gets its tables by Alembic, the others by the statements that Alembic sent to it;
what SQLAlchemy compiled for one serves the others. Half of what a new home costs is neither of them.
Tests of the tables themselves (`tests/accountant/store`) do without, and one of them compares what comes of it.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.util import LRUCache

from accountant.store import engines, migrations

TABLES = {
    "sqlite": "SELECT count(*) FROM sqlite_master",
    "postgresql": "SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()",
}
ASKING = ("SELECT", "PRAGMA", "BEGIN")
by_alembic, engine_alone, HEAD = migrations.upgrade, engines.open_engine, migrations.HEAD
sent: dict[str, list[str]] = {}
on = True


class Shared(LRUCache[tuple[Hashable, ...], Any]):
    """Compiled statements by the kind of database instead of by the very one."""

    __slots__ = ()

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get((key[0].name, *key[1:]), default)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__((key[0].name, *key[1:]), value)


COMPILED = Shared(2000)


def upgrade(connection: Connection, to: str | None = None) -> None:
    kind, to = connection.dialect.name, to or migrations.HEAD
    if not on or to != HEAD or connection.exec_driver_sql(TABLES[kind]).scalar():
        by_alembic(connection, to)
    elif kind in sent:
        alone = sent[kind] if kind == "sqlite" else [";\n".join(sent[kind])]  # PostgreSQL takes many at once
        for statement in alone:
            connection.exec_driver_sql(statement)
    else:
        noted: list[str] = []

        def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: bool) -> None:
            if not statement.lstrip().startswith(ASKING):
                assert not parameters
                noted.append(statement)

        event.listen(connection, "before_cursor_execute", note)
        by_alembic(connection)
        event.remove(connection, "before_cursor_execute", note)
        sent[kind] = noted


def open_engine(url: str) -> Engine:
    engine = engine_alone(url)
    if on:
        engine._compiled_cache = COMPILED
    return engine


def install() -> None:
    migrations.upgrade, engines.open_engine = upgrade, open_engine
