"""Commands of the steward of a dataset that grows: blocks of rows are appended."""

from __future__ import annotations

from typing import Annotated

import typer

from accountant.errors import InputError
from accountant.home import Home
from accountant.ledger.blocks.windows import Period
from accountant.ledger.records import NewPeople, Why, said_ids
from accountant.ledger.row_queries import RowQuery
from serving.cli.complete import Name
from serving.cli.datasets import DistinctIds, OnePerson, QueryReason, show_as_is
from serving.cli.terminal import Json, allowed, busy, this_user


def append(
    name: Name,
    data: Annotated[str, typer.Option(help="A file, a folder, 'x/*.parquet', s3://bucket/x, or a database's URL.")],
    query: Annotated[str | None, typer.Option(help="Of a database: what to read, a select.")] = None,
    query_reason: QueryReason = None,
    table: Annotated[str | None, typer.Option(help="Of a database: the whole table.")] = None,
    records: Annotated[
        int | None, typer.Option(help="Public guess at how many rows; the schema's if left out.")
    ] = None,
    dated: Annotated[str | None, typer.Option(help="The date of the schema by which rows belong to the block.")] = None,
    since: Annotated[str | None, typer.Option(help="With --dated: the block's first day, like 2026-01-05.")] = None,
    until: Annotated[str | None, typer.Option(help="With --dated: its last day, like 2026-01-11.")] = None,
    new_rows: Annotated[
        bool, typer.Option("--new-rows", help="These rows are registered nowhere else, though they look so.")
    ] = False,
    reason: Annotated[str | None, typer.Option(help="Why. It stays in the ledger permanently.")] = None,
    one_person: OnePerson = False,
    distinct_ids: DistinctIds = False,
    json: Json = False,
) -> None:
    """Append a block of rows to a dataset, with a budget of its own: the dataset's total.

    Protected is each unit in each block. Jobs say which blocks they read by --blocks, and are charged to each.

    \b
    dpserve dataset append visits --data week-2.parquet
    dpserve dataset append visits --data week-2.parquet --dated day --since 2026-01-12 --until 2026-01-18
    """
    from training.growing.append import append as append_rows  # loads what reads rows: lists wait for none of it
    from training.rows.sources.opened import RowSource, rows_at

    home = Home.open()
    access = allowed(home, "steward", dataset=name)
    if new_rows != (reason is not None):
        raise InputError("new-rows: give it with --reason, and a reason with --new-rows")
    if len({each is None for each in (dated, since, until)}) > 1:
        raise InputError("dated: give --dated, --since and --until together")
    new = None if reason is None else NewPeople(reason, this_user())
    said = said_ids(one_person, distinct_ids)
    period = None if dated is None or since is None or until is None else Period(dated, since, until)
    about, source = home.ledger.dataset(name).registration, RowSource(data, query, table, query_reason)
    described = home.datasets / about.commitment / "schema.yaml"
    stated = None if source.stated is None else RowQuery.of(source.stated, query_reason, this_user())
    with busy(f"packing another block of {name}"), rows_at(home, source, described, about.unit.column) as found:
        rows, origin = found
        grown = append_rows(home, name, rows, this_user(), records, period, new, origin, stated, access, said)
    show_as_is(home, grown, json)


def delete(
    name: Name,
    upto: Annotated[int, typer.Option(help="The last block whose rows are deleted, and all before it.")],
    reason: Annotated[str, typer.Option(help="Why. It stays in the ledger permanently.")],
    json: Json = False,
) -> None:
    """Delete the rows of the oldest blocks from disk. No job reads them any more; what was spent on them stays spent.

    \b
    dpserve dataset delete visits --upto 52 --reason "rows are kept for a year"
    """
    from training.growing.delete import delete as delete_rows  # as above

    home = Home.open()
    allowed(home, "steward", dataset=name)
    show_as_is(home, delete_rows(home, name, upto, Why(this_user(), reason)), json)
