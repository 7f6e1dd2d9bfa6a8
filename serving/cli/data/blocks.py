"""Commands of the steward of a dataset that grows: blocks of rows are appended."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from accountant.home import Home
from accountant.ledger.families.records import Why
from accountant.ledger.families.windows import Period
from dpserve_verify.errors import InputError
from serving.cli.backends.user import require_access, this_user
from serving.cli.complete import Name
from serving.cli.datasets import DatabaseQuery, DatabaseTable, DistinctIds, OnePerson, QueryReason, RowsData, show_as_is
from serving.cli.terminal import Json, ask, show_busy

BlockRecords = Annotated[
    int | None, typer.Option(help="Public guess at how many rows the block has; asked on a terminal.")
]
Dated = Annotated[str | None, typer.Option(help="The date of the schema by which rows belong to the block.")]
Since = Annotated[str | None, typer.Option(help="With --dated: the block's first day, like 2026-01-05.")]
Until = Annotated[str | None, typer.Option(help="With --dated: its last day, like 2026-01-11.")]
NewRows = Annotated[
    bool, typer.Option("--new-rows", help="These rows are registered nowhere else, though they look so.")
]
PersonEpsilon = Annotated[
    str | None, typer.Option(help="With the first block: one person's total over all blocks, if not the dataset's.")
]
EachBlock = Annotated[
    bool, typer.Option("--each-block", help="The same people get a budget of their own in this block.")
]
BlockReason = Annotated[str | None, typer.Option("--reason", help="Why. It stays in the ledger permanently.")]


def append(
    name: Name,
    data: RowsData,
    query: DatabaseQuery = None,
    query_reason: QueryReason = None,
    table: DatabaseTable = None,
    records: BlockRecords = None,
    dated: Dated = None,
    since: Since = None,
    until: Until = None,
    new_rows: NewRows = False,
    person_epsilon: PersonEpsilon = None,
    each_block: EachBlock = False,
    reason: BlockReason = None,
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
    from training.datasets.drafts.appending import read_words  # loads what reads rows
    from training.datasets.growing.append import append_from
    from training.datasets.opened import RowSource

    home = Home.open()
    access = require_access(home, "steward", dataset=name)
    words = read_words(
        ask_records(records, json), this_user(), reason=reason, new_rows=new_rows, person_epsilon=person_epsilon,
        each_block=each_block, one_person=one_person, distinct_ids=distinct_ids,
        period=read_period(dated, since, until),
    )  # fmt: skip
    source = RowSource(data, query, table, query_reason)
    with show_busy(f"packing another block of {name}"):
        grown = append_from(home, name, source, this_user(), words, access=access)
    show_as_is(home, grown, json)


def ask_records(records: int | None, json: bool) -> int:
    """Return how many rows the block has, about: as was said, or as is asked on a terminal. AnswerMissing elsewhere."""
    from training.datasets.drafts.appending import RECORDS, require_records
    from training.datasets.drafts.public_answers import parse_count

    if records is None and not json and sys.stdin.isatty() and sys.stdout.isatty():
        records = ask(RECORDS, None, parse_count)
    return require_records(records)


def read_period(dated: str | None, since: str | None, until: str | None) -> Period | None:
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
