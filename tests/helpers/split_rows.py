"""Rows cut into small partitions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from training.rows.partitions import threads
from training.rows.partitions.rows import Rows


@contextmanager
def partitions_of(most: int) -> Iterator[None]:
    """Rows that are made meanwhile have at most so many in a partition."""
    before, threads.PARTITION = threads.PARTITION, most
    try:
        yield
    finally:
        threads.PARTITION = before


def split(most: int, *same: Any, **named: Any) -> Rows:
    """As `Rows`, with at most so many in a partition."""
    with partitions_of(most):
        return Rows(*same, **named)


def again(most: int, rows: Rows) -> Rows:
    """The same rows, in memory, cut anew."""
    (first, *_) = rows.parts
    return split(most, rows.bins, first._column if len(rows.parts) == 1 else rows.labels, rows.widths, rows.classes)
