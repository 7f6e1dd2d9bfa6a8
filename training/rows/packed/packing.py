"""A file of rows as packed integers: read once, checked, and each unit's contributions bounded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.errors import DataError
from accountant.ledger.records import HOLDOUT, RECORD, Unit
from models.features import NumericFeature
from training.rows.data import (
    answer_dtype,
    bin_dtype,
    encode_answers,
    encode_column,
    encode_finely,
    has_answer,
    most_rows,
    read_batches,
)
from training.rows.overlap import Scan
from training.rows.packed.cells import spans_of
from training.rows.parts import Parting
from training.rows.people import FirstOfEach, unit_ids
from training.rows.rows import row_bound
from training.rows.schema import Schema


@dataclass(frozen=True)
class Packed:
    """Rows as integers: `bins` (features, then groups, rows), for each target its `answers` (rows,): uint8 classes, or
    int32 targets of a number, and `cells` (numbers, rows), uint16, of the features that have fine cells. `held`: which
    rows are kept aside for evaluation; None where the family has no such part.
    """

    bins: NDArray[Any]
    answers: tuple[NDArray[Any], ...]
    cells: NDArray[np.uint16]
    held: NDArray[np.bool_] | None = None

    @property
    def labels(self) -> NDArray[Any]:
        """The answers of the first target."""
        return self.answers[0]

    def parts(self) -> dict[str | None, Packed]:
        """Of each part, rows in their order: of what is learnt from, and of what is kept aside."""
        if self.held is None:
            return {None: self}
        return {None: self.of(~self.held), HOLDOUT: self.of(self.held)}

    def of(self, own: NDArray[np.bool_]) -> Packed:
        """These rows alone."""
        return Packed(self.bins[:, own], tuple(each[own] for each in self.answers), self.cells[:, own])


def pack(
    data: Path, schema: Schema, unit: Unit = RECORD, scan: Scan | None = None, parting: Parting | None = None
) -> Packed:
    """All rows of the file in packed bins; of each unit, the first rows in file order, as many as it may contribute.
    `scan` sees every row as it stands in the file. `parting` says which units are kept aside.
    """
    keep = FirstOfEach(unit.column, unit.contributions) if unit.column else None
    described = {feature.name for feature in schema.stored} | {*schema.target_names}
    seen = set() if scan is None else set(scan.names)
    spans = spans_of(schema.features, schema.ends)
    spans += (None,) * (len(schema.stored) - len(spans))  # groups are not learnt from
    questions = [schema.question(name) for name in schema.target_names]
    bins, answers = np.empty((0, 0)), [np.empty(0) for _ in questions]
    cells: NDArray[Any] = np.empty((0, 0), np.uint16)
    held: list[NDArray[np.bool_]] = []
    start = used = 0
    for batch in read_batches(data, schema, sorted(({unit.column or ""} | seen) - {""} - described)):
        if not start:  # room for every row, of which the system gives what is written to: nothing is moved or copied
            most = most_rows(data, schema.form)
            bins = np.empty((len(schema.stored), most), bin_dtype(schema.stored))
            cells = np.empty((sum(span is not None for span in spans), most), np.uint16)
            answers = [np.empty(most, answer_dtype(asked)) for asked in questions]
        if scan is not None:
            scan(batch, start)
        chosen: Any = slice(None) if keep is None else keep(batch, start)
        end = used + (len(batch) if keep is None else int(np.count_nonzero(chosen)))
        if end > row_bound(schema.records):
            raise DataError(
                f"records={schema.records}: {data.name} has more than {row_bound(schema.records)} rows, the most where "
                "about so many are declared; say in the schema how many there are about"
            )
        fine = iter(cells)
        for codes, feature, span in zip(bins, schema.stored, spans, strict=True):
            if span is not None and isinstance(feature, NumericFeature):
                coarse, inside = encode_finely(feature, span, batch[feature.name])
                codes[used:end], next(fine)[used:end] = coarse[chosen], inside[chosen]
            else:
                codes[used:end] = encode_column(feature, batch[feature.name], start)[chosen]
        for own, asked in zip(answers, questions, strict=True):
            own[used:end] = encode_answers(asked, batch[asked.target], start)[chosen]
        if parting is not None and unit.column:
            held.append(parting.of_units(unit_ids(unit.column, batch[unit.column]))[chosen])
        start, used = start + len(batch), end
    if keep is not None:
        keep.check()
    if not start:
        raise DataError(f"data={data.name}: the file has no rows")
    for own, asked in zip(answers, questions, strict=True):
        if not has_answer(own[:used]).any():
            raise DataError(f"{asked.target}: no row that is used has an answer")
    bins, answers, cells = bins[:, :used], [own[:used] for own in answers], cells[:, :used]
    if parting is None:
        return Packed(bins, tuple(answers), cells)
    aside = np.concatenate(held) if unit.column else parting.of_records([*bins, *answers, *cells])
    return Packed(bins, tuple(answers), cells, aside)
