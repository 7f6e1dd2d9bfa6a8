"""A file of rows as packed integers: read once, checked, and each unit's contributions bounded."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from accountant.errors import DataError
from accountant.ledger.families.records import HOLDOUT, RECORD, Unit
from dpserve_verify.privacy.budget import Relation
from dpserve_verify.system.files import replacing
from models.features.features import Feature, NumericFeature
from training.rows.packed.cells import declared_ranges
from training.rows.packed.growing import Growing, write_chosen
from training.rows.packed.names import cells_file, firsts_file, row_files, since_file
from training.rows.packed.persons import WORDS, Before
from training.rows.partitions.rows import row_bound
from training.rows.people.fingerprints import fingerprints
from training.rows.people.parts import Parting
from training.rows.people.people import FirstOfEach
from training.rows.schema.schema import Schema
from training.rows.tables.column_counts import ColumnCount, counts_of, find_misfit
from training.rows.tables.data import (
    answer_dtype,
    bin_dtype,
    encode_answers,
    encode_column,
    encode_finely,
    encode_weights,
    has_answer,
    most_rows,
    read_batches,
    require_declared_encoding,
)
from training.rows.tables.file_check import Problem, find_problems

WHO = "who.npy"  # whose rows they are: gone when it is known since when each may be used
HELD = "held.npy"  # which rows are kept aside: gone when they lie apart
AHEAD = 4  # batches, of at most 16 MB each
AT_ONCE = 0.02  # seconds: in which no batch of a large file is read


@dataclass(frozen=True)
class Packed:
    """Rows as integers, mapped from files: `bins` (features, then groups, then weights, rows), for each target its
    `answers` (rows,): uint8 classes, or int32 targets of a number, and `cells` (numbers, rows), uint16, of the features
    that have fine cells. `aside`: those that are kept aside for evaluation, where the family has such a part; `since`
    (rows,): as in `persons`, where one person is bounded over all blocks. `counts`: what became of the cells of the
    whole file, for its steward alone.
    """

    bins: NDArray[Any]
    answers: tuple[NDArray[Any], ...]
    cells: NDArray[np.uint16]
    aside: Packed | None = None
    since: NDArray[np.uint32] | None = None
    counts: Mapping[str, ColumnCount] = field(default_factory=dict)

    @property
    def labels(self) -> NDArray[Any]:
        """Return the answers of the first target."""
        return self.answers[0]

    @property
    def size(self) -> int:
        """Count the rows, including those that are set aside for evaluation."""
        return int(self.labels.size) + (0 if self.aside is None else self.aside.size)

    def parts(self) -> dict[str | None, Packed]:
        """Return the rows of each part in their order: of what is learnt from, and of what is kept aside."""
        return {None: self} if self.aside is None else {None: self, HOLDOUT: self.aside}


class Watch(Protocol):
    """What sees the rows of a file as they stand there, batch by batch, and raises where they may not be packed."""

    @property
    def names(self) -> Collection[str]:
        """Return the names of the columns that it looks at."""

    def __call__(self, batch: pa.RecordBatch, start: int) -> None: ...


def pack(
    data: Path,
    schema: Schema,
    unit: Unit = RECORD,
    scan: Watch | None = None,
    parting: Parting | None = None,
    folder: Path | None = None,
    before: Before | None = None,
    said_ids: Collection[str] = (),
    marks_firsts: bool = False,
) -> Packed:
    """Pack all rows of the file in bins; of each unit, the first rows in file order, as many as it may contribute.
    `scan` sees every row as it stands in the file. `parting` says which units are kept aside, `before` who has rows in
    earlier blocks, where one person is bounded over all of them; `said_ids`: what was said of the ids (`FirstOfEach`);
    `marks_firsts`: whether a file says of each row whether it is the first of its person.

    `folder`: an empty one, in which the files of `names` then lie; None: they are gone once nobody looks at them.
    Memory holds a batch of rows; how many rows each person has lies in a file without a name.
    """
    if folder is None:
        with tempfile.TemporaryDirectory() as place:
            return pack(data, schema, unit, scan, parting, Path(place), before, said_ids, marks_firsts)
    keep = FirstOfEach(unit.column, unit.contributions, folder, said_ids) if unit.column else None
    first_of_each = FirstOfEach(unit.column, 1, folder) if unit.column and marks_firsts else None
    described = {feature.name for feature in schema.stored} | {*schema.target_names, ""}
    wanted = sorted({unit.column or "", *(() if scan is None else scan.names)} - described)
    with ExitStack() as ended:
        # Three at one time: the next batches are read, this one is looked at, and it is packed.
        counts = counts_of(schema)
        batches = ended.enter_context(closing(_ahead(read_batches(data, schema, wanted, unit.column, counts), schema)))
        if (first := next(batches, None)) is None:
            raise DataError(f"data={data.name}: the file has no rows")
        coder, start, used = Coder(data, schema, counts), 0, 0
        most = min(most_rows(data, schema.form), coder.most)
        held = parting is not None and bool(unit.column)
        files = _Files(folder, coder, most, held, before, first_of_each is not None)
        ended.enter_context(closing(files))
        pool = ended.enter_context(ThreadPoolExecutor(1, "rows"))
        for batch in chain([first], batches):
            looked = None if scan is None else pool.submit(scan, batch, start)
            try:
                used_rows: Any = slice(None) if keep is None else keep(batch, start)
                end = used + (len(batch) if keep is None else int(np.count_nonzero(used_rows)))
                coder.require_room(end)
                files.write(batch, start, used, used_rows)
                if first_of_each is not None and files.firsts is not None:
                    files.firsts.write(0, used, first_of_each(batch, start)[used_rows])
                if parting is not None and keep is not None and files.held is not None:
                    files.held.write(0, used, parting.of_units(keep.ids)[used_rows])
                if before is not None and keep is not None and files.who is not None:
                    for at, words in enumerate(before.digests(keep.ids.filter(pa.array(used_rows)))):
                        files.who.write(at, used, words)
            finally:
                if looked is not None:
                    looked.result()  # what is wrong with the rows as they stand is told first
            start, used = start + len(batch), end
        if keep is not None:
            keep.check()
        coder.require_answers()
        return replace(files.done(used, parting), counts=coder.counts)


def look_through(data: Path, schema: Schema) -> Mapping[str, ColumnCount]:
    """Read every row as `pack` does and pack none; return what becomes of the cells of each column."""
    counts, start = counts_of(schema), 0
    coder = Coder(data, schema, counts)
    with closing(_ahead(read_batches(data, schema, counts=counts), schema)) as batches:
        for batch in batches:
            coder.require_room(start + len(batch))
            for _ in coder.code(batch, start, slice(None)):
                pass
            start += len(batch)
    coder.require_answers()
    return coder.counts


def _ahead(batches: Iterator[pa.RecordBatch], schema: Schema) -> Generator[pa.RecordBatch, None, None]:
    """Yield all batches, some of them read while the one before them is packed. What each registration loads and makes
    once, numba and the numbers' grids, it does beside the first; if that takes long enough, for most files that are
    refused are refused at once.
    """
    with ThreadPoolExecutor(1, "rows") as reader:
        coming = deque(reader.submit(next, batches, None) for _ in range(AHEAD))
        if not wait([coming[0]], AT_ONCE).done:
            none = pa.array([], pa.float64())
            fingerprints(none, np.uint64(0), np.uint64(0), np.empty(0, np.uint64))
            for feature, span in zip(schema.features, declared_ranges(schema.features, schema.ends), strict=True):
                if span is not None and isinstance(feature, NumericFeature):
                    encode_finely(feature, span, none)
        while (batch := coming.popleft().result()) is not None:
            coming.append(reader.submit(next, batches, None))
            yield batch
    pa.default_memory_pool().release_unused()  # what they were read into: a job may come next


class Coder:
    """Codes batches of a file's rows, and counts what becomes of their cells: in `counts`, of all rows."""

    def __init__(self, data: Path, schema: Schema, counts: Mapping[str, ColumnCount]) -> None:
        require_declared_encoding(data, schema.form)
        self.schema, self.counts, self.most = schema, counts, row_bound(schema.records)
        spans = declared_ranges(schema.features, schema.ends)
        self._data, self._spans = (
            data,
            spans + (None,) * (len(schema.stored) - len(spans)),
        )  # groups are not learnt from
        self.numbers = sum(span is not None for span in spans)
        self._questions = [schema.question(name) for name in schema.target_names]
        self._unanswered = dict.fromkeys(schema.target_names)

    def code(self, batch: pa.RecordBatch, start: int, own: Any) -> Iterator[tuple[str, int, NDArray[Any]]]:
        """Yield the codes of the rows of a batch that are `own`, column by column: which of `bins`, `cells` and
        `answers` they belong to, and where there. `start`: the place of the batch's first row in the file.
        """
        fine = 0
        for at, (feature, span) in enumerate(zip(self.schema.stored, self._spans, strict=True)):
            column, count = batch[feature.name], self._count_of(feature.name, feature)
            if span is not None and isinstance(feature, NumericFeature):
                coarse, inside = encode_finely(feature, span, column, start, count)
                yield "bins", at, coarse[own]
                yield "cells", fine, inside[own]
                fine += 1
            elif self.schema.weight is not None and feature.name == self.schema.weight.column:
                yield "bins", at, encode_weights(self.schema.weight, column, start, count)[own]
            else:
                yield "bins", at, encode_column(feature, column, start, count)[own]
        for at, question in enumerate(self._questions):
            name = question.target
            answers = encode_answers(question, batch[name], start, self._count_of(name, None))[own]
            if name in self._unanswered and has_answer(answers).any():
                del self._unanswered[name]
            yield "answers", at, answers

    def _count_of(self, name: str, feature: Feature | None) -> ColumnCount | None:
        """Return the column's count where it is of this feature, of a target where that is None: each cell once."""
        count = self.counts[name]
        return count if count.feature is feature else None

    def require_room(self, rows: int) -> None:
        """Raise DataError where there are more rows than the schema speaks of."""
        if rows > self.most:
            raise DataError(
                f"records={self.schema.records}: {self._data.name} has more than {self.most} rows, the most where "
                "about so many are declared; say in the schema how many there are about"
            )

    def require_answers(self) -> None:
        """Raise DataError where there was no row, or none that is used has an answer to a target."""
        if not any(count.cells for count in self.counts.values()):
            raise DataError(f"data={self._data.name}: the file has no rows")
        for name in self._unanswered:
            raise DataError(f"{name}: no row that is used has an answer")


class _Files:
    """The files that rows are packed into, with room for `most`; `held`: whether it is said of each which part it is
    in.
    """

    def __init__(
        self,
        folder: Path,
        coder: Coder,
        most: int,
        held: bool,
        before: Before | None = None,
        firsts: bool = False,
    ) -> None:
        schema = coder.schema
        self._folder, self._targets, self._numbers, self._coder = folder, len(schema.targets), coder.numbers, coder
        first, *answer_paths = (folder / name for name in row_files(self._targets))
        kinds = [answer_dtype(schema.question(name)) for name in schema.target_names]
        self.bins = Growing(first, bin_dtype(schema.stored), len(schema.stored), most)
        self.answers = [Growing(path, kind, None, most) for path, kind in zip(answer_paths, kinds, strict=True)]
        self.cells = Growing(folder / cells_file(), np.uint16, self._numbers, most)
        self.held = Growing(folder / HELD, np.bool_, None, most) if held else None
        self.firsts = Growing(folder / firsts_file(), np.bool_, None, most) if firsts else None
        self.who, self._before = None, before
        if before is not None:
            self.who = Growing(folder / WHO, np.uint64, WORDS, most)

    def write(self, batch: pa.RecordBatch, start: int, used: int, own: Any) -> None:
        """Write the rows of a batch that are `own`, from place `used` on; `start`: the place of its first in the
        file.
        """
        for kind, at, codes in self._coder.code(batch, start, own):
            if kind == "answers":
                self.answers[at].write(0, used, codes)
            else:
                (self.bins if kind == "bins" else self.cells).write(at, used, codes)

    def close(self) -> None:
        """Close the files."""
        for file in (self.bins, *self.answers, self.cells, self.held, self.firsts, self.who):
            if file is not None:
                file.close()

    def done(self, rows: int, parting: Parting | None) -> Packed:
        """Return what was written: in two parts by `parting`, of units, as was said of each row, or of records."""
        bins, answers = self.bins.done(rows), tuple(file.done(rows) for file in self.answers)
        cells = self.cells.done(rows)
        firsts = [] if self.firsts is None else [self.firsts.done(rows)]
        if not self._numbers:
            self.cells.path.unlink()
        since = None
        if self.who is not None and self._before is not None:
            blocks = self._before.since(self.who.done(rows), self._folder)
            self.who.path.unlink()
            if self._before.bounds:
                file = Growing(self._folder / since_file(), np.uint32, None, rows)
                file.write(0, 0, blocks)
                since = file.done(rows)
        if parting is None:
            return Packed(bins, answers, cells, since=since)
        if self.held is None:
            aside = parting.of_records([*bins, *answers, *cells], self._folder)
        else:
            aside = self.held.done(rows)
            self.held.path.unlink()
        arrays = [bins, *answers, *firsts, *([cells] if self._numbers else []), *([] if since is None else [since])]
        aside_part, learnt_part = (
            self._part(arrays, part, which) for part, which in ((HOLDOUT, aside), (None, ~aside))
        )
        return replace(learnt_part, aside=aside_part)

    def _part(self, whole: Sequence[NDArray[Any]], part: str | None, own: NDArray[np.bool_]) -> Packed:
        """Write the rows of `whole` that `own` marks to the files of `part`; in place of `whole` where that is None."""
        count, names = int(np.count_nonzero(own)), row_files(self._targets, part)
        names += [] if self.firsts is None else [firsts_file(part)]
        names += [cells_file(part)] if self._numbers else []
        bounded = self._before is not None and self._before.bounds
        names += [since_file(part)] if bounded else []
        arrays = []
        for name, array in zip(names, whole, strict=True):
            with replacing(self._folder / name) as partial:
                arrays.append(write_chosen(array, own, count, partial))
        since = arrays.pop() if bounded else None
        cells = arrays.pop() if self._numbers else np.empty((0, count), np.uint16)
        return Packed(arrays[0], tuple(arrays[1 : self._targets + 1]), cells, since=since)


def check_packed(schema: Schema, data: Path, packed: Packed, relation: Relation) -> None:
    """Raise DataError where the rows are not as many as replace-one promises; and for a column that hardly a cell fits,
    unless the schema says that this is expected: nothing could be learnt of it.
    """
    if relation is Relation.REPLACE_ONE and packed.labels.size != schema.records:
        raise DataError(
            f"records={schema.records}: under replace-one the number of rows is public and must be exact; it is another"
        )
    check_counts(schema, data, packed.counts)


def check_counts(schema: Schema, data: Path, counts: Mapping[str, ColumnCount]) -> None:
    """Raise DataError for the first column that hardly a cell fits, with how its cells differ from what is listed."""
    if (misfit := find_misfit(schema, counts)) is not None:
        name, found, remedies = misfit
        problems = [problem for problem in find_problems(schema, data).problems if problem.column == name]
        problem = problems[0] if problems else Problem(name, found, remedies)
        raise DataError(str(problem), column=name, problem=problem.to_json())
