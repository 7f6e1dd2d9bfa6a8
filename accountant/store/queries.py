"""What is asked of a database together, and when: at once, later, or not twice (`postgres_batches`). In a snapshot that
is shared (`Store.sharing`) whatever the database: what was read for many things in one statement answers for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

from sqlalchemy import Connection, Executable

Queries: TypeAlias = Sequence[tuple[Executable, Mapping[str, Any]]]  # statements and their values
LATER, AHEAD = {"dpserve_later": True}, {"dpserve_ahead": True}  # options: send it with the next; remember its answer
AT_HAND = "dpserve_at_hand"  # option of a connection: rows of its snapshot, by statement and values
MEMORY: ContextVar[dict[str, Any] | None] = ContextVar("MEMORY", default=None)  # answers, by their questions


@contextmanager
def remembering() -> Iterator[None]:
    """Remember what a distant server answers this thread in the block; transactions that write ask it again."""
    token = MEMORY.set({})
    try:
        yield
    finally:
        MEMORY.reset(token)


def remember_rows(connection: Connection) -> None:
    """Remember from now on what `rows_of` this connection, in whose transaction nobody writes."""
    connection.execution_options(**{AT_HAND: {}})


def at_hand(connection: Connection) -> dict[Any, Sequence[Any]] | None:
    """Return the rows that are remembered, by statement and values; None where none are."""
    known: dict[Any, Sequence[Any]] | None = connection.get_execution_options().get(AT_HAND)
    return known


def key_of(statement: Executable, values: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return by what the rows of a statement are remembered."""
    return statement, *(tuple(value) if isinstance(value, list) else value for value in values.values())


def rows_of(connection: Connection, statement: Executable, values: Mapping[str, Any]) -> Sequence[Any]:
    """Return the rows of a statement that is built once; where they are remembered, it is not asked again."""
    known = at_hand(connection)
    if known is None:
        return connection.execute(statement, values).all()
    key = key_of(statement, values)
    if key not in known:
        known[key] = connection.execute(statement, values).all()
    return known[key]
