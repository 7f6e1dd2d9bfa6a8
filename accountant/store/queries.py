"""What is asked of a database together, and when: at once, later, or not twice (`postgres_batches`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

from sqlalchemy import Executable

Queries: TypeAlias = Sequence[tuple[Executable, Mapping[str, Any]]]  # statements and their values
LATER, AHEAD = {"dpserve_later": True}, {"dpserve_ahead": True}  # options: send it with the next; remember its answer
MEMORY: ContextVar[dict[str, Any] | None] = ContextVar("MEMORY", default=None)  # answers, by their questions


@contextmanager
def remembering() -> Iterator[None]:
    """Remember what a distant server answers this thread in the block; transactions that write ask it again."""
    token = MEMORY.set({})
    try:
        yield
    finally:
        MEMORY.reset(token)
