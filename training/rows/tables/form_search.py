"""How the cells of columns may be written: a search over the forms that a schema may declare, in which the law of
columns itself says of every cell what each form reads. Told to the steward of the file alone; nothing is read by it.

The draft proposes, of forms that read all cells alike, the plainest; where two read a cell otherwise, it is for a
person to say which is meant. The check looks for those that read refused cells, and all others still.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
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
from models.features.written import USUAL, Written, lone_truths
from training.rows.schema.schema_text import FILL_IN
from training.rows.sources.cell_kinds import (
    LONGEST,
    MISSING_WORDS,
    NO,
    NOTE,
    YES,
    Kind,
    kind_of,
    part_unit,
    unit_beside,
)

# Kinds of columns whose cells say nothing of a form, beside those of schemas.
EMPTY, TEXT, TYPED = "empty", "text", "typed"
LONG = 40  # characters of what is no category any more
FIRST, RANDOM = 1_000, 1_000  # cells of a column that differ, by which its form is looked for; then all are read by it
HEAD = 4  # cells by which most forms are ruled out
SHOWN = 5  # cells whose readings are shown side by side
MOST_NOTES = 20  # of which words are listed
_TRUTH_KEYS = {"true_words": True, "false_words": False}
YEARS = (1930, 1970)  # first years whose readings are shown where years have two digits
FEATURES: Mapping[str, Feature] = {
    "boolean": BooleanFeature("cells"), "numeric": NumericFeature("cells", (0.0,)),
    **{kind: feature("cells", (0.0,)) for kind, feature in CALENDAR.items()},
}  # fmt: skip
# What a schema says of each kind, and where it stands in Written.
_KEYS: Mapping[str, Mapping[str, str]] = {
    "numeric": {each: each for each in ("decimal", "thousands", "unit_mark")},
    "boolean": {"true_words": "true", "false_words": "false"},
    "date": {"written": "dates"}, "datetime": {"written": "dates"}, "time": {}, TEXT: {}, EMPTY: {}, TYPED: {},
}  # fmt: skip
_EARLIEST, _LATEST = (number_of("date", f"{year}-01-01") for year in LIKELY_YEARS)
_TRUTHS = Written(true=tuple(sorted(YES)), false=tuple(sorted(NO)))
Fits = NDArray[np.bool_]
Numbers = NDArray[np.float64]


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
        offered = any(each.choice in FEATURES or "first_year" in each.choice for each in self.readings)
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
        return declare(self.kind, self.written) | ({"missing_words": [*self.missing]} if self.missing else {})


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
        Reading("numeric", {"type": "numeric", "range": [0, 1], "bins": 2}, ("0", "1"), "0 .. 1"),
        Reading("categorical", {"type": "categorical", "values": ["0", "1"]}, ("a word", "a word"), "values: 0, 1"),
    ),
)


# ---- what the law reads of cells, by one form and by many


def read_by(kind: str | Feature, texts: pa.Array, written: Written) -> tuple[Numbers, Fits]:
    """Return what the law reads of large texts, NaN where it reads nothing, and which it does not refuse."""
    feature = FEATURES[kind] if isinstance(kind, str) else kind
    try:
        return read_column(feature, texts, written), np.ones(len(texts), bool)
    except Misfit as misfit:
        wrong = misfit.cells
    assert wrong is not None, "texts are refused one by one"
    if wrong.all():
        return np.full(len(texts), np.nan), ~wrong
    return read_column(feature, pc.if_else(pa.array(wrong), pa.scalar(None, texts.type), texts), written), ~wrong


def search(kind: str | Feature, texts: pa.Array, forms: Iterable[Written]) -> dict[Written, Numbers]:
    """Return the forms by which the law reads all texts, each with what they are by it."""
    read = {form: read_by(kind, texts, form) for form in forms}
    return {form: values for form, (values, fits) in read.items() if fits.all()}


def meanings(forms: Mapping[Written, Numbers]) -> list[Written]:
    """Return the first form of each way in which they read the same cells."""
    different = dict[bytes, Written]()
    for form, values in forms.items():
        different.setdefault((values + 0.0).tobytes(), form)
    return [*different.values()]


def number_forms(unit: str) -> tuple[Written, ...]:
    """Return the forms of numbers with a unit beside them ("": without), the plainest first."""
    return tuple(replace(form, unit_mark=unit) for form in NUMBERS)


def of_days(*patterns: str, first_year: int | None = None) -> Written:
    """Return the form of days that are written by some patterns; `first_year`: of those with two digits for it."""
    return Written(dates=patterns, first_year=first_year or FIRST_YEAR if any(map(has_short_year, patterns)) else None)


def days_by_pattern(kind: str | Feature, texts: pa.Array, patterns: Sequence[str] = DATES) -> Fits:
    """Return by which patterns (rows) the law reads which texts as days or moments of years that tables have."""
    fits = np.empty((len(patterns), len(texts)), bool)
    for row, pattern in enumerate(patterns):
        fits[row] = read_by(kind, texts, of_days(pattern))[1]
        if pattern.isalpha() and fits[row].any():  # of digits alone, which are numbers as well
            days = read_by("date", texts, of_days(pattern))[0]
            fits[row] &= ~((days < _EARLIEST) | (days >= _LATEST))
    return fits


def kinds_of(texts: Sequence[str]) -> list[Kind]:
    """Return what stands in each text, in kind: of days and numbers by the law, in any form."""
    bare = [part_unit(text)[0] if unit_beside(text) else text for text in texts]
    cells, numbers = (pc.utf8_trim_whitespace(pa.array(each, pa.large_string())) for each in (texts, bare))
    days: Fits = np.any(days_by_pattern("date", cells), axis=0)
    read: Fits = np.any([read_by("numeric", numbers, form)[1] for form in NUMBERS], axis=0)
    kinds = []
    for text, is_day, is_number in zip(texts, days, read, strict=True):
        kind, has_digits = kind_of(text), re.search(r"\d", text)
        by_law = Kind.DATE if is_day else Kind.NUMBER if is_number and has_digits else kind
        kinds.append(kind if kind == Kind.MISSING_WORD else by_law)
    return kinds


# ---- the form of a column


def find_forms(columns: Mapping[str, Cells]) -> dict[str, ColumnForm]:
    """Find how each column is written."""
    searches = [_Search(cells) for cells in columns.values()]
    for at, kinds in enumerate(_forms_of_heads([each.texts.slice(0, HEAD) for each in searches])):
        searches[at].possible = kinds
    return {name: each.form() for name, each in zip(columns, searches, strict=True)}


def _forms_of_heads(heads: Sequence[pa.Array]) -> list[Mapping[str, Sequence[Written]]]:
    """Return of each column, by kind, the forms that read its first cells, looked at together; of days, those that read
    some, where each is read.
    """
    owner = np.repeat(np.arange(len(heads)), [len(head) for head in heads])
    texts = pa.concat_arrays([pa.array([], pa.large_string()), *heads])
    forms = [("time", USUAL), ("boolean", _TRUTHS), *(("numeric", form) for form in number_forms(""))]
    read = [(kind, form, read_by(kind, texts, form)[1]) for kind, form in forms]
    days = days_by_pattern("date", texts)
    read.append(("date", USUAL, np.asarray(days.any(axis=0))))
    possible = [defaultdict[str, list[Written]](list) for _ in heads]
    for kind, form, fits in read:
        for at in np.flatnonzero(np.bincount(owner[~fits], minlength=len(heads)) == 0).tolist():
            own = np.asarray(days[:, owner == at].any(axis=1)) if kind == "date" else ()
            possible[at][kind] += map(of_days, compress(DATES, own)) if kind == "date" else [form]
    return [*possible]


def scattered(places: NDArray[np.intp], share: float | Numbers) -> Fits:
    """Return which places are chosen, about a share of them, without any order: the same ones each time."""
    return np.asarray((places * 2_654_435_761 + 97) % 2**32 < share * 2**32)


def _are_in(texts: pa.Array, words: Collection[str]) -> Fits:
    return np.asarray(pc.is_in(texts, pa.array(sorted(words), pa.large_string())), bool)


class _Search:
    """The cells of a column that say something, without blanks about them, and `possible` forms by kind."""

    def __init__(self, cells: Cells) -> None:
        words, counts = cells.distinct()
        texts = pc.utf8_trim_whitespace(words)
        nulls = _are_in(texts, NULLS)
        missing = ~nulls & _are_in(pc.utf8_lower(texts), MISSING_WORDS - YES - NO)
        self._nulls, self._missing = (
            tuple(sorted({*texts.filter(pa.array(chosen)).to_pylist()} - {""})) for chosen in (nulls, missing)
        )
        own, counts = pa.array(~nulls & ~missing), counts[~nulls & ~missing]
        self.texts = texts.filter(own)
        self.possible: Mapping[str, Sequence[Written]] = {}
        lines = pc.or_(pc.greater(pc.utf8_length(self.texts), LONG), pc.match_substring(self.texts, "\n"))
        padded = pc.not_equal(words.filter(own), self.texts)
        self._has_longer = cells.long > 0
        self._counts: Mapping[str, Any] = {
            "cells": cells.long + int(counts.sum()), "long": cells.long + int(counts[np.asarray(lines, bool)].sum()),
            "padded": int(counts[np.asarray(padded, bool)].sum()), "distinct": len(self.texts),
        }  # fmt: skip

    def form(self) -> ColumnForm:
        """Return the form of a sample, where it reads all cells; else that of all."""
        form = ColumnForm(TEXT if self._counts["cells"] else EMPTY)
        if len(self.texts) and not self._has_longer:
            places = np.arange(len(self.texts))
            sample = (places < FIRST) | scattered(places, RANDOM / max(1, len(places) - FIRST))
            form = self._find(self.texts.filter(pa.array(sample)))
            rest = self.texts.filter(pa.array(~sample))
            if form.kind != TEXT and not search(form.kind, rest, [form.written]):
                form = self._find(self.texts)
        # NA is missing in all kinds but a category, whose words may be anything
        return replace(form, missing=self._nulls if form.kind == TEXT else self._missing, **self._counts)

    def _find(self, texts: pa.Array) -> ColumnForm:
        """Find the form of texts, kind by kind; what is left are words."""
        if search("time", texts, self.possible["time"]):
            return ColumnForm("time")
        ways = {"boolean": _find_truths, "numeric": _find_numbers, "date": _find_days}
        found = (find(texts, self.possible[kind]) for kind, find in ways.items() if self.possible[kind])
        form = next(filter(None, found), None) or self._find_measures(texts) or ColumnForm(TEXT)
        return _find_days_of_digits(texts, self.possible["date"]) or form if form.is_whole else form

    def _find_measures(self, texts: pa.Array) -> ColumnForm | None:
        """Find numbers beside which one of the units stands that people write."""
        first = texts if self.possible["numeric"] else texts.slice(0, HEAD)
        unit = next(filter(None, map(unit_beside, first.to_pylist())), None)
        return None if unit is None or Written(unit_mark=unit).problem() else _find_numbers(texts, number_forms(unit))


def _find_truths(texts: pa.Array, forms: Iterable[Written]) -> ColumnForm | None:
    """Find words for yes and no, two or more, of which those for 0 and 1 may be numbers as well."""
    words = {text.lower() for text in texts.to_pylist()} if search("boolean", texts, forms) else set()
    if len(words) < 2:
        return None
    if lone_truths(words):
        return ColumnForm(TEXT, question=_ask_third(sorted({*texts.to_pylist()})))
    own = set() if search("boolean", texts, [USUAL]) else words - USUAL.truths().keys()
    written = Written(true=tuple(sorted(own & YES)), false=tuple(sorted(own & NO)))
    return ColumnForm("boolean", written, ZERO_OR_ONE if words == {"0", "1"} else None)


def _ask_third(words: Sequence[str]) -> Question:
    """Ask whether one of some words for yes and no is a third answer."""
    means = USUAL.truth_words()
    said = [means[word.lower()] for word in words]
    listed = {key: [*compress(words, (each is meant for each in said))] for key, meant in _TRUTH_KEYS.items()}
    readings = (
        Reading("categorical", {"type": "categorical", "values": [*words]}, ("a word",) * len(words)),
        Reading("boolean", {"type": "boolean"} | listed, tuple("yes" if each else "no" for each in said)),
    )
    return Question(tuple(words), readings)


def _find_days_of_digits(texts: pa.Array, forms: Iterable[Written]) -> ColumnForm | None:
    """Find days that are written in digits alone, by the one pattern that reads them all, which are numbers as well."""
    patterns = [form.dates[0] for form in forms if form.dates[0].isalpha()]
    fits: Fits = np.all(days_by_pattern("date", texts, patterns), axis=1)
    fitting = [*compress(patterns, fits)]
    if len(fitting) != 1:
        return None
    form, shown = of_days(*fitting), texts.slice(0, SHOWN)
    asked, cells = _ask("date", shown, {fitting[0]: form}), tuple(shown.to_pylist())
    readings = (
        Reading("date", {"type": "date", "written": fitting}, asked.readings[0].meant),
        Reading("numeric", {"type": "numeric", "range": [FILL_IN, FILL_IN]}, cells),
    )
    return ColumnForm("date", form, Question(cells, readings))


def _ask_notes(texts: pa.Array) -> Question | None:
    """Ask whether small numbers in brackets, where there are no others, are notes; None where there are none."""
    bracketed = texts.filter(pc.match_substring_regex(texts, r"^\("))
    if not len(bracketed) or not pc.all(pc.match_substring_regex(bracketed, NOTE)).as_py():
        return None
    words = tuple(sorted(bracketed.to_pylist())[:MOST_NOTES])
    below, said = tuple(f"-{word[1:-1]}" for word in words), {"type": "numeric", "range": [FILL_IN, FILL_IN]}
    notes = Reading("notes", said | {"missing_words": [*words]}, ("missing",) * len(words))
    return Question(words, (Reading("numeric", said, below), notes))


def _find_numbers(texts: pa.Array, forms: Iterable[Written]) -> ColumnForm | None:
    """Find numbers in the plainest form; where others read some otherwise, one of each meaning is for a person to
    choose. Those of digits alone are the same in every form.
    """
    marked = texts.filter(pc.invert(pc.ascii_is_decimal(texts)))
    if not len(marked):
        return ColumnForm("numeric", is_whole=True)
    read = search("numeric", marked, forms)
    different = meanings({form: values for form, values in read.items() if _parts_thousands(form, marked, read)})
    if len(different) < 2:
        return ColumnForm("numeric", different[0], _ask_notes(texts)) if different else None
    listed = {
        f"thousands {form.thousands}" if form.thousands else f"decimal {form.decimal}": form
        for form in sorted(different, key=lambda form: not form.thousands)
    }
    return ColumnForm("numeric", different[0], _ask("numeric", marked, listed))


def _parts_thousands(form: Written, texts: pa.Array, forms: Mapping[Written, Numbers]) -> bool:
    """Return whether every number that has a mark between thousands is a thousand or more: what reads `0.500` as 500
    is no form of it.
    """
    without = replace(form, thousands="")
    plain = forms[without] if without in forms else read_by("numeric", texts, without)[0]
    return bool((~(np.abs(forms[form]) < 1_000) | (plain == forms[form])).all())


def _find_days(texts: pa.Array, forms: Iterable[Written]) -> ColumnForm | None:
    """Find days by the fewest patterns that read them all, each the only one of some cell; else a person chooses."""
    for listed in ([form.dates[0] for form in forms], DATES):
        if (fits := days_by_pattern("date", texts, listed)).any(axis=0).all():
            break
    else:
        return None
    chosen, is_open = list[str](), False
    for each in sorted(np.unique(2 ** np.arange(len(listed)) @ fits).tolist(), key=int.bit_count):
        patterns = [pattern for at, pattern in enumerate(listed) if each >> at & 1]
        if not set(patterns).intersection(chosen):
            chosen += patterns[:1]
            is_open = is_open or len(patterns) > 1
    of_all: Fits = np.all(fits, axis=1)
    listed = [*compress(listed, of_all if of_all.any() else np.asarray(fits.any(axis=1)))]
    if not is_open and not problem_of(tuple(chosen), of_days(*chosen).first_year):
        listed = []
    written = of_days(listed[0]) if listed else of_days(*sorted(chosen, reverse=True))
    ways = {pattern: of_days(pattern) for pattern in listed or written.dates}
    moments = (days_by_pattern("datetime", part, [*ways]) for part in (texts.slice(0, 1), texts))
    kind = "datetime" if all(fits.any(axis=0).all() for fits in moments) else "date"
    if not listed:
        years = YEARS if written.first_year is not None else ()
        ways = {f"first_year {year}": replace(written, first_year=year) for year in years}
    return ColumnForm(kind, written, _ask(kind, texts, ways) if ways else None)


def _ask(kind: str, texts: pa.Array, forms: Mapping[str, Written]) -> Question:
    """Ask which of some forms is meant, by what they make of cells that differ by them."""
    values = {choice: read_by(kind, texts, form)[0] for choice, form in forms.items()}
    first, feature = next(iter(values.values())), FEATURES[kind]
    shown = np.flatnonzero(np.any([other != first for other in values.values()], axis=0))[:SHOWN]
    shown = shown if len(shown) else np.arange(min(SHOWN, len(texts)))

    def spell(value: float) -> str:
        if not isinstance(feature, CalendarFeature):
            return f"{value:.15g}"
        return "-" if value != value else feature.text(value)

    cells = (text[:LONG] for text in texts.take(pa.array(shown)).to_pylist())
    readings = []
    for choice, form in forms.items():
        said = ({"decimal": form.decimal} if kind == "numeric" else {}) | declare(kind, replace(form, unit_mark=""))
        readings.append(Reading(choice, said, tuple(map(spell, values[choice][shown]))))
    return Question(tuple(cells), tuple(readings))


def declare(kind: str, written: Written, before: Written = USUAL) -> dict[str, Any]:
    """Return what a schema says where a column is written so and not as before."""
    said = {key: getattr(written, name) for key, name in _KEYS[kind].items()}
    said = {key: value for key, value in said.items() if value != getattr(before, _KEYS[kind][key])}
    return {key: [*value] if isinstance(value, tuple) else value for key, value in said.items()}
