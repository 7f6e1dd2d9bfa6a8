"""The derived index against the entries: `dataset`, `job` and `token` rows must say what a replay gives, row by row."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from itertools import zip_longest
from typing import Any

from sqlalchemy import Connection, select

from accountant.budget import from_nano
from accountant.canonical import decimal_string
from accountant.judge import Figures
from accountant.replay import Replay
from accountant.store import stream
from accountant.tables import dataset_table, job_table, token_table


def compare_index(connection: Connection, replay: Replay) -> Iterator[str]:
    """One line for every row that is wrong, missing or too many."""
    yield from _datasets(connection, replay)
    yield from _jobs(connection, replay)
    yield from _tokens(connection, replay)


def _datasets(connection: Connection, replay: Replay) -> Iterator[str]:
    query = select(dataset_table)
    rows = {row.name: (row.seq, _loaded(row.used), _loaded(row.reserved)) for row in connection.execute(query)}
    for name in sorted(rows.keys() | replay.datasets.keys()):
        known = replay.datasets.get(name)
        orders = [order for order, _ in known.criteria] if known else []
        expected = (known.seq, _stored(known.used, orders), _stored(known.reserved, orders)) if known else None
        if rows.get(name) != expected:
            yield f"index: dataset {name}: has {rows.get(name)}, the entries give {expected}"


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _stored(figures: Figures, orders: list[Decimal]) -> dict[str, Any]:
    rdp = {decimal_string(order): _text(figure) for order, figure in zip(orders, figures.rdp, strict=True)}
    return {"pure": _text(figures.pure), "unbounded": figures.unbounded, "rdp": rdp}


def _text(figure: int) -> str:
    return decimal_string(from_nano(figure))


def _jobs(connection: Connection, replay: Replay) -> Iterator[str]:
    table = job_table.c
    columns = (table.seq, table.dataset, table.state, table.model, table.idempotency_key, table.request)
    query = select(*columns, table.total, table.committed, table.issued).order_by(table.seq)
    rows = stream(connection, query)
    expected = (
        (seq, job.dataset, job.state, job.model, job.key, job.request, job.total, job.committed, job.issued)
        for seq, job in replay.jobs.items()
    )
    for row, wanted in zip_longest(rows, expected):
        if row is None or tuple(row) != wanted:
            yield f"index: job {(wanted or row)[0]}: has {row and tuple(row)}, the entries give {wanted}"
            return  # one row too many or too few shifts all that follow


def _tokens(connection: Connection, replay: Replay) -> Iterator[str]:
    rows = {row.hash: (row.seq, row.name, row.scopes, row.revoked) for row in connection.execute(select(token_table))}
    known = {digest: (each.seq, each.name, each.scopes, each.revoked) for digest, each in replay.tokens.items()}
    for digest in sorted(rows.keys() | known.keys()):
        if rows.get(digest) != known.get(digest):
            yield f"index: token {digest:.16}: has {rows.get(digest)}, the entries give {known.get(digest)}"
