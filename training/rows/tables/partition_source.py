"""The packed rows of one folder as a job asks for them: what is read of its files, and where it may be cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.system.numpy_files import map_array
from models.features.features import Codes
from training.rows.packed.cells import Cells, declared_ranges
from training.rows.packed.earlier_cells import map_cells
from training.rows.packed.names import cells_file, firsts_file, row_files, since_file
from training.rows.packed.scratch import scratch_array
from training.rows.partitions.partition import Partition
from training.rows.partitions.rows import order_by_weight
from training.rows.schema.schema import Schema
from training.rows.tables.data import has_answer

CHUNK = 1 << 24
Span = tuple[int, int]  # the first row of a piece, and the first behind it


@dataclass(frozen=True)
class Source:
    """A packed `folder` by its `schema`, and what a job reads of it: the `part` of the rows, one `target`, the public
    group that `by` names, and `fine` cells where rows stand in such. `begins`: of one person bounded over all
    blocks of a window the first block, where this folder is of another. `features`: those that are read; None: all.
    `firsts`: whether the first row of each person is read alone.
    """

    folder: Path
    schema: Schema
    target: str | None
    part: str | None = None
    by: str | None = None
    fine: bool = False
    begins: int | None = None
    features: tuple[str, ...] | None = None
    firsts: bool = False

    @property
    def asked(self) -> Schema:
        """Return the schema of what the job asks: one target, and the features that the job reads."""
        question = self.schema.question(self.target)
        if self.features is None:
            return question
        names = {*self.features}  # however many: they are the job's own, and were read when it was asked for
        return replace(question, features=tuple(feature for feature in question.features if feature.name in names))

    @property
    def files(self) -> list[str]:
        """Return the files that are read: the bins, the answers, and the fine cells."""
        first, *answer_files = row_files(len(self.schema.targets), self.part)
        answers = answer_files[self.schema.target_names.index(self.asked.target)]
        since = [] if self.begins is None else [since_file(self.part)]
        marks = [firsts_file(self.part)] if self.firsts else []
        return [first, answers, *([cells_file(self.part, self.folder)] if self.fine else []), *marks, *since]

    @property
    def size(self) -> int:
        """Count the rows in the files, including those without an answer."""
        return int(self._load(self.files[1]).size)

    def partitions(self, low: int, high: int, place: Path) -> list[Partition]:
        """Return the same rows as `partition`; where they have weights, those of each weight by themselves."""
        if self.schema.weight is None:
            return [self.partition(low, high, place)]
        column = self.schema.stored.index(self.schema.weight.feature)
        order, weights = order_by_weight(self._load(self.files[0])[column][low:high], self._used(low, high))
        return self._chosen(low, high, order, place).by_weight(weights)

    def partition(self, low: int, high: int, place: Path) -> Partition:
        """Return those of rows low .. high - 1 of the files that have an answer: which have one is decided row by row,
        so that adding a row adds at most that row; and those that are used of their person. `place`: where large
        derived arrays may lie.
        """
        return self._chosen(low, high, self._used(low, high), place)

    def _used(self, low: int, high: int) -> NDArray[np.bool_] | None:
        """Return which rows low .. high - 1 are used; None where all are."""
        present = has_answer(self._load(self.files[1])[low:high]) if self.asked.only.leave_out else None
        if self.begins is not None:
            used = self._load(self.files[-1])[low:high] < self.begins
            present = used if present is None else present & used
        if self.firsts:
            used = self._load(firsts_file(self.part))[low:high]
            present = used if present is None else present & used
        return present

    def _chosen(self, low: int, high: int, present: NDArray[Any] | None, place: Path) -> Partition:
        """Return rows low .. high - 1, those that are `present`, a mask or places in the order of the rows."""
        schema, question = self.schema, self.asked
        bins, labels = map(self._load, self.files[:2])
        columns = [at for at, feature in enumerate(schema.features) if feature in question.features]
        group = None if self.by is None else bins[schema.stored.index(schema.group(self.by)), :]
        about = [feature.bins for feature in question.features], len(question.classes or ())
        if present is None and len(columns) == len(schema.features):
            return Partition(bins[: len(columns)], labels, *about, group, self._cells(columns), low, high, place)

        def chosen(values: NDArray[Any]) -> NDArray[Any]:
            return values[low:high] if present is None else values[low:high][present]

        labels, group = chosen(labels), None if group is None else chosen(group)
        codes = scratch_array((len(columns), labels.size), bins.dtype.type, place)
        for out, column in zip(codes, columns, strict=True):
            out[:] = chosen(bins[column])
        return Partition(codes, labels, *about, group, self._cells(columns, chosen), folder=place)

    def _cells(self, columns: Sequence[int], chosen: Any = lambda codes: codes) -> Cells:
        question = self.asked
        features, ends = self.schema.features, self.schema.ends
        spans_of_all = declared_ranges(features, ends)
        numbers = [at for at in columns if spans_of_all[at] is not None]

        def load(number: int) -> Codes:
            return np.asarray(chosen(map_cells(self.folder, self.part, numbers[number], features, ends)), np.uint16)

        spans = declared_ranges(question.features, question.ends) if self.fine else (None,) * len(question.features)
        return Cells(question.features, spans, load if self.schema.weight is None else cache(load))

    def digest(self, low: int, high: int) -> str:
        """Compute the SHA-256 of rows low .. high - 1 as they lie in the files that are read."""
        digest = sha256()
        for name in self.files:
            array = self._load(name)
            for column in array if array.ndim == 2 else [array]:
                digest.update(np.ascontiguousarray(column[low:high]).data.cast("B"))
        return digest.hexdigest()

    def _load(self, name: str) -> NDArray[Any]:
        return map_array(self.folder / name)


class Digests:
    """The digest of every piece, of files that are read once from their beginning to their end for something else."""

    def __init__(self, source: Source, cuts: Iterable[Span]) -> None:
        self._source, self._cuts = source, list(cuts)
        self._found = [sha256() for _ in self._cuts]

    def __call__(self, name: str) -> Iterator[bytes]:
        """Add the bytes of one of the folder's files, in their order."""
        path, pieces = self._source.folder / name, self._source.files
        with path.open("rb") as file:
            if name in pieces:
                array = self._source._load(name)
                yield file.read(array.offset)  # type: ignore[attr-defined]  # of a mapped array: its header's length
                for _ in range(len(array) if array.ndim == 2 else 1):
                    for digest, (low, high) in zip(self._found, self._cuts, strict=True):
                        rest = (high - low) * array.itemsize
                        while rest and (chunk := file.read(min(rest, CHUNK))):
                            digest.update(chunk)
                            rest -= len(chunk)
                            yield chunk
            yield from iter(lambda: file.read(CHUNK), b"")

    def done(self) -> list[str]:
        """Return the digest of each piece, once its files were read in the order of `Source.files`."""
        return [digest.hexdigest() for digest in self._found]
