"""What a steward decides of blocks, each as one entry: another one came, or the rows of the oldest are deleted."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from typing import Any, TypeAlias

from sqlalchemy import Connection, insert, select, update

from accountant.errors import CameBetween, WrongState
from accountant.ledger.families import block_rows, family_rows
from accountant.ledger.families.families import Dataset, account_of
from accountant.ledger.families.records import UNKNOWN_ROWS, NewPeople, NotCommitted, State, Why, charged_window
from accountant.ledger.families.row_queries import RowQuery
from accountant.ledger.families.windows import Period
from accountant.ledger.family_changes import parts_of
from accountant.ledger.person_totals import found_person_total
from accountant.log.entries import TransparencyLog, Writer, dumps
from accountant.store.store import body_at
from accountant.store.tables import block_table, dataset_table, job_table
from dpserve_verify.errors import InputError
from dpserve_verify.log.entry import read_entry

MOST_RECORDS = 10**12  # as a schema may guess
Look: TypeAlias = Callable[[Connection], None]


@dataclass(frozen=True)
class NewBlock:
    """Rows that are appended to `dataset`. `commitment`: HMAC over the packed rows; `records`: the public guess at how
    many there are; `period`: the days that each row's date was found within; `new_rows`: the steward's word that they
    stand nowhere else, though they look so; `query`: by which they were read; `ids`: as `Registration` has it. Of rows
    that name people: `person`, the total epsilon for one person over all blocks (None: the family's), declared with the
    first block that is appended; `each_block`: why the same people get a budget of their own in this block instead.
    """

    dataset: str
    commitment: str
    records: int
    by: str
    period: Period | None = None
    new_rows: NewPeople | None = None
    query: RowQuery | None = None
    ids: tuple[str, ...] = ()
    person: Decimal | None = None
    each_block: Why | None = None
    why: Why | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.records <= MOST_RECORDS:
            raise InputError(f"records={self.records}: must be from 1 to {MOST_RECORDS}")


def append(log: TransparencyLog, block: NewBlock, number: int, look: Look | None = None) -> None:
    """Append a block as the one of this number, with an account of its own: nothing is used of it. With `look`, which
    is given the ledger as it would be then, it is left as it was, and NotCommitted raised.

    InputError where the dataset cannot grow, NameTaken where the rows are registered, or their days are another
    block's, CameBetween where another block was appended meanwhile, WrongState where the dataset is retired.
    """
    with log.writing() as writer:
        connection = writer.connection
        dataset = family_rows.load(connection, block.dataset, signed=writer.signed)
        if number != (dataset.last or 1) + 1:
            raise CameBetween(f"dataset={block.dataset}: another block was appended meanwhile, {dataset.last}")
        if block.new_rows is not None:
            Why(block.new_rows.by, block.new_rows.reason)
        family = dataset.families[0]
        _bound_people(writer, block)
        fields: dict[str, Any] = {} if block.period is None else {"period": block.period.to_json()}
        fields |= {} if block.new_rows is None else {"new_rows": asdict(block.new_rows)}
        fields |= {} if block.query is None else {"query": block.query.to_json()}
        fields |= {"ids": sorted(block.ids)} if block.ids else {}
        fields |= {} if block.each_block is None else {"each_block": asdict(block.each_block)}
        seq = writer.append(
            "dataset-appended",
            dataset=block.dataset, block=number, commitment=block.commitment, records=block.records, by=block.by,
            **fields,
        )  # fmt: skip
        row = {"dataset": block.dataset, "number": number, "seq": seq, "commitment": block.commitment}
        period = None if block.period is None else dumps(block.period.to_json())
        connection.execute(insert(block_table).values(**row, records=block.records, period=period))
        _set(connection, block.dataset, last=number)
        for part in parts_of(family):
            account = account_of(family.identity, part, number)
            family_rows.found_family(connection, account, seq, family.filter)
        if look is not None:
            look(connection)
            raise NotCommitted


def check_append(log: TransparencyLog, block: NewBlock, number: int, look: Look = lambda connection: None) -> None:
    """Raise what `append` would, whatever the rows are: it is done, and not committed. `look` as there."""
    with suppress(NotCommitted):
        append(log, replace(block, commitment=UNKNOWN_ROWS), number, look)


def rehearse_append(
    log: TransparencyLog, block: NewBlock, analyst: str | None, part: str | None, blocks: str | None
) -> Dataset:
    """Return the dataset as `Ledger.dataset` would load it if the block were appended now. Raises as `append`."""
    grown = list[Dataset]()
    with log.database.reading() as connection:
        number = (family_rows.load(connection, block.dataset).last or 1) + 1
    check_append(
        log, block, number,
        lambda connection: grown.append(block_rows.load(connection, block.dataset, analyst, part, blocks=blocks)),
    )  # fmt: skip
    return grown[0]


def check_person_words(dataset: Dataset, person: object | None, each_block: bool) -> None:
    """Raise InputError where the answer about one person's total does not suit a dataset that gets another block; the
    message lists the answers.
    """
    name, column = dataset.registration.name, dataset.registration.unit.column
    if person is not None and each_block:
        raise InputError("person-epsilon: is one person's total over all blocks, and each-block says there is none")
    if column is None and (person is not None or each_block):
        raise InputError(f"dataset={name}: no column names the people of its rows; leave out what is said of a person")
    if dataset.person is not None and (person is not None or each_block):
        raise InputError(
            f"dataset={name}: one person has a total over all blocks already; dpserve dataset budget {name} "
            "--person-epsilon E --reason TEXT changes it"
        )
    if column is not None and dataset.person is None and (dataset.last or 1) > 1 and not each_block:
        raise InputError(
            f"dataset={name}: has grown without a total for one person over all blocks, so that another block is "
            "another budget for the same people; say why they get it by --each-block --reason TEXT, which stands in "
            "the ledger, or register the rows as a dataset of its own"
        )


def _bound_people(writer: Writer, block: NewBlock) -> None:
    """Open the account of one person over all blocks with the first block that is appended, where a column names the
    people, no such account exists yet, and `each_block` was not declared.
    """
    dataset = block_rows.load(writer.connection, block.dataset, signed=writer.signed)
    check_person_words(dataset, block.person, block.each_block is not None)
    if dataset.registration.unit.column is None or dataset.person is not None or block.each_block is not None:
        return
    total = dataset.families[0].budget.epsilon if block.person is None else block.person
    found_person_total(writer, dataset, total, block.why)


def drop(log: TransparencyLog, dataset: str, upto: int, why: Why) -> range:
    """Enter that the rows of the blocks up to `upto` are deleted from disk: no job reads them any more, and their
    accounts stay. Which blocks these are.

    InputError where there is no such block, or its rows were deleted before; WrongState where a job waits for them.
    """
    with log.writing() as writer:
        stored = family_rows.load(writer.connection, dataset, signed=writer.signed)
        _require_unread(writer, dataset, upto)
        writer.append("blocks-dropped", dataset=dataset, upto=upto, reason=why.reason, by=why.by)
        _set(writer.connection, dataset, last=stored.last or 1, dropped=upto)
        return range(stored.dropped + 1, upto + 1)


def _require_unread(writer: Writer, dataset: str, upto: int) -> None:
    row = job_table.c
    where = (row.dataset == dataset) & row.state.in_((State.RESERVED, State.STARTED))
    for seq in writer.connection.execute(select(row.seq).where(where)).scalars():
        window = charged_window(read_entry(seq, body_at(writer.connection, seq)).value)
        if window[0] <= upto:
            raise WrongState(f"job {seq}: is to read block {window[0]}; wait for it, or cancel it", job=seq)


def _set(connection: Connection, dataset: str, **values: int) -> None:
    connection.execute(update(dataset_table).where(dataset_table.c.name == dataset).values(**values))
