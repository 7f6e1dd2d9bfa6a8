"""How the cells of columns may be written: a search over the forms that a schema may declare, in which the law of
columns itself says of every cell what each form reads. Told to the steward of the file alone; nothing is read by it.

Of forms that read all cells alike the plainest is proposed; where two read a cell otherwise, it is for a person to say
which is meant.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress, groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from models.features.calendar import number_of
from models.features.column_forms import DATES, FIRST_YEAR, LIKELY_YEARS, NUMBERS
from models.features.column_law import NULLS, Misfit, plain_column, read_column
from models.features.date_patterns import has_short_year, problem_of
from models.features.features import CALENDAR, BooleanFeature, CalendarFeature, Feature, NumericFeature
from models.features.written import ISO_DATE, USUAL, Written
from training.rows.sources.cell_kinds import LONGEST, MISSING_WORDS, NO, YES, unit_beside

EMPTY, TEXT, TYPED = (
    "empty",
    "text",
    "typed",
)  # kinds of columns whose cells say nothing of a form, beside those of schemas
LONG = 40  # characters of what is no category any more
FIRST, RANDOM = 1_000, 1_000  # cells of a column that differ, by which its form is looked for; then all are read by it
HEAD = 4  # cells by which most forms are ruled out
AT_ONCE = 1 << 19  # cells of several columns
SHOWN = 5  # cells whose readings are shown side by side
YEARS = (1930, 1970)  # first years whose readings are shown where years have two digits
_FEATURES: Mapping[str, Feature] = {
    "boolean": BooleanFeature("cells"), "numeric": NumericFeature("cells", (0.0,)),
    **{kind: feature("cells", (0.0,)) for kind, feature in CALENDAR.items()},
}  # fmt: skip
_EARLIEST, _LATEST = (number_of("date", f"{year}-01-01") for year in LIKELY_YEARS)
Fits = NDArray[np.bool_]


@dataclass(frozen=True)
class Reading:
    """One way to read a column. `choice`: as a person chooses it; `declared`: what a schema then says; `meant`: what
    the cells of its question are by it; `public`: what is then publicly known.
    """

    choice: str
    declared: Mapping[str, Any]
    meant: tuple[str, ...]
    public: str = ""


@dataclass(frozen=True)
class Question:
    """Which of several readings is meant, where the cells do not say it: for the steward of the file alone, beside some
    `cells` that differ by them.
    """

    cells: tuple[str, ...]
    readings: tuple[Reading, ...]

    @property
    def choices(self) -> tuple[str, ...]:
        """Return the readings of which a person must choose one; none where another type is offered, or a year is
        asked for.
        """
        offered = any(each.choice in _FEATURES or "first_year" in each.choice for each in self.readings)
        return () if offered else tuple(each.choice for each in self.readings)

    def table(self) -> list[tuple[str, ...]]:
        """Return a line for each cell, what it is by each reading beside it; the readings first."""
        columns = [("CELL", *self.cells), *((each.choice, *each.meant) for each in self.readings)]
        return [*zip(*columns, strict=True)]

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Question:
        """Read what `asdict` gives, as JSON has it."""
        readings = (Reading(**{**each, "meant": tuple(each["meant"])}) for each in body["readings"])
        return cls(tuple(body["cells"]), tuple(readings))


@dataclass(frozen=True)
class ColumnForm:
    """How a column seems to be written. `kind`: a type of features, EMPTY, TEXT, or TYPED where it holds no texts.
    `written`: by which the law reads all of its cells; `question`: where others do as well, and mean something else.
    `missing`: words for a missing value. Of its `cells`, `long` ones and such with blanks about them (`padded`);
    `distinct` ones differ. `is_whole`: all are numbers without a mark.
    """

    kind: str
    written: Written = USUAL
    question: Question | None = None
    missing: tuple[str, ...] = ()
    cells: int = 0
    long: int = 0
    padded: int = 0
    distinct: int = 0
    is_whole: bool = False

    @property
    def declared(self) -> dict[str, Any]:
        """Return what a schema says of it besides type and range, of what the cells say."""
        return _declared(self.kind, self.written) | ({"missing_words": [*self.missing]} if self.missing else {})

    def reads(self, text: str) -> bool:
        """Return whether a text would be a cell of it that says something; never of texts."""
        if self.kind in (EMPTY, TEXT) or text.strip() in (*NULLS, *self.missing):
            return False
        return bool(_read(self.kind, pa.array([text.strip()], pa.large_string()), self.written)[1].all())


class Cells:
    """The cells of a column as they come: of the texts that differ, how often each stands there."""

    def __init__(self) -> None:
        self.long, self._words, self._counts = 0, list[pa.Array](), list[NDArray[np.int64]]()

    def add(self, column: pa.Array | pa.ChunkedArray) -> None:
        """Take in texts, or a dictionary of texts."""
        column = plain_column(column)
        words = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
        texts = words.dictionary.cast(pa.large_string())
        places = words.indices.drop_null().cast(pa.int64()).to_numpy(zero_copy_only=False)
        counts = np.bincount(places, minlength=len(texts))
        short = np.asarray(pc.less_equal(pc.utf8_length(texts), LONGEST).fill_null(False), bool)
        self.long += int(counts[~short].sum())
        short &= counts > 0
        self._words.append(texts.filter(pa.array(short)))
        self._counts.append(counts[short])

    def distinct(self) -> tuple[pa.Array, NDArray[np.int64]]:
        """Return the texts that differ, and how many cells hold each."""
        if len(self._words) != 1:
            words = pa.concat_arrays([pa.array([], pa.large_string()), *self._words]).dictionary_encode()
            places, counts = words.indices.to_numpy(), np.concatenate([np.zeros(0, np.int64), *self._counts])
            totals = np.bincount(places, counts, len(words.dictionary)).astype(np.int64)
            self._words, self._counts = [words.dictionary], [totals]
        return self._words[0], self._counts[0]


ZERO_OR_ONE = Question(
    ("0", "1"),
    (
        Reading("boolean", {"type": "boolean"}, ("no", "yes")),
        Reading("numeric", {"type": "numeric", "range": [0, 1]}, ("0", "1"), "0 .. 1"),
        Reading("categorical", {"type": "categorical", "values": ["0", "1"]}, ("a word", "a word"), "values: 0, 1"),
    ),
)


def find_forms(columns: Mapping[str, Cells]) -> dict[str, ColumnForm]:
    """Find how each column is written."""
    forms, chunk, size = dict[str, ColumnForm](), dict[str, Cells](), 0
    for name, cells in columns.items():
        chunk[name], size = cells, size + len(cells.distinct()[0])
        if size >= AT_ONCE:
            forms |= dict(zip(chunk, _Search([*chunk.values()]).forms(), strict=True))
            chunk, size = {}, 0
    return forms | (dict(zip(chunk, _Search([*chunk.values()]).forms(), strict=True)) if chunk else {})


def scattered(places: NDArray[np.intp], share: float | NDArray[np.float64]) -> Fits:
    """Return which places are chosen, about a share of them, without any order: the same ones each time."""
    return np.asarray((places * 2_654_435_761 + 97) % 2**32 < share * 2**32)


def _read(kind: str, texts: pa.Array, written: Written) -> tuple[NDArray[np.float64], Fits]:
    """Return what the law reads of texts, NaN where it does not, and which texts it does."""
    feature = _FEATURES[kind]
    try:
        return read_column(feature, texts, written), np.ones(len(texts), bool)
    except Misfit as misfit:
        fits = np.zeros(len(texts), bool) if misfit.cells is None else ~misfit.cells
    values = np.full(len(texts), np.nan)
    if fits.any():
        values[fits] = read_column(feature, texts.filter(pa.array(fits)), written)
    return values, fits


def number_forms(unit: str) -> tuple[Written, ...]:
    """Return the forms of numbers with a unit beside them ("": without), the plainest first."""
    return tuple(replace(form, unit_mark=unit) for form in NUMBERS)


def _of_days(*patterns: str) -> Written:
    year = next((FIRST_YEAR for pattern in patterns if has_short_year(pattern)), None)
    return Written(dates=patterns, first_year=year)


def kinds_of(texts: Sequence[str]) -> list[str]:
    """Return what each text would be as a cell, by any form: EMPTY, a type of features, or TEXT."""
    cells = pc.utf8_trim_whitespace(pa.array(texts, pa.large_string()))
    forms = {"numeric": number_forms(""), "date": tuple(map(_of_days, DATES)), "time": (USUAL,)}
    fits = {kind: _read_by_any(kind, cells, listed) for kind, listed in forms.items()}
    found = []
    for at, text in enumerate(cells.to_pylist()):
        kind = next((kind for kind in forms if fits[kind][at]), "numeric" if unit_beside(text) else TEXT)
        found.append(EMPTY if text in NULLS or text.lower() in MISSING_WORDS else kind)
    return found


def _words_of(owner: NDArray[np.intp], texts: pa.Array, chosen: Fits, count: int) -> list[set[str]]:
    """Return of each column the chosen texts."""
    words: list[set[str]] = [set() for _ in range(count)]
    for at, word in zip(owner[chosen].tolist(), texts.filter(pa.array(chosen)).to_pylist(), strict=True):
        words[at].add(word)
    return words


def _of_truths(yes: Collection[str], no: Collection[str]) -> Written:
    return Written(true=tuple(sorted(yes)), false=tuple(sorted(no)))


class _Search:
    """The cells of some columns one after the other, `texts` without blanks about them, each of an `owner`."""

    def __init__(self, columns: Sequence[Cells]) -> None:
        parts = [cells.distinct() for cells in columns]
        texts = pa.concat_arrays([words for words, _ in parts])
        counts = np.concatenate([counts for _, counts in parts])
        owner = np.repeat(np.arange(len(parts)), [len(words) for words, _ in parts])
        trimmed = pc.utf8_trim_whitespace(texts)
        present = ~np.asarray(pc.is_in(trimmed, pa.array(NULLS, pa.large_string())), bool)
        missing = pc.is_in(pc.utf8_lower(trimmed), pa.array(sorted(MISSING_WORDS - YES - NO), pa.large_string()))
        missing = present & np.asarray(missing, bool)
        self.count = len(parts)
        self.missing = _words_of(owner, trimmed, missing, len(parts))
        self.nulls = _words_of(owner, trimmed, ~present & np.asarray(pc.not_equal(trimmed, ""), bool), len(parts))
        present &= ~missing
        kept = pa.array(present)
        self.texts, self.owner, self.counts = trimmed.filter(kept), owner[present], counts[present]
        lines = pc.or_(pc.greater(pc.utf8_length(self.texts), LONG), pc.match_substring(self.texts, "\n"))
        self.beyond = np.array([cells.long for cells in columns], np.int64)
        self.long = self.beyond + self._sum(self.counts * np.asarray(lines, bool))
        self.padded = self._sum(self.counts * np.asarray(pc.not_equal(texts.filter(kept), self.texts), bool))
        self.cells = self.beyond + self._sum(self.counts)
        self.digits = np.asarray(pc.ascii_is_decimal(self.texts), bool)  # the same number in every form
        starts = np.searchsorted(self.owner, np.arange(self.count))
        self.place = np.arange(len(self.owner)) - starts[self.owner]  # of a cell in its column
        self.distinct = np.bincount(self.owner, minlength=self.count)
        more = RANDOM / np.maximum(1, self.distinct[self.owner] - FIRST)
        self.sample = (self.place < FIRST) | scattered(self.place, more)

    def _sum(self, numbers: NDArray[Any]) -> NDArray[np.int64]:
        return np.bincount(self.owner, numbers, self.count).astype(np.int64)

    def forms(self) -> Iterator[ColumnForm]:
        """Yield the form of each column: that of its sample, where it reads all cells; else that of all."""
        found = self._find(~self.beyond.astype(bool) & (self.distinct > 0))
        wrong = np.zeros(self.count, bool)
        rest = ~self.sample
        for at in np.unique(self.owner[rest]).tolist():
            if at in found:
                own = np.flatnonzero(rest & (self.owner == at))
                texts, form = self.texts.take(pa.array(own)), found[at]
                wrong[at] = form.kind != TEXT and not _read(form.kind, texts, form.written)[1].all()
        if wrong.any():
            self.sample |= wrong[self.owner]
            found = {at: form for at, form in found.items() if not wrong[at]} | self._find(wrong)
        for at in range(self.count):
            form = found.get(at) or ColumnForm(TEXT if self.cells[at] else EMPTY)
            # NA is missing in all kinds but a category, whose words may be anything
            missing = self.nulls[at] if form.kind == TEXT else self.missing[at]
            yield replace(
                form, missing=tuple(sorted(missing)), cells=int(self.cells[at]), long=int(self.long[at]),
                padded=int(self.padded[at]), distinct=int(self.distinct[at]),
            )  # fmt: skip

    def _find(self, left: Fits) -> dict[int, ColumnForm]:
        """Find the forms of columns by their sample, kind by kind; what is left are texts."""
        found = dict.fromkeys(np.flatnonzero(self._fitting("time", USUAL, left)[0]).tolist(), ColumnForm("time"))
        for find in (self._truths, self._numbers, self._days, self._measures):
            left = left & ~np.isin(np.arange(self.count), [*found])
            found |= find(left)
        return found

    def _fitting(
        self, kind: str, written: Written, columns: Fits, but: Fits | None = None
    ) -> tuple[Fits, NDArray[np.float64]]:
        """Return which of the columns have a sample that is read whole, leaving out some cells, by a few cells first;
        and what is read.
        """
        values = np.full(len(self.owner), np.nan)
        for part in (self.place < HEAD, self.sample):
            at = np.flatnonzero(part & columns[self.owner] & (True if but is None else ~but))
            values[at], fits = _read(kind, self.texts.take(pa.array(at)), written)
            columns = columns & (np.bincount(self.owner[at][~fits], minlength=self.count) == 0)
        return columns, values

    def _own(self, at: int) -> NDArray[np.intp]:
        """Return the places of a column's cells in the sample."""
        first, last = np.searchsorted(self.owner, [at, at + 1])
        own: NDArray[np.intp] = first + np.flatnonzero(self.sample[first:last])
        return own

    def _truths(self, left: Fits) -> dict[int, ColumnForm]:
        """Truth values have two words or more, of which those for 0 and 1 may be numbers as well."""
        both = _of_truths(YES, NO)
        found = dict[int, ColumnForm]()
        for at in np.flatnonzero(self._fitting("boolean", both, left & (self.distinct > 1))[0]).tolist():
            cells = self.texts.take(pa.array(self._own(at)))
            words = {text.lower() for text in cells.to_pylist()}
            if len(words) > 1:
                plain = _read("boolean", cells, USUAL)[1].all()
                own = words - USUAL.truths().keys()
                found[at] = ColumnForm("boolean", USUAL if plain else _of_truths(own & YES, own & NO))
                if words == {"0", "1"}:
                    found[at] = replace(found[at], question=ZERO_OR_ONE)
        return found

    def _measures(self, left: Fits) -> dict[int, ColumnForm]:
        """Find numbers beside which one of the units stands that people write."""
        found, units = dict[int, ColumnForm](), dict[str, Fits]()
        for at in np.flatnonzero(left).tolist():
            cells = self.texts.take(pa.array(self._own(at)))
            first = cells if self.plain[self._own(at)].any() else cells.slice(0, HEAD)
            unit = next(filter(None, map(unit_beside, first.to_pylist())), None)
            if unit is not None and Written(unit_mark=unit).problem() is None:
                units.setdefault(unit, np.zeros(self.count, bool))[at] = True
        for unit, columns in units.items():
            found |= self._numbers(columns, unit)
        return found

    def _numbers(self, left: Fits, unit: str = "") -> dict[int, ColumnForm]:
        fits = {form: self._fitting("numeric", form, left, self.digits) for form in number_forms(unit)}
        if not unit:
            self.plain = np.any([self.digits, *(~np.isnan(values) for _, values in fits.values())], axis=0)
        found = dict[int, ColumnForm]()
        for at in np.flatnonzero(np.any([columns for columns, _ in fits.values()], axis=0)).tolist():
            own = self._own(at)
            own = own[~self.digits[own]]
            if not len(own):
                found[at] = ColumnForm("numeric", is_whole=True)
                continue
            texts = self.texts.take(pa.array(own))
            forms = {form: values[own] for form, (columns, values) in fits.items() if columns[at]}
            forms = {form: values for form, values in forms.items() if _parts_thousands(form, texts, forms)}
            if forms:
                found[at] = _choose("numeric", texts, forms)
        return found

    def _days(self, left: Fits) -> dict[int, ColumnForm]:
        """Days have the fewest patterns that read them all, each the only one of some cell; else a person chooses."""
        for part in (self.place < HEAD, self.sample):
            at = np.flatnonzero(part & left[self.owner])
            texts = self.texts.take(pa.array(at))
            fits = np.empty((len(DATES), len(at)), bool)
            for row, pattern in enumerate(DATES):
                values, fits[row] = _read("date", texts, _of_days(pattern))
                if pattern.isalpha():  # of digits alone: of years that tables have
                    fits[row] &= (values >= _EARLIEST) & (values < _LATEST)
            left = left & (np.bincount(self.owner[at][~fits.any(axis=0)], minlength=self.count) == 0)
        found = dict[int, ColumnForm]()
        for column, places in groupby(range(len(at)), lambda place: int(self.owner[at[place]])):
            if left[column]:
                own = [*places]
                found[column] = _choose_patterns(texts.take(pa.array(own)), fits[:, own])
        return found


def _parts_thousands(form: Written, texts: pa.Array, forms: Mapping[Written, NDArray[np.float64]]) -> bool:
    """Return whether every number that has a mark between thousands is a thousand or more: what reads `0.500` as 500
    is no form of it.
    """
    small = np.flatnonzero(np.abs(forms[form]) < 1_000)
    if not form.thousands or not len(small):
        return True
    without = replace(form, thousands="")
    plain = forms[without][small] if without in forms else _read("numeric", texts.take(pa.array(small)), without)[0]
    return bool((plain == forms[form][small]).all())


def _choose(kind: str, texts: pa.Array, forms: Mapping[Written, NDArray[np.float64]]) -> ColumnForm:
    """Choose the first form; where others read some cells otherwise, one of each meaning is for a person to choose."""
    different = list[Written]()
    for form, values in forms.items():
        if not any(np.array_equal(values, forms[other], equal_nan=True) for other in different):
            different.append(form)
    if len(different) == 1:
        return ColumnForm(kind, different[0])
    apart = np.any([forms[form] != forms[different[0]] for form in different], axis=0)
    shown = np.flatnonzero(apart)[:SHOWN]
    listed = sorted(different, key=lambda form: not form.thousands)
    readings = tuple(
        Reading(
            f"thousands {form.thousands}" if form.thousands else f"decimal {form.decimal}",
            {"decimal": form.decimal, **({"thousands": form.thousands} if form.thousands else {})},
            tuple(f"{value:.15g}" for value in forms[form][shown]),
        )
        for form in listed
    )  # fmt: skip
    return ColumnForm(kind, different[0], Question(_cells(texts, shown), readings))


def _choose_patterns(texts: pa.Array, fits: Fits) -> ColumnForm:
    """Choose patterns of days by which of DATES (rows) read which texts."""
    chosen, is_open = list[str](), False
    for each in sorted(np.unique(2 ** np.arange(len(DATES)) @ fits).tolist(), key=int.bit_count):
        patterns = [pattern for at, pattern in enumerate(DATES) if each >> at & 1]
        if not set(patterns).intersection(chosen):
            chosen += patterns[:1]
            is_open = is_open or len(patterns) > 1
    year = FIRST_YEAR if any(map(has_short_year, chosen)) else None
    of_all = np.asarray(fits.all(axis=1))
    listed = [*compress(DATES, of_all.tolist() if of_all.any() else np.asarray(fits.any(axis=1)).tolist())]
    if not is_open and not problem_of(tuple(chosen), year):
        listed = []
    written = _of_days(listed[0]) if listed else _of_days(*sorted(chosen, reverse=True))
    ways = [_of_days(each) for each in listed or written.dates]
    has_times = (_read_by_any("datetime", part, ways).all() for part in (texts.slice(0, 1), texts))
    kind = "datetime" if all(has_times) else "date"
    forms = dict(zip(listed, ways, strict=False))
    if not forms and written.first_year is not None:
        forms = {f"first_year {year}": replace(written, first_year=year) for year in YEARS}
    return _show_days(kind, texts, written, forms) if forms else ColumnForm(kind, written)


def _read_by_any(kind: str, texts: pa.Array, forms: Iterable[Written]) -> Fits:
    fits: Fits = np.any([_read(kind, texts, each)[1] for each in forms], axis=0)
    return fits


def _show_days(kind: str, texts: pa.Array, written: Written, forms: Mapping[str, Written]) -> ColumnForm:
    feature = _FEATURES[kind]
    assert isinstance(feature, CalendarFeature)
    values = {choice: _read(kind, texts, form)[0] for choice, form in forms.items()}
    first = next(iter(values.values()))
    shown = np.flatnonzero(np.any([other != first for other in values.values()], axis=0))[:SHOWN]
    shown = shown if len(shown) else np.arange(min(SHOWN, len(texts)))
    readings = tuple(
        Reading(
            choice, _declared(kind, forms[choice]),
            tuple("-" if value != value else feature.text(value) for value in values[choice][shown]),
        )
        for choice in forms
    )  # fmt: skip
    return ColumnForm(kind, written, Question(_cells(texts, shown), readings))


def _cells(texts: pa.Array, places: NDArray[np.intp]) -> tuple[str, ...]:
    """Return cells as a line shows them."""
    return tuple(text[:LONG] for text in texts.take(pa.array(places)).to_pylist())


def _declared(kind: str, written: Written) -> dict[str, Any]:
    """Return what a schema says where a column is written so and not as usual."""
    said: dict[str, Any] = {}
    if kind == "numeric":
        said = {"decimal": written.decimal, "thousands": written.thousands, "unit_mark": written.unit_mark}
    elif kind == "boolean":
        said = {"true_words": [*written.true], "false_words": [*written.false]}
    elif kind in ("date", "datetime"):
        said = {"written": [*written.dates]}
    usual = {"decimal": ".", "written": [ISO_DATE]}
    return {key: value for key, value in said.items() if value and value != usual.get(key)}
