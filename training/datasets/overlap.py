"""Whether the rows or the people of a new file stand in a registered dataset already, in any order, subset, choice of
columns, format, schema or target. docs/privacy/rows.md has the statistic, its proof and its two error rates.

A registration leaves a sketch beside its packed rows: fingerprints (keyed by the home) of a random sample of the
original rows, and of the ids in columns that name people. A later file is read whole against every sketch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from accountant.errors import DataError
from accountant.system.numpy_files import PARSING
from training.datasets.column_match import ColumnValues, count_matches, match_columns, pack_values, unpack_values
from training.rows.people.fingerprints import Hashes, bits_of, fingerprints, holds_fractions, mix, unmix

SKETCH = "sketch.npz"
FORM = 2  # of fingerprints: of texts as `fingerprints.plain_texts` has them
MOST_ROWS, MOST_CELLS = 1 << 15, 1 << 20  # of a sketch
MOST_COLUMNS = 64
MOST_VALUES = 1 << 16  # distinct rows that are counted, at one choice of columns
ALL_VALUES = 1 << 19  # at all choices together
MOST_PEOPLE = 1 << 16
NOTICEABLE = 0.01
LEAST_PEOPLE = 100  # of a file, or of a column of ids, that is compared: fewer would be an answer about each
LEAST_SHARED = 10  # people: whether one of them is there makes no difference where nine others are not known to be
LEVEL = 1e-6 / 3  # of one comparison; a dataset is compared by three choices of columns
SURPRISING = 10
DENSE = 10  # row numbers: whole, never twice, and at least every tenth of their range is used


@dataclass(frozen=True, eq=False)
class People:
    """The distinct ids of a column whose fingerprint is below `limit`, ascending, and how often each stands there."""

    ids: Hashes
    counts: NDArray[np.int64]
    limit: np.uint64

    def below(self, limit: np.uint64) -> Hashes:
        """Return the ids under `limit`, ascending."""
        return self.ids[self.ids < limit]

    @property
    def part(self) -> float:
        """Estimate which share of all ids these are."""
        return float(self.limit) / 2.0**64

    @property
    def distinct(self) -> float:
        """Estimate how many different ids the column has; exact where all of them are held."""
        return len(self.ids) / self.part


@dataclass(frozen=True, eq=False)
class Sketch:
    """`cells` (sampled rows, columns): fingerprints under the column's name. `rows`: how many the file had. `matching`:
    of each column the values by which others are matched to it; empty where they are not worked out yet.
    """

    targets: tuple[str, ...]
    columns: tuple[str, ...]
    cells: Hashes
    rows: int
    people: Mapping[str, People]
    matching: dict[str, ColumnValues] = field(default_factory=dict)

    def write(self, file: IO[bytes]) -> None:
        """Write the sketch as an .npz file of plain arrays; counts are left out."""
        arrays: dict[str, Any] = {
            "target": np.array(self.targets),
            "columns": np.array(self.columns),
            "cells": self.cells,
            "rows": np.array(self.rows),
            "form": np.array(FORM),
            **pack_values([self.matching[name] for name in self.columns if name in self.matching]),
        }
        names = np.array(list(self.people), dtype=str)
        limits = np.array([people.limit for people in self.people.values()], np.uint64)
        parts = {f"people{at}": people.ids for at, people in enumerate(self.people.values())}
        np.savez(file, allow_pickle=False, **{**arrays, "names": names, "limits": limits, **parts})

    @classmethod
    def read(cls, path: Path) -> Sketch:
        """Read what `write` wrote, nothing pickled. DataError where the file is damaged."""
        try:
            with PARSING, np.load(path, allow_pickle=False) as file:
                ids = [file[f"people{at}"] for at in range(len(file["names"]))]
                people = {
                    name: People(these, np.zeros(0, np.int64), limit)
                    for name, these, limit in zip(file["names"].tolist(), ids, file["limits"], strict=True)
                }
                targets = tuple(file["target"].tolist())
                columns, rows = tuple(file["columns"].tolist()), int(file["rows"])
                if file["form"] != FORM:
                    raise ValueError
                values = unpack_values(file) if "values" in file else []
                matching = dict(zip(columns, values, strict=True)) if values else {}
                return cls(targets, columns, file["cells"], rows, people, matching)
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise DataError(
                f"datasets/{path.parent.name}/{path.name}: cannot be read ({type(error).__name__}), so nobody can say "
                "whether the same people stand in that dataset; put it back from a copy of the home"
            ) from None

    def hashes(self, columns: Iterable[str]) -> Hashes:
        """Return (sampled rows,): a hash of each row, over these columns alone, in no order."""
        places = [self.columns.index(column) for column in columns]
        return np.asarray(self.cells[:, places].sum(axis=1, dtype=np.uint64))

    def hashes_as(self, names: Mapping[str, str], key: Callable[[str], np.uint64]) -> Hashes:
        """Return (sampled rows,): a hash of each row, over the columns that are `names`' values, as if they were called
        as its keys are; `key`: a column's, by its name.
        """
        total = np.zeros(len(self.cells), np.uint64)
        for name, column in names.items():
            total += mix(unmix(self.cells[:, self.columns.index(column)], key(column)), key(name))
        return total

    def equals(self, other: Sketch) -> bool:
        """Return whether both are of the same rows, in the same order of a file."""
        alike = (self.rows, self.columns) == (other.rows, other.columns)
        same_people = all(
            np.array_equal(people.ids, other.people[name].ids)
            for name, people in self.people.items()
            if name in other.people
        )
        return alike and same_people and np.array_equal(self.cells, other.cells)

    def values(self, word: Callable[[str], np.uint64]) -> dict[str, ColumnValues]:
        """Return the values of each column, to match columns by; `word`: the home's, about a text."""
        if not self.matching:
            common = word("a value of any column")
            for at, name in enumerate(self.columns):
                cells = np.ascontiguousarray(self.cells[:, at])
                self.matching[name] = ColumnValues.of(cells, word("column " + name), common)
        return self.matching

    def repeats(self, column: str) -> float:
        """Return how likely two different rows of the sample agree in this column."""
        if column not in self._repeats:
            cells = self.cells[:, self.columns.index(column)]
            counts = np.unique(cells, return_counts=True)[1].astype(float)
            size = max(2, len(self.cells))
            self._repeats[column] = float((counts * (counts - 1)).sum()) / (size * (size - 1))
        return self._repeats[column]

    @cached_property
    def _repeats(self) -> dict[str, float]:
        return {}

    def numbers_rows(self, column: str, key: np.uint64) -> bool:
        """Return whether a column numbers the rows, so that every file that does has the same values; `key`: the
        column's.
        """
        words = self.cells[:, self.columns.index(column)]
        numbers = unmix(words, key).view(np.float64)
        if len(words) < 2 or not (np.isfinite(numbers) & (np.abs(numbers) < 2**53)).all():
            return False
        are_whole = bool((numbers == np.floor(numbers)).all())
        return are_whole and len(np.unique(words)) == len(words) and bool(np.ptp(numbers) < DENSE * self.rows)


def merge_sketches(sketches: Iterable[Sketch]) -> Sketch:
    """Merge sketches into one of all their rows, of the columns that each has: every file's rows sampled at one rate,
    so that it is no larger than that of one file. Rows are chosen by their places alone, never by what stands in them.
    """
    parts: list[Sketch] = []
    for sketch in sketches:
        parts.append(sketch)
        if sum(len(part.cells) for part in parts) > 2 * MOST_ROWS:
            parts = _at_one_rate(parts)
    parts = _at_one_rate(parts)
    columns = tuple(name for name in parts[0].columns if all(name in part.columns for part in parts))
    cells = [part.cells[:, [part.columns.index(name) for name in columns]] for part in parts]
    targets = tuple(dict.fromkeys(name for part in parts for name in part.targets))
    naming = dict.fromkeys(name for part in parts for name in part.people)
    people = {name: _all_people([part.people[name] for part in parts if name in part.people]) for name in naming}
    return Sketch(targets, columns, np.concatenate(cells), sum(part.rows for part in parts), people)


def _at_one_rate(held: Sequence[Sketch]) -> list[Sketch]:
    rate = min([len(sketch.cells) / max(1, sketch.rows) for sketch in held])
    rate = min(rate, MOST_ROWS / max(1, sum(sketch.rows for sketch in held)))
    sampled = []
    for sketch in held:
        size = min(len(sketch.cells), round(rate * sketch.rows))
        places = np.linspace(0, len(sketch.cells) - 1, size).astype(np.int64) if size else slice(0, 0)
        sampled.append(replace(sketch, cells=sketch.cells[places], matching={}))
    return sampled


def _all_people(found: Sequence[People]) -> People:
    limit = min(people.limit for people in found)
    ids = np.unique(np.concatenate([people.below(limit) for people in found]))
    if len(ids) > MOST_PEOPLE:
        ids, limit = ids[:MOST_PEOPLE], ids[MOST_PEOPLE]
    return People(ids, np.zeros(0, np.int64), limit)


class Values:
    """Distinct words of a stream with their counts: those below a limit which falls so that at most `most` are held."""

    def __init__(self, most: int) -> None:
        self._most, self.limit = most, np.uint64(2**64 - 1)
        self._values, self._counts = np.zeros(0, np.uint64), np.zeros(0, np.int64)
        self._waiting: list[Hashes] = []
        self._number = 0

    def add(self, words: Hashes) -> None:
        """Count these, as often as each stands there: (n,)."""
        words = words[words < self.limit]
        self._waiting.append(words)
        self._number += len(words)
        if self._number > self._most:
            self._settle()

    def _settle(self) -> None:
        fresh, counts = np.unique(np.concatenate([np.zeros(0, np.uint64), *self._waiting]), return_counts=True)
        self._waiting, self._number = [], 0
        values, which = np.unique(np.concatenate([self._values, fresh]), return_inverse=True)
        sums = np.bincount(which, np.concatenate([self._counts, counts]), len(values)).astype(np.int64)
        if len(values) > self._most:
            self.limit = values[self._most]
        self._values, self._counts = values[: self._most], sums[: self._most]

    def found(self) -> People:
        """Return the smallest values so far, with their counts."""
        self._settle()
        return People(self._values, self._counts, self.limit)


class Scan:
    """Reads a file's batches for its own sketch and against `known` ones. `naming`: columns that may name people."""

    def __init__(
        self,
        key: bytes,
        targets: Sequence[str],
        columns: Sequence[str],
        naming: Sequence[str],
        known: Mapping[str, Sketch],
    ) -> None:
        self._key, self._targets = key, tuple(targets)
        self.columns = tuple(sorted(columns, key=lambda name: int(self._word("column " + name)))[:MOST_COLUMNS])
        self.names = frozenset({*self.columns, *naming})
        self._words = {name: self._word("column " + name) for name in self.columns}
        self._value, self._place = self._word("value"), self._word("place")
        most = max(1 << 12, ALL_VALUES // max(1, len(naming)))
        self._naming = {name: Values(min(MOST_PEOPLE, most)) for name in naming}
        self.known = known
        self.fractions: set[str] = set()  # of `naming`, those that hold numbers which are not whole
        self._choices = {name: choices(sketch, self._words, targets) for name, sketch in known.items()}
        chosen = {choice for column_choices in self._choices.values() for choice in column_choices}
        most = min(MOST_VALUES, max(1 << 12, ALL_VALUES // max(1, len(chosen))))
        self._counted = {choice: Values(most) for choice in chosen}
        self._most = min(MOST_ROWS, MOST_CELLS // max(1, len(self.columns)))
        self._limit = np.uint64(2**64 - 1)
        # Made once and written over: what is made and freed again for every batch breaks up the memory of packed bins.
        self._places = np.empty(2 * self._most, np.uint64)
        self._cells = np.empty((2 * self._most, len(self.columns)), np.uint64)
        self._in = {name: frozenset(choice for choice in chosen if name in choice) for name in self.columns}
        self._words_of = self._total = np.empty(0, np.uint64)
        self._sums = {where: np.empty(0, np.uint64) for where in self._in.values() if where}  # a column adds to one
        self._held = self.rows = 0
        self._made: Sketch | None = None

    def _word(self, about: str) -> np.uint64:
        return np.uint64(int.from_bytes(sha256(self._key + about.encode()).digest()[:8], "big"))

    def __call__(self, batch: pa.RecordBatch, start: int) -> None:
        """Take in a batch whose first row is the file's row `start`, from 0."""
        for first in range(0, len(batch), self._most):
            self._take(batch.slice(first, self._most), start + first)

    def _take(self, batch: pa.RecordBatch, start: int) -> None:
        size = len(batch)
        if size > len(self._words_of):
            self._words_of, self._total = np.empty(size, np.uint64), np.empty(size, np.uint64)
            self._sums = {where: np.empty(size, np.uint64) for where in self._sums}
        words, total = self._words_of[:size], self._total[:size]
        sums = {where: part[:size] for where, part in self._sums.items()}
        for part in sums.values():
            part.fill(0)
        places = mix(np.arange(start, start + size, dtype=np.uint64), self._place)
        chosen = np.flatnonzero(places < self._limit)
        rows = slice(self._held, self._held + len(chosen))
        self._places[rows] = places[chosen]
        for name in self.names:
            if name in self._naming:
                self._look_at_ids(name, batch[name])
            if name not in self._words or not fingerprints(batch[name], self._value, self._words[name], words):
                continue
            self._cells[rows, self.columns.index(name)] = words[chosen]
            if self._in[name]:
                sums[self._in[name]] += words
        for choice, counted in self._counted.items():
            total.fill(0)
            for where, part in sums.items():
                if choice in where:
                    total += part
            counted.add(total)
        self._held += len(chosen)
        self.rows += size
        if self._held > self._most:
            self._settle()

    def _look_at_ids(self, name: str, column: pa.Array) -> None:
        if name not in self.fractions and holds_fractions(column):
            self.fractions.add(name)
        bits = bits_of(column, self._value)
        if bits is not None:
            self._naming[name].add(mix(bits, self._value))

    def _settle(self) -> None:
        """Keep the rows with the smallest places: those beyond the middle move into the gaps before it."""
        if self._held <= self._most:
            return
        places = self._places[: self._held]
        self._limit = np.partition(places, self._most)[self._most]
        gaps = np.flatnonzero(places[: self._most] >= self._limit)
        movers = self._most + np.flatnonzero(places[self._most :] < self._limit)
        for first in range(0, len(gaps), 512):
            to, of = gaps[first : first + 512], movers[first : first + 512]
            self._places[to], self._cells[to] = self._places[of], self._cells[of]
        self._held = self._most

    def sketch(self) -> Sketch:
        """Return the sketch of all rows taken in."""
        if self._made is not None and self._made.rows == self.rows:
            return self._made
        self._settle()
        people = {name: values.found() for name, values in self._naming.items()}
        cells = self._cells[: self._held].copy()
        self._made = Sketch(self._targets, self.columns, cells, self.rows, people)
        self._made.values(self._word)
        return self._made

    def same_people(self, name: str, own: Sketch) -> float:
        """Return the share of the people of `own` that stand in the registered dataset `name`, as `same_people`."""
        stored = self.known[name]
        pairs = [same_people(these, theirs) for these in own.people.values() for theirs in stored.people.values()]
        return max(pairs, default=0.0)

    def same_rows(self, name: str, own: Sketch, part: Sketch | None = None, by_values: bool = True) -> float:
        """Return the share of the file's rows that stand in the registered dataset `name`, or in a `part` of it, or of
        its rows in the file, whichever is larger; 0 where it is too small to notice, or chance could do it. Columns are
        matched by their names; where so nothing is found, by their values, unless `by_values` is False: the people of
        another block come again, and what they have in common with themselves is no copied row.
        """
        stored, shares = part or self.known[name], [0.0]
        for choice in self._choices[name]:
            counted = self._counted[choice].found()
            sampled = stored.hashes(choice)
            theirs, times = np.unique(sampled[sampled < counted.limit], return_counts=True)
            if not len(theirs) or not len(counted.ids):
                continue
            either = [sketch.repeats(column) for column in choice for sketch in (stored, own)]
            chance = len(sampled) * own.rows * counted.part * prod(either) ** 0.5
            shares.append(_share(theirs, times, counted, stored.rows / len(sampled), chance, LEVEL))
        return max(shares) or (self._same_rows_by_values(stored, own) if by_values else 0.0)

    def _same_rows_by_values(self, known: Sketch, own: Sketch) -> float:
        """Return `same_rows` of sampled rows alone, over columns that hold the same values under whatever names. The
        level is divided by the number of ways to match columns, so that a match which was chosen by looking keeps it.
        """
        if not len(own.cells) or not len(known.cells):
            return 0.0
        matches = match_columns(known.values(self._word), own.values(self._word))
        matches = {
            name: own_name for name, own_name in matches.items() if not known.numbers_rows(name, self._column(name))
        }
        level = LEVEL / count_matches(len(known.columns), len(own.columns))
        targets = {*known.targets, *(name for name, own_name in matches.items() if own_name in own.targets)}
        repeating = [name for name in matches if known.repeats(name) > 0]
        shares = [0.0]
        for choice in {tuple(matches), tuple(name for name in matches if name not in targets), tuple(repeating)} - {()}:
            theirs, times = np.unique(known.hashes(choice), return_counts=True)
            mine = own.hashes_as({name: matches[name] for name in choice}, self._column)
            counted = People(*np.unique(mine, return_counts=True), limit=np.uint64(2**64 - 1))
            either = [*(known.repeats(name) for name in choice), *(own.repeats(matches[name]) for name in choice)]
            chance = len(known.cells) * len(own.cells) * prod(either) ** 0.5
            scale = known.rows / len(known.cells)
            shares.append(_share(theirs, times, counted, scale, chance, level))
        return max(shares)

    def _column(self, name: str) -> np.uint64:
        return self._word("column " + name)


def choices(known: Sketch, columns: Mapping[str, np.uint64], targets: Sequence[str]) -> tuple[frozenset[str], ...]:
    """Return the columns by which rows are compared: all that both have, but for row numbers, which strangers share;
    all but the targets, which may be coded anew; and the ones in which the known rows ever repeat, so that other keys
    which were written anew hide nothing. `columns`: their keys, by their names.
    """
    common = [name for name in known.columns if name in columns and not known.numbers_rows(name, columns[name])]
    repeating = [name for name in common if known.repeats(name) > 0]
    without_targets = [name for name in common if name not in (*targets, *known.targets)]
    sets = {frozenset(common), frozenset(without_targets), frozenset(repeating)} - {frozenset()}
    return tuple(sorted(sets, key=len, reverse=True))


def _share(
    theirs: Hashes, times: NDArray[np.int64], counted: People, scale: float, chance: float, level: float
) -> float:
    at = np.minimum(np.searchsorted(counted.ids, theirs), len(counted.ids) - 1)
    both = counted.ids[at] == theirs
    mine = np.zeros(len(counted.ids), np.bool_)
    mine[at[both]] = True
    once_each = int((both & (times == 1) & (counted.counts[at] == 1)).sum())
    twice_there, twice_here = int((~both & (times == 2)).sum()), int((~mine & (counted.counts == 2)).sum())
    share = max(times[both].sum() / times.sum(), min(1.0, scale * times[both].sum() / counted.counts.sum()))
    surprising = once_each > SURPRISING * chance and crossing_chance(once_each, twice_there, twice_here) <= level
    return float(share) if surprising and share >= NOTICEABLE else 0.0


def crossing_chance(once_each: int, twice_there: int, twice_here: int) -> float:
    """Return the chance of so many or more values that stand once in each of two files, given all values that stand
    twice in the two together, where the files are independent draws from any two populations (docs/privacy/rows.md).

    At its largest, with one population: P(h) ~ 2^h / ((there)! h! (here)!), where 2 there + h and 2 here + h are given.
    """
    there, here = 2 * twice_there + once_each, 2 * twice_here + once_each
    crossing = np.arange(there % 2, min(there, here) + 1, 2)
    factorial = np.cumsum(np.log(np.maximum(1, np.arange(max(there, here) + 1))))  # its logarithm
    terms = factorial[(there - crossing) // 2] + factorial[crossing] + factorial[(here - crossing) // 2]
    logs = crossing * np.log(2) - terms
    weights = np.exp(logs - logs.max())
    return float(weights[crossing >= once_each].sum() / weights.sum())


def same_people(own: People, known: People) -> float:
    """Return the share of one's ids that stand in the other, of the smaller one; 0 below NOTICEABLE, where fewer than
    LEAST_SHARED of those that are held stand in both, or where the file has fewer than LEAST_PEOPLE.
    """
    limit = min(own.limit, known.limit)
    mine, theirs = own.below(limit), known.below(limit)
    shared = len(np.intersect1d(mine, theirs, assume_unique=True))
    share = shared / max(1, min(len(mine), len(theirs)))
    noticeable = share >= NOTICEABLE and shared >= LEAST_SHARED and own.distinct >= LEAST_PEOPLE
    return share if noticeable else 0.0
