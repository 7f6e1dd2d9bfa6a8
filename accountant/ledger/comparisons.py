"""What the guard against copies answered: each comparison that no registration follows leaves a signed entry, and only
a few of one caller may be answered in an hour, counted from the entries themselves (docs/privacy/rows.md).

A registration that is withdrawn counts as one: it told that nobody of the file is registered elsewhere, and nothing is
registered by it any more. An entry names who asked, by which door, which name was tried, and the datasets in which rows
or people were found; it holds no share, no count and no id.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
from sqlalchemy import Connection

from accountant.ledger.ledger import Ledger
from accountant.log.rare_entries import WITHDRAWN
from accountant.store.entry_index import entry_index
from accountant.store.store import Store, body_at
from dpserve_verify.errors import InputError
from dpserve_verify.log.entry import Entry, read_entry

COMPARED = "rows-compared"
REGISTER, APPEND, EVALUATE = "register", "append", "evaluate"
MAX_ANSWERS = 5
SPAN = timedelta(hours=1)
_TIME = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True)
class Comparison:
    """`door`: what the file was brought for. `dataset`: the name that it was to be registered under, the dataset that
    was to grow, or that of the model that was to be evaluated. `by`: the principal who asked. `data`: a keyed digest of
    the file, 64 hexadecimal digits, or None; the same answer about the same file counts once.
    """

    door: str
    dataset: str
    by: str
    data: str | None = None


def require_answers_left(ledger: Ledger, asked: Comparison) -> None:
    """Refuse a comparison where MAX_ANSWERS of the same caller were answered in the last SPAN. It says when to come
    back, and nothing about rows.

    Raises:
        InputError: details `again`, the time in UTC from which one more is answered.
    """
    with ledger.log.database.reading() as connection:
        check_answers(ledger.log.database, connection, asked)


def check_answers(database: Store, connection: Connection, asked: Comparison) -> None:
    """Raise what `require_answers_left` does, in a transaction that stands open."""
    recent = [entry for entry in _recent_entries(database, connection) if entry.value["by"] == asked.by]
    if len(recent) < MAX_ANSWERS or any(_is_same(entry, asked) for entry in recent):
        return
    oldest = sorted(entry.value["time"] for entry in recent)[-MAX_ANSWERS]
    again = (datetime.strptime(oldest, _TIME) + SPAN + timedelta(seconds=1)).strftime(_TIME)
    raise InputError(
        f"data: not compared: {MAX_ANSWERS} comparisons of files of {asked.by} with registered datasets were answered "
        f"in the last hour, the most of one caller. Come back after {again}",
        again=again,
    )


def record_comparison(ledger: Ledger, asked: Comparison, concerns: Collection[str]) -> None:
    """Append the entry of an answer that no registration follows. `concerns`: the datasets in which something was
    found, none where nothing was. The same answer about the same file within SPAN stands once.
    """
    datasets = sorted(set(concerns))
    with ledger.log.writing() as writer:
        for entry in _recent_entries(ledger.log.database, writer.connection):
            if _is_same(entry, asked) and entry.value.get("concerns") == datasets:
                return
        data_field = {} if asked.data is None else {"data": asked.data}
        writer.append(COMPARED, door=asked.door, dataset=asked.dataset, concerns=datasets, by=asked.by, **data_field)


def _is_same(entry: Entry, asked: Comparison) -> bool:
    value = entry.value
    same_file = asked.data is not None and value.get("data") == asked.data
    return same_file and (value.get("door"), value["by"]) == (asked.door, asked.by)


def _recent_entries(database: Store, connection: Connection) -> list[Entry]:
    """Return the entries of answers in the last SPAN, the oldest first. Those with a time in the future, of when the
    clock was ahead, are none: they would count until that time has come.
    """
    now = datetime.now(UTC)
    since, until = (now - SPAN).strftime(_TIME), now.strftime(_TIME)
    index = entry_index(database, connection)
    numbers = np.flatnonzero(index.of_kind(COMPARED) | index.of_kind(WITHDRAWN)).tolist()
    entries: list[Entry] = []
    for number in reversed(numbers):
        entry = read_entry(number, body_at(connection, number))
        if entry.value["time"] < since:
            break
        if entry.value["time"] <= until:
            entries.append(entry)
    return entries[::-1]
