"""Commands of the steward of a dataset that grows: blocks of rows are appended."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from accountant.home import Home
from accountant.ledger.families.records import NewPeople, Why, identity_statement
from accountant.ledger.families.windows import Period
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import exact_decimal
from serving.cli.backends.user import require_access, this_user
from serving.cli.complete import Name
from serving.cli.datasets import DistinctIds, OnePerson, QueryReason, show_as_is
from serving.cli.terminal import Json, ask, show_busy


def append(
    name: Name,
    data: Annotated[str, typer.Option(help="A file, a folder, 'x/*.parquet', s3://bucket/x, or a database's URL.")],
    query: Annotated[str | None, typer.Option(help="Of a database: what to read, a select.")] = None,
    query_reason: QueryReason = None,
    table: Annotated[str | None, typer.Option(help="Of a database: the whole table.")] = None,
    records: Annotated[
        int | None, typer.Option(help="Public guess at how many rows the block has; asked on a terminal.")
    ] = None,
    dated: Annotated[str | None, typer.Option(help="The date of the schema by which rows belong to the block.")] = None,
    since: Annotated[str | None, typer.Option(help="With --dated: the block's first day, like 2026-01-05.")] = None,
    until: Annotated[str | None, typer.Option(help="With --dated: its last day, like 2026-01-11.")] = None,
    new_rows: Annotated[
        bool, typer.Option("--new-rows", help="These rows are registered nowhere else, though they look so.")
    ] = False,
    person_epsilon: Annotated[
        str | None,
        typer.Option(help="With the first block: one person's total over all blocks, if not the dataset's."),
    ] = None,
    each_block: Annotated[
        bool, typer.Option("--each-block", help="The same people get a budget of their own in this block.")
    ] = False,
    reason: Annotated[str | None, typer.Option(help="Why. It stays in the ledger permanently.")] = None,
    one_person: OnePerson = False,
    distinct_ids: DistinctIds = False,
    json: Json = False,
) -> None:
    """Append a block of rows to a dataset, with a budget of its own: the dataset's total.

    Where a column names people, one person has that total over all blocks together, unless another is given with a
    reason. Jobs say which blocks they read by --blocks, and are charged to each, and to one person once.

    \b
    dpserve dataset append visits --data week-2.parquet --records 400
    dpserve dataset append visits --data week-2.parquet --records 400 --dated day --since 2026-01-12 --until 2026-01-18
    dpserve dataset append visits --data week-2.parquet --records 400 --person-epsilon 5 --reason "decision 14"
    """
    from training.datasets.growing.append import PersonWords, append_from  # loads what reads rows
    from training.datasets.opened import RowSource

    home = Home.open()
    access = require_access(home, "steward", dataset=name)
    if (new_rows or each_block or person_epsilon is not None) != (reason is not None):
        raise InputError(
            "reason: give it with --new-rows, --each-block or --person-epsilon, and one of these with --reason"
        )
    new = NewPeople(reason, this_user()) if new_rows and reason is not None else None
    why = Why(this_user(), reason) if reason is not None and (each_block or person_epsilon is not None) else None
    epsilon = None if person_epsilon is None else exact_decimal("person-epsilon", person_epsilon)
    ids = identity_statement(one_person, distinct_ids)
    period, records = _period(dated, since, until), ask_records(records, json)
    source = RowSource(data, query, table, query_reason)
    with show_busy(f"packing another block of {name}"):
        grown = append_from(
            home, name, source, this_user(), records, period=period, new_rows=new, access=access, said_ids=ids,
            person=PersonWords(epsilon, each_block, why),
        )  # fmt: skip
    show_as_is(home, grown, json)


def ask_records(records: int | None, json: bool) -> int:
    """Return how many rows the block has, about: as was said, or as is asked on a terminal. AnswerMissing elsewhere."""
    from training.datasets.drafts.appending import RECORDS, require_records
    from training.datasets.drafts.public_answers import parse_count

    if records is None and not json and sys.stdin.isatty() and sys.stdout.isatty():
        records = ask(RECORDS, None, parse_count)
    return require_records(records)


def _period(dated: str | None, since: str | None, until: str | None) -> Period | None:
    """Return the days of a block, where they are said. InputError where only some of it is."""
    if dated is None and since is None and until is None:
        return None
    if dated is None or since is None or until is None:
        raise InputError("dated: give --dated, --since and --until together")
    return Period(dated, since, until)


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
    from training.datasets.growing.delete import delete as delete_rows  # as above

    home = Home.open()
    require_access(home, "steward", dataset=name)
    show_as_is(home, delete_rows(home, name, upto, Why(this_user(), reason)), json)
