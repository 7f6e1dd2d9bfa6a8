"""Which columns may name a person, the likeliest first: one answer for every door that asks, by what columns are called
and by how their values stand in the first rows of the file.

A column that numbers people comes before one that holds an address of theirs, and that before their own names, which
two people may have in common and one may spell in two ways. What is said of values is told to the steward who has the
file, and to nobody else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from accountant.errors import DataError
from models.features.written import Form
from training.rows.people.id_words import CONTACT, ID, NAME, kind_of_name, names_people
from training.rows.people.people import unit_ids
from training.rows.sources.cell_kinds import Kind
from training.rows.sources.folders import open_table
from training.rows.tables.data import reading
from training.rows.tables.form_search import kinds_of

MAX_ROWS = 100_000  # that are looked at
MOST = 20  # columns that are looked at, those first that are called as people are
SHOWN = 4  # candidates of which something is said
MOST_TIMES = 20  # rows to each id, about, of a column that is called nothing
BOUNDS = (1, 2, 5, 10)  # rows of one person that are used at most, for which it is said how many are not
VALUES = "values"  # of a column that is called nothing, and whose values repeat as ids do
_ORDER = (ID, VALUES, CONTACT, NAME)
LOOKED_AT = 50  # values, for whether a column holds days
Codes = NDArray[np.int64]  # of each row, which of the column's ids it has; -1: none


@dataclass(frozen=True)
class Candidate:
    """A column that may name a person. `kind`: ID, CONTACT or NAME by what it is called, or VALUES. `distinct`: ids in
    the `rows` that have one. `unused`: by a bound of BOUNDS, the share of these rows that would not be used.
    """

    column: str
    kind: str
    distinct: int
    rows: int
    unused: Mapping[int, float]

    @property
    def rank(self) -> tuple[int, bool]:
        """Return its place: by its kind, and last where it holds fewer values than ids of people are."""
        return _ORDER.index(self.kind), self.distinct <= self.rows**0.5

    @property
    def words(self) -> str:
        """Say how many there are, and what bounds would leave out."""
        said = f"{self.column}: {self.distinct:,} different ones in {self.rows:,} rows"
        if not self.unused[1]:
            return f"{said}, each of its own"
        shares = ", ".join(f"{100 * share:.2g} % with {bound}" for bound, share in self.unused.items() if share)
        return f"{said}; by the bound on rows of one person, not used are {shares}"


@dataclass(frozen=True)
class Candidates:
    """Columns that may name a person, the likeliest first, and what their values say of each other."""

    ranked: tuple[Candidate, ...] = ()
    pairs: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """Return their names."""
        return tuple(each.column for each in self.ranked)

    @property
    def words(self) -> tuple[str, ...]:
        """Say of the likeliest what tells them apart, line by line."""
        people = [each for each in self.ranked if each.kind != VALUES][:SHOWN]
        others = [each for each in self.ranked if each.kind == VALUES][: SHOWN - 2]
        return (*(each.words for each in self.ranked if each in people or each in others), *self.pairs)


def find_candidates(path: Path, form: Form, named: Collection[str], others: Collection[str] = ()) -> Candidates:
    """Rank the columns of a file that may name a person: those that are `named` as people are, and of `others` those
    whose values repeat as ids do. DataError where the file cannot be read.
    """
    wanted = [*named, *(name for name in others if name not in named)][:MOST]
    batches, rows = list[pa.RecordBatch](), 0
    with reading(path):
        if not wanted:
            return Candidates()
        for batch in open_table(path, form).batches(wanted, dict.fromkeys(wanted, pa.string())):
            batches.append(batch.slice(0, MAX_ROWS - rows))
            rows += len(batches[-1])
            if rows == MAX_ROWS:
                break
    return rank_candidates(dict(_codes_of(wanted, batches)))


def _codes_of(names: Sequence[str], batches: Sequence[pa.RecordBatch]) -> Iterator[tuple[str, Codes]]:
    """Yield each column that can hold ids, as numbers of its ids: told apart as people are everywhere."""
    for name in names:
        try:
            ids = pa.chunked_array([unit_ids(name, batch[name]) for batch in batches], pa.large_binary())
        except DataError:
            continue
        words = ids.combine_chunks().dictionary_encode()
        words = words.combine_chunks() if isinstance(words, pa.ChunkedArray) else words
        spelt = [str(each, "utf-8", "replace") for each in words.dictionary[:LOOKED_AT].to_pylist()]
        are_days = {*kinds_of(spelt)} <= {Kind.DATE} and not any(map(str.isdecimal, spelt))  # which ids may be, too
        if are_days and not names_people(name):
            continue
        yield name, words.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)


def repeats(distinct: int, rows: int) -> bool:
    """Return whether so many different values in so many rows repeat as ids of people with several rows do: some stand
    twice, and there are more of them than a list of categories has.
    """
    return bool(max(rows**0.5, rows / MOST_TIMES) < distinct < rows)


def rank_candidates(codes: Mapping[str, Codes]) -> Candidates:
    """Rank columns by their names and the numbers of their ids, row by row."""
    found = []
    for column, own in codes.items():
        times = np.bincount(own[own >= 0])
        rows, distinct = int(times.sum()), len(times)
        kind = kind_of_name(column) if names_people(column) else VALUES
        if rows and (kind != VALUES or repeats(distinct, rows)):
            unused = {bound: float(np.maximum(times - bound, 0).sum() / rows) for bound in BOUNDS}
            found.append(Candidate(column, kind, distinct, rows, unused))
    ranked = sorted(found, key=lambda each: each.rank)
    first, *others = [each.column for each in ranked if each.kind != VALUES][:SHOWN] or [""]
    pairs = [
        f"one {one} has several {other}: {count:,}"
        for second in others
        for one, other in ((first, second), (second, first))
        if (count := count_with_several(codes[one], codes[other]))
    ]
    return Candidates(tuple(ranked), tuple(pairs))


def count_with_several(one: Codes, other: Codes) -> int:
    """Count the ids of a column that stand in rows with more than one id of the other."""
    both = (one >= 0) & (other >= 0)
    pairs = np.unique(np.stack([one[both], other[both]]), axis=1)
    return int((np.bincount(pairs[0]) > 1).sum())
