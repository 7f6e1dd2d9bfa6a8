"""Which blocks of a dataset a job reads: `all`, `last:12`, `3-7` or `4`. The first block is what was registered."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from typing import TypeAlias

from accountant.ledger.families.row_queries import RowQuery
from dpserve_verify.errors import InputError

Window: TypeAlias = tuple[int, int]
"""The first and the last block of it, from 1."""
MAX_BLOCKS = 99_999
_NUMBER = "([1-9][0-9]{0,4})"
BLOCKS_PATTERN = "all|last:[1-9][0-9]{0,4}|[1-9][0-9]{0,4}(?:-[1-9][0-9]{0,4})?"
_LAST, _RANGE = re.compile(f"last:{_NUMBER}", re.ASCII), re.compile(f"{_NUMBER}(?:-{_NUMBER})?", re.ASCII)
ALL = "all"
SAY_BLOCKS = "say it with --blocks last:12, all, or 3-7 (over REST: `blocks`)"


@dataclass(frozen=True)
class Period:
    """The days of a block, both included: every row's date in `column` lies within. InputError where they end before
    they begin, or are no days.
    """

    column: str
    since: str
    until: str

    def __post_init__(self) -> None:
        for name in ("since", "until"):
            _day(name, getattr(self, name))
        if self.until < self.since:
            raise InputError(f"until={self.until}: must not be before {self.since}")

    @property
    def days(self) -> Window:
        """Count the days from 1970-01-01 to the first and to the last day."""
        first, last = (date.fromisoformat(day).toordinal() for day in (self.since, self.until))
        return first - _EPOCH, last - _EPOCH

    def to_json(self) -> dict[str, str]:
        """Return it as its entry states it."""
        return {"column": self.column, "since": self.since, "until": self.until}


_EPOCH = date(1970, 1, 1).toordinal()


def _day(name: str, text: str) -> None:
    try:
        is_day = date.fromisoformat(text).isoformat() == text
    except ValueError:
        is_day = False
    if not is_day:
        raise InputError(f"{name}={text[:40]!r}: must be a day like 2026-01-31")


@dataclass(frozen=True)
class Block:
    """Rows that came together. `seq`: the entry that brought them; `records`: the public count or guess; `period`: the
    days that were declared, where they were; `query`: by which they were read, where they came from a database.
    """

    number: int
    seq: int
    commitment: str
    records: int
    period: Period | None = None
    query: RowQuery | None = None


def check_words(words: str) -> str:
    """Return `words`, where they say which blocks; else InputError."""
    last, between = _LAST.fullmatch(words), _RANGE.fullmatch(words)
    if words != ALL and not last and not between:
        raise InputError(f"blocks={words[:40]!r}: must be all, last:12, 3-7 or 4")
    if between and between[2] and int(between[2]) < int(between[1]):
        raise InputError(f"blocks={words}: must not end before it begins")
    return words


def named_window(words: str, dropped: int, last: int, dataset: str) -> Window:
    """Return the blocks that `words` name on a dataset of `last` blocks, whether or not their rows are there: what is
    released, or charged, about rows that are gone stays about them. `all` and `last:12` count from behind the first
    `dropped`, whose rows were deleted. InputError where no block is named, or one that never came.
    """
    check_words(words)
    if (match := _RANGE.fullmatch(words)) is not None:
        window = int(match[1]), int(match[2] or match[1])
        if window[1] > last:
            raise InputError(f"blocks={words}: dataset {dataset} has blocks 1 to {last}")
        return window
    if dropped == last:
        raise InputError(
            f"blocks={words}: the rows of all {last} blocks of dataset {dataset} were deleted; name blocks by their "
            f"numbers, 1-{last} for instance"
        )
    count = _LAST.fullmatch(words)
    return max(dropped, last - int(count[1]) if count else dropped) + 1, last


def window_of(words: str, dropped: int, last: int, dataset: str) -> Window:
    """Return the blocks that a job reads which names these `words`: `named_window`, where their rows are there.
    InputError where those of one were deleted.
    """
    window = named_window(words, dropped, last, dataset)
    if window[0] <= dropped:
        raise InputError(f"blocks={words}: of dataset {dataset} the rows up to block {dropped} were deleted")
    return window


def window_words(window: Window) -> str:
    """Write a window for people: `4`, or `3-7`."""
    return str(window[0]) if window[0] == window[1] else f"{window[0]}-{window[1]}"
