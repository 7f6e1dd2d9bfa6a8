"""The derived index against the entries: its rows must say what a replay gives, row by row."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import zip_longest
from typing import Any, TypeAlias

from sqlalchemy import Connection, Row, Table, select

from accountant.log.entries import dumps
from accountant.store.engines import clock
from accountant.store.store import stream
from accountant.store.tables import (
    analyst_table,
    block_table,
    dataset_table,
    family_table,
    grant_table,
    job_table,
    key_table,
    revoked_table,
    schedule_table,
    token_table,
)
from dpserve_verify.audit.replay import Replay
from dpserve_verify.formats.canonical import decimal_string

Values: TypeAlias = tuple[Any, ...]
LONGEST_LEASE = 86_400.0  # seconds; a holder renews in a minute


def compare_index(connection: Connection, replay: Replay) -> Iterator[str]:
    """Yield one line for every row that is wrong, missing or too many."""
    books = replay.books
    block_states = books.blocks.known
    grown = {name: (each.last, each.dropped or None) for name, each in block_states.items()}
    datasets = {
        name: (each.seq, dumps(list(each.families)), each.commitment, *grown.get(name, (None, None)))
        for name, each in books.datasets.items()
    }
    yield from _compare("dataset", _rows(connection, dataset_table, "name"), datasets)
    blocks = {
        (name, str(number)): (each.seq, each.commitment, each.records, each.period and dumps(each.period))
        for name, state in block_states.items()
        for number, each in enumerate(state.blocks, 2)
    }
    rows: dict[Any, Values] = {
        (name, str(number)): row for (name, number), row in _rows(connection, block_table, "dataset", "number").items()
    }
    yield from _compare("block", rows, blocks)
    families = {
        identity: (
            each.seq,
            each.changed,
            each.sums(),
            each.stored(each.reserved),
        )
        for identity, each in books.families.items()
    }
    yield from _compare("family", _rows(connection, family_table, "id"), families)
    analysts: dict[Any, Values] = {}
    for identity, family in books.families.items():
        for name, used in family.analysts.items():
            share = family.quotas.get(name) if family.family is None else None  # of the whole family
            analysts[identity, name] = (None if share is None else decimal_string(share), family.stored(used))
    yield from _compare("analyst", _rows(connection, analyst_table, "family", "name"), analysts)
    yield from _jobs(connection, replay)
    rights = replay.access
    tokens = {
        digest: (each.seq, each.name, each.scopes, each.revoked, each.principal)
        for digest, each in rights.tokens.items()
    }
    yield from _compare("token", _rows(connection, token_table, "hash"), tokens)
    grants = {
        str(seq): (each.principal, each.scope, each.kind, each.name, each.expires, each.revoked)
        for seq, each in rights.grants.items()
    }
    yield from _compare("grant", {str(seq): row for seq, row in _rows(connection, grant_table, "seq").items()}, grants)
    schedules = {
        str(seq): (each.name, each.by, each.token, each.job, each.stopped, each.ended)
        for seq, each in replay.schedules.states.items()
    }
    stored = {str(seq): row for seq, row in _rows(connection, schedule_table, "seq").items()}
    yield from _compare("schedule", stored, schedules)
    keys = {keyid: (key.role, key.pem, key.added, key.until, key.ended) for keyid, key in replay.keys.keys.items()}
    yield from _compare("key", _rows(connection, key_table, "keyid"), keys)
    revoked = {str(issued): (seq,) for issued, seq in replay.keys.revocations.items()}
    rows = {str(issued): seq for issued, seq in _rows(connection, revoked_table, "issued").items()}
    yield from _compare("revocation", rows, revoked)


def _rows(connection: Connection, table: Table, *key: str) -> dict[Any, Values]:
    """Return rows by their key; columns of JSON as values, so that their spelling does not matter."""
    rows = {}
    for row in connection.execute(select(table)).mappings():
        rest = {name: value for name, value in row.items() if name not in key}
        for name in rest.keys() & {"used", "reserved"}:
            with suppress(ValueError):  # no JSON: is compared as it stands
                rest[name] = json.loads(rest[name])
        rows[row[key[0]] if len(key) == 1 else tuple(row[name] for name in key)] = tuple(rest.values())
    return rows


def _compare(what: str, rows: Mapping[Any, Values], expected: Mapping[Any, Values]) -> Iterator[str]:
    for key in sorted(rows.keys() | expected.keys()):
        if rows.get(key) != expected.get(key):
            name = " ".join(key) if isinstance(key, tuple) else key
            yield f"index: {what} {name:.80}: has {rows.get(key)}, the entries give {expected.get(key)}"


def _jobs(connection: Connection, replay: Replay) -> Iterator[str]:
    table = job_table.c
    columns = (table.seq, table.dataset, table.state, table.model, table.idempotency_key, table.request, table.analyst)
    held = (table.queued, table.owner, table.expires, table.done)
    query = select(*columns, table.total, table.committed, table.issued, *held).order_by(table.seq)
    rows, latest = stream(connection, query), clock(connection) + LONGEST_LEASE
    expected = (
        (
            seq,
            job.dataset,
            job.state,
            job.model,
            job.key,
            job.request.hex(),
            job.by,
            job.total,
            job.committed,
            job.issued,
        )
        for seq, job in replay.jobs.items()
    )
    for row, wanted in zip_longest(rows, expected):
        if row is None or tuple(row[: -len(held)]) != wanted:
            yield f"index: job {(wanted or row)[0]}: has {row and tuple(row[: -len(held)])}, the entries give {wanted}"
            return  # one row too many or too few shifts all that follow
        asks_owners = row.seq in replay.campaigns.states  # it waits for owners, and for no process
        problem = _holding_problem(row, asks_owners, latest)
        if problem:
            yield f"index: job {row.seq}: {problem}"


def _holding_problem(row: Row[Any], asks_owners: bool, latest: float) -> str | None:
    """Return what is wrong with the columns of a job that no entry gives: a job that waits is in the queue, or a
    process holds it; one that runs is held; one that is over is not. None where nothing is.
    """
    state, queued, owner, expires, done = row.state, row.queued, row.owner, row.expires, row.done
    waits = state == "reserved"
    if queued not in (0, 1) or (waits and (queued == 1) is not (owner is None)):
        return f"waits, and its row says queued={queued!r:.40}, owner={owner!r:.80}: no worker would run it"
    if (state == "started" and owner is None and not asks_owners) or (
        not waits and state != "started" and owner is not None
    ):
        return f"is {state}, and its row says owner={owner!r:.80}"
    if (expires is None) is not (owner is None) or (expires is not None and not 0 <= expires <= latest):
        return f"its row says owner={owner!r:.80}, expires={expires!r:.40}: no lease is that long"
    return None if type(done) is int and 0 <= done <= row.total else f"its row says done={done!r:.40} of {row.total}"
