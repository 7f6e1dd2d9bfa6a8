"""What becomes of the cells of each column, counted while rows are read. Exact, so for the steward of the rows alone:
shown before they are registered, stored in no ledger, and told to nobody else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from models.features.column_law import is_text, places_in, plain_column
from models.features.features import BooleanFeature, CategoricalFeature, Feature, NumericFeature
from models.features.written import Written, lone_truths
from training.rows.packed.cells import Span
from training.rows.sources.cell_kinds import NOTE
from training.rows.tables.near_misses import BLANKS, NearMisses
from training.rows.tables.remedies import Remedy, Unsaid, describe_remedies, write_anew

if TYPE_CHECKING:
    from training.rows.schema.row_weight import RowWeight
    from training.rows.schema.schema import Schema

LEAST_LISTED, LEAST_WITHIN = 0.5, 0.1  # of the cells that are there
MOST_MISSES = 0.01  # of the cells that are there: so many that differ from a listed one in form are asked about
TRIM = (Remedy({"trim": True}, "format", how="(then blanks about a text do not count)"),)
AS_WRITTEN = (Remedy({"values": Unsaid.WRITTEN}), *write_anew("write the cells as listed"))
EMPTY = (
    "no cell of the column holds anything",
    (Remedy({"ignore": [Unsaid.COLUMN]}, "schema"), *write_anew("fill it in")),
)
OF_RANGE = (Remedy({"range": Unsaid.KNOWN}), Remedy({"outside": "expected"}))
OF_VALUES = (
    Remedy({"values": Unsaid.KNOWN}),
    Remedy({"other": "expected"}),
    *write_anew("write the cells as listed"),
)
OF_TRUTHS = (
    Remedy({"true_words": Unsaid.WRITTEN, "false_words": Unsaid.WRITTEN}, how="(no other word is read then)"),
    Remedy({"missing_words": [Unsaid.CELL]}, how="where it stands for a missing value"),
)
OF_NOTES = (
    Remedy({"missing_words": [Unsaid.CELL]}, how="where it is a note, and no number"),
    *write_anew("write -1 in place of (1)"),
)
PARTS = ("fits", "clipped", "other", "missing", "refused")


@dataclass
class ColumnCount:
    """Counts the cells of a column: those that are `missing`; `clipped`, outside of the declared range; `other`, none
    of the listed values; `refused`, which cannot be read; and the rest, which fit. `span`: the declared range, None
    where there is none; `expected`: most cells may be other, or clipped; `may_be_empty`: all may be missing. `misses`:
    of those that are other, how many differ from a listed value in form alone, by how; `truths`: words for yes and no
    that no schema lists; `notes`: whole numbers below 100 in brackets, and `bracketed` all that are.
    """

    name: str
    feature: Feature | None
    span: Span | None = None
    expected: bool = False
    cells: int = 0
    missing: int = 0
    clipped: int = 0
    other: int = 0
    refused: int = 0
    may_be_empty: bool = False
    misses: Counter[str] = field(default_factory=Counter)
    truths: set[str] = field(default_factory=set)
    notes: int = 0
    bracketed: int = 0

    @property
    def fits(self) -> int:
        """Count the cells that are listed, or lie within the range."""
        return self.cells - self.missing - self.clipped - self.other - self.refused

    def add(self, cells: int, missing: int) -> None:
        """Count cells that are missing, or fit."""
        self.cells += cells
        self.missing += missing

    def add_numbers(self, numbers: NDArray[np.float64]) -> None:
        """Count numbers, NaN where missing."""
        self.add(len(numbers), int(np.count_nonzero(np.isnan(numbers))))
        if self.span is not None:
            low, high = self.span
            self.clipped += int(np.count_nonzero((numbers < low) | (numbers > high)))

    def add_codes(self, codes: NDArray[Any]) -> None:
        """Count the codes of a category or of a truth value."""
        assert self.feature is not None
        self.add(len(codes), int(np.count_nonzero(codes == self.feature.missing)))
        if isinstance(self.feature, CategoricalFeature):
            self.other += int(np.count_nonzero(codes == len(self.feature.values)))

    def add_misses(self, texts: Iterable[tuple[str, int]]) -> None:
        """Count texts that are not listed, each with how often it stands there, by how they are like a listed one."""
        for text, times in texts:
            if (form := self.near_misses(text)) is not None:
                self.misses[form] += times

    @cached_property
    def near_misses(self) -> NearMisses:
        """Return what finds those that are like a listed value."""
        assert isinstance(self.feature, CategoricalFeature)
        return NearMisses(self.feature.values)

    def see(self, column: pa.Array, written: Written) -> None:
        """Take in cells as they stand in the file, for what may be read as it is not meant."""
        if isinstance(self.feature, CategoricalFeature) or not is_text(column.type) or written.true or written.false:
            return
        words = plain_column(column)
        words = words if pa.types.is_dictionary(words.type) else words.dictionary_encode()
        texts = pc.utf8_trim_whitespace(words.dictionary.cast(pa.large_string()))
        if isinstance(self.feature, BooleanFeature):
            self.truths.update(text for text in texts.to_pylist() if text and text not in written.missing_words)
            return
        other = pc.invert(pc.is_in(texts, pa.array(written.missing, pa.large_string())))
        times = np.bincount(places_in(words), minlength=len(texts) + 1)[:-1]
        for name, pattern in (("bracketed", r"^\(.*[0-9].*\)$"), ("notes", NOTE)):
            fits = pc.and_(other, pc.match_substring_regex(texts, pattern)).fill_null(False)
            setattr(self, name, getattr(self, name) + int(times[np.asarray(fits, bool)].sum()))

    @property
    def _remedy_of_misses(self) -> tuple[Remedy, ...]:
        return TRIM if self.misses.most_common(1)[0][0] == BLANKS else AS_WRITTEN

    def questions(self) -> dict[str, str]:
        """Return what is asked of the column before it is registered, each with its remedy: noticeably many cells that
        are read as other and differ from a listed value in form alone; words that may be a third answer beside yes and
        no; notes that would be read as numbers below 0.
        """
        misses, present, asked = self.misses.total(), self.cells - self.missing - self.refused, {}
        if misses and misses >= MOST_MISSES * present:
            share, form = _percent(misses, self.cells), self.misses.most_common(1)[0][0]
            asked[f"{share} of the cells are as a listed value but for {form}, and are read as other"] = (
                self._remedy_of_misses
            )
        if lone := lone_truths(self.truths):
            asked[f"{' and '.join(lone)} beside other words for yes and no: is read as one of these"] = OF_TRUTHS
        if self.notes and self.notes == self.bracketed:
            asked[f"{_percent(self.notes, self.cells)} of the cells are like (1), and are read as below 0"] = OF_NOTES
        return {f"{self.name}: {words}": f"{self.name}: {describe_remedies(each)}" for words, each in asked.items()}

    def problem(self) -> tuple[str, tuple[Remedy, ...]] | None:
        """Return what refuses the column, and the remedies: a list or a range that hardly a cell fits, or that nothing
        stands in it.
        """
        present = self.cells - self.missing - self.refused
        if self.cells and self.missing == self.cells and not self.may_be_empty:
            return EMPTY
        if self.expected or not present:
            return None
        if self.span is not None and self.fits < LEAST_WITHIN * present:
            found = f"{self.clipped / present:.0%} of the cells lie outside of the range"
            return found, OF_RANGE
        if self.other and self.fits < LEAST_LISTED * present:
            found = f"{self.other / present:.0%} of the cells are not listed under `values`"
            if 2 * self.misses.total() > self.other:
                return f"{found}: they have {self.misses.most_common(1)[0][0]}", self._remedy_of_misses
            return found, OF_VALUES
        return None

    def shares(self) -> list[str]:
        """Return the share of each of PARTS for people: exact in its tenths, and neither 0 nor all is rounded to."""
        return [_percent(getattr(self, part), self.cells) for part in PARTS]

    def to_json(self) -> dict[str, Any]:
        """Return the shares of all cells, for the steward's programs."""
        shares = {part: getattr(self, part) / max(1, self.cells) for part in PARTS}
        return {"column": self.name, **shares, "like_listed": self.misses.total() / max(1, self.cells)}


def _percent(part: int, whole: int) -> str:
    if not part:
        return "-"
    share = part / whole
    if part < whole and not 0.0005 <= share < 0.9995:
        return "< 0.1 %" if share < 0.5 else "> 99.9 %"
    return f"{share:.1%}".replace("%", " %")


def counts_of(schema: Schema) -> dict[str, ColumnCount]:
    """Return a count of each column that a schema reads, all at nothing: of a feature where the column is one, and of a
    target alone where `feature` is None. A column that is a group alone may hold anything.
    """
    counts = {
        feature.name: ColumnCount(
            feature.name, feature, _declared_range(schema, feature), feature.name in schema.expected
        )
        for feature in schema.features
    }
    for group in schema.groups:
        counts.setdefault(
            group.name, ColumnCount(group.name, group, _declared_range(schema, group), True, may_be_empty=True)
        )
    if schema.weight is not None:
        counts[schema.weight.column] = ColumnCount(schema.weight.column, schema.weight.feature, expected=True)
    for target in schema.targets:
        counts.setdefault(
            target.name,
            ColumnCount(target.name, None, target.range, target.name in schema.expected, may_be_empty=True),
        )
    return counts


def _declared_range(schema: Schema, feature: Feature) -> Span | None:
    """Return the declared range; None where cut points are declared, for beyond the last of them is a bin as well."""
    if not isinstance(feature, NumericFeature) or feature.name not in schema.ends:
        return None
    return schema.ends[feature.name] if schema.ends[feature.name][1] > feature.edges[-1] else None


def find_misfit(schema: Schema, counts: Mapping[str, ColumnCount]) -> tuple[str, str, tuple[Remedy, ...]] | None:
    """Return the first column that is refused for what its cells are, with what was found and the remedies; the name is
    "" where no cell of any feature fits.
    """
    for count in counts.values():
        if problem := count.problem():
            return count.name, *problem
    features = [counts[feature.name] for feature in schema.features]
    if any(count.fits or not count.cells for count in features) or all(count.expected for count in features):
        return None
    return "", "no cell of any feature fits the schema", write_anew("declare the columns as the file has them")


def weight_faults(
    weight: RowWeight, numbers: NDArray[np.float64]
) -> Iterator[tuple[NDArray[np.bool_], str, tuple[Remedy, ...]]]:
    """Yield which of a column's numbers, NaN where missing, are no weights, what they are, and the remedies."""
    mend = (Remedy(deletes=True), *write_anew("write what the row weighs"))
    yield np.isnan(numbers), "nothing where a weight must stand", mend
    yield numbers < 0, "a weight below 0", mend
    if not weight.clips:
        clipping = {"column": weight.column, "most": float(weight.most), "above": "clip"}
        as_most = Remedy({"weight": clipping}, "schema", how="to count it as the most")
        yield numbers > float(weight.most), f"a weight above the most, {weight.most:f}", (as_most, *mend)
