"""Appending a block of rows to a dataset: read once, checked, packed as the others are, and only then entered. For the
steward alone.

A block has a folder of its own beside the others, and an account of its own in the ledger (docs/privacy/filter.md).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from accountant.errors import CameBetween, DataError, NameTaken, RowsUnavailable
from accountant.home import Home
from accountant.ledger import block_appending
from accountant.ledger.block_appending import NewBlock
from accountant.ledger.comparisons import APPEND
from accountant.ledger.families.block_rows import known_commitments
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.records import NewPeople, Why
from accountant.ledger.families.row_queries import RowQuery
from accountant.ledger.families.windows import Period
from dpserve_verify.errors import InputError
from dpserve_verify.system.files import locked
from models.features.column_law import told_row
from models.features.features import DateFeature, MomentFeature
from training.datasets.copy_guard import LOCK, Asker, Guard
from training.datasets.datasets import (
    before_of,
    check_new_people,
    files_of,
    note,
    parting_of,
    put_in_place,
    remove_unless_entered,
    scan_of,
    write_packed,
)
from training.datasets.known_rows import block_of, block_with, groups_of
from training.datasets.opened import RowSource, rows_at
from training.datasets.overlap import Scan, Sketch
from training.datasets.packing import pack
from training.datasets.unit_question import columns_to_watch, naming_people
from training.rows.packed.persons import PEOPLE, Before
from training.rows.packed.working import working_folder
from training.rows.schema.schema import Schema, schema_of
from training.rows.tables.data import raw_values
from training.rows.tables.file_check import explaining
from training.rows.tables.row_files import column_types

if TYPE_CHECKING:
    from accountant.access.grants import Access

DAY = 86_400


@dataclass(frozen=True)
class PersonWords:
    """What a steward says of people who may stand in several blocks. `epsilon`: the total for one of them over all
    blocks, given with the first block that is appended; None: the family's. `each_block`: whether they get a budget of
    their own in each block instead. `why`: needed for either.
    """

    epsilon: Decimal | None = None
    each_block: bool = False
    why: Why | None = None

    def __post_init__(self) -> None:
        if (self.each_block or self.epsilon is not None) and self.why is None:
            raise InputError("reason: say why, by --reason: it stays in the ledger")

    def to_block(self) -> dict[str, Any]:
        """Return it as `NewBlock` has it."""
        return {"person": self.epsilon, "each_block": self.why if self.each_block else None, "why": self.why}


@dataclass(frozen=True)
class BlockWords:
    """What a steward says of rows that come next. `records`: the public guess at how many there are; `period`: the days
    of each; `new_rows`: why they stand nowhere else, though they look so; `said_ids`: of IDS_SAID; `person`: of people
    who may stand in several blocks.
    """

    records: int
    period: Period | None = None
    new_rows: NewPeople | None = None
    said_ids: tuple[str, ...] = ()
    person: PersonWords = PersonWords()

    def to_block(self, dataset: str, by: str) -> NewBlock:
        """Return the block that the ledger would enter, of rows that are not known yet."""
        return NewBlock(
            dataset, "", self.records, by, self.period, self.new_rows, None, self.said_ids, **self.person.to_block()
        )


@dataclass(frozen=True)
class Within:
    """Sees every row of a file: each must be dated within the `period`, by the column `feature`; then as `scan`."""

    scan: Scan
    feature: DateFeature | MomentFeature
    period: Period

    @property
    def names(self) -> Collection[str]:
        """Return the names of the columns that are looked at."""
        return self.scan.names

    def __call__(self, batch: pa.RecordBatch, start: int) -> None:
        """Check dates, then scan. DataError names the first row that is dated outside the period, or not at all."""
        numbers = raw_values(self.feature, batch[self.feature.name], start)
        days = numbers if isinstance(self.feature, DateFeature) else np.floor(numbers / DAY)
        first, last = self.period.days
        outside = ~((first <= days) & (days <= last))  # a missing date, too
        if outside.any():
            row = start + int(outside.argmax())
            raise DataError(
                f"{self.feature.name}, {told_row(row)}: not dated within {self.period.since} to {self.period.until}, "
                "the days of the block", row=row, column=self.feature.name,
            )  # fmt: skip
        self.scan(batch, start)


def append(
    home: Home,
    name: str,
    data: Path,
    by: str,
    records: int,
    period: Period | None = None,
    new_rows: NewPeople | None = None,
    origin: str | None = None,
    query: RowQuery | None = None,
    access: Access | None = None,
    said_ids: tuple[str, ...] = (),
    person: PersonWords = PersonWords(),
    admit: Callable[[], object] | None = None,
) -> Dataset:
    """Append `data` to a dataset as its next block, if it fits the dataset's schema. `records`: the public guess at how
    many rows it has; `period`: the days of each; `query`: by which they were read; `access`: what `by` may see;
    `said_ids`: of IDS_SAID. `admit`: raises where a block must not be entered now; with it, rows that are a block
    already are answered by that block, to which the dataset is narrowed.

    NameTaken where a noticeable share of the rows stands in another block, or of rows or people in another dataset, but
    for `new_rows`; DataError where the file does not fit; InputError where the dataset cannot grow or is retired.
    """
    about = (dataset := home.ledger.dataset(name)).registration
    schema = replace(schema_of(home, dataset), records=records)
    dated = None if period is None else _dated(schema, period)
    block = replace(BlockWords(records, period, new_rows, said_ids, person).to_block(name, by), query=query)
    if admit is None:  # else it says so itself, of rows that are no block yet
        with suppress(CameBetween):
            block_appending.check_append(home.ledger.log, block, (dataset.last or 1) + 1)
    types = column_types(data, schema.form)
    by_name, by_values = columns_to_watch(schema, types)
    naming = [*dict.fromkeys(filter(None, [about.unit.column, *by_name, *by_values]))]
    guard = Guard(home, APPEND, name, Asker(by, access))
    while True:  # once more where another block came in between: it is compared with that one too
        dataset = home.ledger.dataset(name)
        others = [] if new_rows else [row for row in home.ledger.datasets() if row.family != dataset.family]
        ever = home.ledger.dataset(name, blocks=(1, dataset.last)) if dataset.last else dataset  # also deleted ones
        scan = scan_of(home, schema, types, naming, [] if new_rows else [*others, ever])
        guard.require_answers_left()
        watch = scan if dated is None or period is None else Within(scan, dated, period)
        with working_folder(home.datasets) as folder, suppress(CameBetween):
            with explaining(schema, data, about.unit.column):
                parting = parting_of(home, about, [dataset])
                before = None if person.each_block else _people_before(home, dataset)
                pack(data, schema, about.unit, watch, parting, folder, before, said_ids, about.firsts)
            sketch = scan.sketch()
            if admit is not None and (known := block_of(home, ever, sketch)) is not None:
                return home.ledger.dataset(name, blocks=(known, known))
            if admit is not None:
                admit()
            whole = [column for column in by_name if column not in scan.fractions]
            people = naming_people(sketch, about.unit.column, whole)
            if new_rows is None:
                guard.require_enough(people, about.unit.column, [*others, ever])
            files = files_of(dataset, number := (dataset.last or 1) + 1, before is not None)
            block = replace(block, commitment=write_packed(home, folder, files, schema_text(home, dataset), people))
            _enter(guard, folder, ever, files, block, others, scan, people)
            note(home, f"{name}/{number}", data=origin or str(data.absolute()), rows=block.commitment)
            return home.ledger.dataset(name)


def append_from(
    home: Home,
    name: str,
    source: RowSource,
    by: str,
    words: BlockWords,
    access: Access | None = None,
    admit: Callable[[], object] | None = None,
) -> Dataset:
    """Append what `source` names, wherever it lies. Raises as `append` does."""
    about, stated = home.ledger.dataset(name).registration, source.stated
    described = home.datasets / about.commitment / "schema.yaml"
    query = None if stated is None else RowQuery.of(stated, source.reason, by)
    with rows_at(home, source, described, about.unit.column) as (rows, origin):
        return append(home, name, rows, by, origin=origin, query=query, access=access, admit=admit, **vars(words))


def _dated(schema: Schema, period: Period) -> DateFeature | MomentFeature:
    feature = next((field for field in schema.features if field.name == period.column), None)
    if not isinstance(feature, DateFeature | MomentFeature):
        dates = [field.name for field in schema.features if isinstance(field, DateFeature | MomentFeature)]
        raise InputError(f"dated={period.column[:80]}: must be a date or datetime of the schema, which has {dates}")
    return feature


def schema_text(home: Home, dataset: Dataset) -> bytes:
    """Return the schema's file as it was registered."""
    return (home.datasets / dataset.registration.commitment / "schema.yaml").read_bytes()


def _people_before(home: Home, dataset: Dataset) -> Before | None:
    """Return who has rows in the blocks there are; None where no column names people. RowsUnavailable where that is
    not in this home, as of a dataset that was registered before it was written down.
    """
    before = before_of(home, dataset.registration, dataset)
    if before is None:
        return None
    for number, folder in before.earlier:
        if dataset.person is None and not (folder / PEOPLE).exists():
            name = dataset.registration.name
            raise RowsUnavailable(
                f"dataset={name}: who has rows in block {number} was not written down when it was registered, so that "
                "nobody can be bounded over all blocks; register the rows anew, all of them, as a dataset of the same "
                f"people (--family {name}), or say why the same people get a budget of their own in each block by "
                "--each-block --reason TEXT. Nothing was appended"
            )
    return before


def _enter(
    guard: Guard,
    folder: Path,
    dataset: Dataset,
    files: list[str],
    block: NewBlock,
    others: list[Dataset],
    scan: Scan,
    own: Sketch,
) -> None:
    """Put the packed `folder` in its place, and enter it. CameBetween where another block was appended meanwhile."""
    home = guard.home
    with locked(home.path / LOCK):
        guard.require_answers_left()
        _check_new_block(guard, block)
        if block.new_rows is None:
            _check_other_blocks(guard, dataset, scan, own)
            check_new_people(guard, others, scan, own)
        with guard.answering() if block.new_rows is None else nullcontext():
            is_new = put_in_place(home, folder, files, block.commitment, own)
            try:
                block_appending.append(home.ledger.log, block, (dataset.last or 1) + 1)
            except InputError:  # nothing was entered
                if is_new:
                    remove_unless_entered(home, block.commitment)
                raise


def _check_new_block(guard: Guard, block: NewBlock) -> None:
    """Raise NameTaken where these very rows are registered, here or as another block: before their folder is
    touched.
    """
    home = guard.home
    with home.ledger.log.database.reading() as connection:
        commitments = known_commitments(connection)
    commitments |= {record.registration.commitment: record.registration.name for record in home.ledger.datasets()}
    if block.commitment in commitments:
        name = commitments[block.commitment]
        refusal = guard.refuse([(name, "rows")])
        if not guard.asker.may_see(name):
            raise refusal
        raise NameTaken(f"data: these rows are registered already, in {name}; a block is appended once", dataset=name)


def _check_other_blocks(guard: Guard, dataset: Dataset, scan: Scan, own: Sketch) -> None:
    """Refuse rows that another block has. The same people may come in many blocks; the same rows may not."""
    name = dataset.registration.name
    groups: dict[str, dict[int, str]] = {name: {}, **groups_of(dataset)}
    labels = [label for label in scan.known if label in groups]
    matches = [label for label in labels if scan.same_rows(label, own, by_values=False)]
    if not matches:
        return
    blocks = groups[matches[0]]
    number = block_with(guard.home, blocks, matches[0], scan, own) if blocks else 1
    guard.refuse([(name, "rows")])
    raise NameTaken(
        f"data: rows of this file are in block {number} of {name} already; each row stands in one block. Leave them "
        "out; or, if they are others, say why by --new-rows --reason, which stands in the ledger",
        dataset=name, block=number,
    )  # fmt: skip
