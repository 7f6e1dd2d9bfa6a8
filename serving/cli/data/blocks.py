"""Commands of the steward of a dataset that grows: blocks of rows are appended."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from accountant.home import Home
from accountant.ledger.families.records import Why
from serving.cli.backends.user import require_access, this_user
from serving.cli.complete import Name
from serving.cli.datasets import DatabaseQuery, DatabaseTable, DistinctIds, OnePerson, QueryReason, RowsData, show_as_is
from serving.cli.terminal import Json, ask, show_busy

if TYPE_CHECKING:
    from training.datasets.growing.append import BlockWords
    from training.datasets.opened import RowSource

BlockReason = Annotated[str | None, typer.Option("--reason", help="Why. It stays in the ledger permanently.")]
EachBlock = Annotated[
    bool, typer.Option("--each-block", help="The same people get a budget of their own in this block.")
]


@dataclass(frozen=True)
class BlockOptions:
    """What commands ask of rows that come as a block: each field is an option (`takes_block`)."""

    data: RowsData
    query: DatabaseQuery = None
    query_reason: QueryReason = None
    table: DatabaseTable = None
    records: Annotated[
        int | None, typer.Option(help="Public guess at how many rows the block has; asked on a terminal.")
    ] = None
    dated: Annotated[str | None, typer.Option(help="The date of the schema by which rows belong to the block.")] = None
    since: Annotated[str | None, typer.Option(help="With --dated: the block's first day, like 2026-01-05.")] = None
    until: Annotated[str | None, typer.Option(help="With --dated: its last day, like 2026-01-11.")] = None
    new_rows: Annotated[
        bool, typer.Option("--new-rows", help="These rows are registered nowhere else, though they look so.")
    ] = False
    person_epsilon: Annotated[
        str | None, typer.Option(help="With the first block: one person's total over all blocks, if not the dataset's.")
    ] = None
    each_block: EachBlock = False
    reason: BlockReason = None
    one_person: OnePerson = False
    distinct_ids: DistinctIds = False

    @property
    def source(self) -> RowSource:
        """Return where the rows are."""
        from training.datasets.opened import RowSource  # loads what reads rows

        return RowSource(self.data, self.query, self.table, self.query_reason)

    def words(self, by: str, json: bool) -> BlockWords:
        """Return what is said of the rows; on a terminal how many there are is asked. InputError as `read_words`."""
        from training.datasets.drafts.appending import RECORDS, WORDS, read_words  # as above
        from training.datasets.drafts.public_answers import parse_count

        records = self.records
        if records is None and not json and sys.stdin.isatty() and sys.stdout.isatty():
            records = ask(RECORDS, None, parse_count)
        days = self.dated, self.since, self.until
        return read_words(records, by, days=days, **{name: getattr(self, name) for name in WORDS})


def takes_block(function: Callable[..., None]) -> Callable[..., None]:
    """Make a command of a function of `block`: the fields of BlockOptions are options in its place."""
    own = inspect.signature(function, eval_str=True).parameters
    options = inspect.signature(BlockOptions, eval_str=True).parameters
    named = [each.replace(kind=each.KEYWORD_ONLY) for each in options.values()]

    def command(*given: Any, **values: Any) -> None:
        function(*given, block=BlockOptions(**{name: values.pop(name) for name in options}), **values)

    parameters = [part for each in own.values() for part in (named if each.name == "block" else [each])]
    parameters = [*parameters[:1], *(each.replace(kind=each.KEYWORD_ONLY) for each in parameters[1:])]
    command.__doc__, command.__annotations__ = function.__doc__, {}
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # Typer reads it
    return command


@takes_block
def append(name: Name, block: BlockOptions, json: Json = False) -> None:
    """Append a block of rows to a dataset, with a budget of its own: the dataset's total.

    Where a column names people, one person has that total over all blocks together, unless another is given with a
    reason. Jobs say which blocks they read by --blocks, and are charged to each, and to one person once.

    \b
    dpserve dataset append visits --data week-2.parquet --records 400
    dpserve dataset append visits --data week-2.parquet --records 400 --dated day --since 2026-01-12 --until 2026-01-18
    dpserve dataset append visits --data week-2.parquet --records 400 --person-epsilon 5 --reason "decision 14"
    """
    from training.datasets.growing.append import append_from  # loads what reads rows

    home = Home.open()
    access = require_access(home, "steward", dataset=name)
    words = block.words(this_user(), json)
    with show_busy(f"packing another block of {name}"):
        grown = append_from(home, name, block.source, this_user(), words, access=access)
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
    from training.datasets.growing.delete import delete as delete_rows  # as above

    home = Home.open()
    require_access(home, "steward", dataset=name)
    show_as_is(home, delete_rows(home, name, upto, Why(this_user(), reason)), json)
