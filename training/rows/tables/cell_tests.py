"""What stands in cells that their column does not read, in kind, and the remedies: what a person does to the schema or
the file. Forms are tried by the law of columns itself: one is a remedy where the law reads cells by it that it refuses
now, and all the others still.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import product
from operator import methodcaller
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from models.features.column_forms import DATES, NUMBERS, is_likely
from models.features.column_law import Misfit, read_column, read_numbers
from models.features.date_patterns import has_short_year
from models.features.features import (
    BooleanFeature,
    CalendarFeature,
    CategoricalFeature,
    DateFeature,
    Feature,
    NumericFeature,
)
from models.features.written import Written
from training.rows.schema.schema import Target
from training.rows.sources.cell_kinds import (
    A_DATE,
    A_MISSING_WORD,
    A_NUMBER,
    A_TEXT,
    A_TIME,
    A_TRUTH,
    A_ZONE,
    DAYS,
    UNITS,
    kind_of,
    sign_first,
    unit_beside,
    without_unit,
)
from training.rows.tables.remedies import Remedy, Unsaid, write_anew

PER_KIND, FITTING = 200, 1_000  # different texts of a kind, and of those that fit, on which a form is tried
MOST_WORDS, LONGEST_WORD = 20, 40  # that a column may list
CHOICES = 3  # readings that are offered
WITH_UNIT, A_DAY, WRITTEN = "a number with a unit", "a date without a time of day", "a date written "
Remedies = tuple[Remedy, ...]
_BESIDE = re.compile(
    r"([-+]?)(?P<before>[^-+.,'’0-9\s\"#<>~()][^0-9\s]{0,11})?\s*(?P<number>[-+]?[.,]?[0-9](?:.*[0-9])?[.,]?)\s*"
    r"(?P<after>[^-+.,'’0-9\s\"#<>~()][^0-9\s]{0,11})?"
)
_WORD = Remedy({"missing_words": [Unsaid.CELL]}, how="where it stands for a missing value")
_IGNORE = Remedy({"ignore": [Unsaid.COLUMN]}, "schema")
_TRUTH = Remedy({"type": "boolean"}, how="with its `true_words` and `false_words`")
_WORDS_OF_TRUTH = (Remedy({"true_words": [Unsaid.CELL]}), Remedy({"false_words": [Unsaid.CELL]}))
_LISTED = Remedy({"type": "categorical", "values": Unsaid.KNOWN})
_HOW = {
    "digits of another alphabet": "write the digits as 0 to 9",
    A_ZONE: "write its distance from UTC in place of the name, +01:00 for instance",
}
LEAVE_OUT = Remedy({"missing": "leave-out"}, how="(under add-remove)")
NOTHING, NO_CLASS = "nothing", "no class"
OF_ANSWERS: Mapping[str, Remedies] = {
    NOTHING: (Remedy(deletes=True), LEAVE_OUT),
    NO_CLASS: (Remedy({"classes": [Unsaid.CELL]}), *write_anew("write a listed class")),
}
FLATTEN = "write each part of it as a column of its own, as `pandas.json_normalize` and `pyarrow.Table.flatten` do"
_LIKE = {"date": "2024-03-01", "datetime": "2024-03-01 14:30", "time": "14:30"}


class CellTests:
    """The cells of one column that do not fit it: each is named in kind, and each kind has its remedies. Of those that
    fit a sample is kept, which a remedy must leave as it is. `has_floats`: numbers among its texts are a workbook's.
    """

    def __init__(self, of: Feature | Target, written: Written, has_floats: bool = False) -> None:
        self._of, self._written, self._has_floats = of, written, has_floats
        self._fitting: dict[str, None] = {}
        self._refused: dict[str, list[str]] = defaultdict(list)
        self._is_number = isinstance(of, NumericFeature | Target) and not isinstance(of, CalendarFeature)

    def see(self, texts: Sequence[str | None]) -> None:
        """Take in some cells that fit."""
        room = FITTING - len(self._fitting)
        self._fitting.update(dict.fromkeys(text for text in texts[: max(0, room)] if text))

    def name(self, cells: Sequence[str]) -> list[str]:
        """Return what stands in each of some different cells that do not fit, in kind."""
        texts = [cell.strip() for cell in cells]
        if isinstance(self._of, CalendarFeature):
            named = _name_dates(self._of, self._written, texts)
        else:
            named = _name_numbers(texts)
        for text, found in zip(texts, named, strict=True):
            if len(self._refused[found]) < PER_KIND:
                self._refused[found].append(text)
        return named

    def remedies(self, found: str, is_odd: bool) -> Remedies:
        """Return the remedies of a kind; `is_odd`: most cells of the column fit it."""
        if isinstance(self._of, CalendarFeature):
            forms = self._date_remedies(found)
        else:
            forms = self._number_remedies(found) if self._is_number else ()
        return forms or self._remedies_of_words(found, is_odd)

    def _remedies_of_words(self, found: str, is_odd: bool) -> Remedies:
        """Return what is done about cells that no form reads."""
        kind = self._of.kind if isinstance(self._of, CalendarFeature) else ""
        anew = write_anew(_HOW.get(found) or (f"write it like {_LIKE[kind]}" if kind else "write the number alone"))
        words, texts = [], self._refused[found]
        if len(texts) <= MOST_WORDS and max(map(len, texts)) <= LONGEST_WORD:  # as many as a schema may list
            words = [_WORD] if found in (A_TEXT, A_MISSING_WORD) else []
            words = [*_WORDS_OF_TRUTH, *words] if isinstance(self._of, BooleanFeature) else words
        if is_odd or isinstance(self._of, Target) or found in (*_HOW, A_MISSING_WORD):
            return (*words, *anew)
        others: dict[str, Remedies] = {A_TRUTH: (_TRUTH, _IGNORE), A_TEXT: (_LISTED, _IGNORE)}
        if isinstance(self._of, BooleanFeature):
            del others[A_TRUTH]
        as_type = {A_DATE: "date", A_DAY: "date", A_TIME: "time", A_NUMBER: "numeric"}.get(found)
        if as_type not in (None, kind):
            others[found] = (Remedy({"type": as_type, "range": Unsaid.KNOWN}),)
        return (*others.get(found, ()), *words, *anew)

    # ---- numbers

    def _number_remedies(self, found: str) -> Remedies:
        """Return the forms by which most of the refused numbers are read, some of this kind among them; of forms that
        read the same the one with the fewest changes.
        """
        refused = [*self._refused[found], *(text for kind, texts in self._refused.items() if kind != found
                                            for text in texts)]  # fmt: skip
        ranked: dict[bytes, tuple[tuple[int, bool, int], dict[str, Any]]] = {}
        for tried, fitting, changed in self._forms:
            numbers = self._numbers(tried, refused)[0]
            if np.isnan(numbers[: len(self._refused[found])]).all():
                continue
            changes = {key: getattr(tried, key) for key in ("unit_mark", "decimal", "thousands")
                       if getattr(tried, key) != getattr(self._written, key)}  # fmt: skip
            other = self._written.decimal != "." and tried.decimal not in (self._written.decimal, "either")
            rank = int(np.isnan(numbers).sum()), changed, len(changes) + other
            key = numbers.tobytes() + fitting
            if key not in ranked or rank < ranked[key][0]:
                ranked[key] = rank, changes
        ordered = sorted(ranked.values(), key=lambda each: each[0])
        best = [changes for rank, changes in ordered if rank[0] == ordered[0][0][0]][:CHOICES]
        for changes in best:
            if changes.get("unit_mark", "%") not in UNITS:  # what else stands beside a number may be anything
                changes["unit_mark"] = Unsaid.UNIT
        if len(best) == 1:
            return (Remedy(best[0]),)
        point = {",": "."}.get(self._written.decimal, ",")
        marks = [each.get("thousands") or each.get("decimal", point).replace("either", point) for each in best]
        values = ["1234" if each.get("thousands") else "1.234" for each in best]
        meant = zip(best, marks, values, strict=True)
        return tuple(Remedy(changes, how=f"where 1{mark}234 is {value}") for changes, mark, value in meant)

    @cached_property
    def _forms(self) -> list[tuple[Written, bytes, bool]]:
        """List the forms that read all cells that fit, what they read of these, and whether it is something else."""
        texts = (text for texts in self._refused.values() for text in texts)
        units = Counter(
            unit for text in texts if (unit := _part_unit(text)[1]) and not Written(unit_mark=unit).problem()
        )
        before, forms = self._numbers(self._written)[1], []
        for form, unit in product(NUMBERS, dict.fromkeys((self._written.unit_mark, *dict(units.most_common(3))))):
            tried = replace(self._written, decimal=form.decimal, thousands=form.thousands, unit_mark=unit)
            fitting = self._numbers(tried)[1]
            if tried.problem() is None and not np.isnan(fitting[~np.isnan(before)]).any():
                forms.append((tried, fitting.tobytes(), not np.array_equal(fitting, before, equal_nan=True)))
        return forms

    def _numbers(self, written: Written, also: Sequence[str] = ()) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return what a form reads of more texts, and of those that fit; NaN where it reads none."""
        fitting = [*self._fitting]
        if self._has_floats and written.decimal == ",":  # which the table then spells so
            fitting = [re.sub(r"^(-?[0-9]+)\.([0-9]+)$", r"\1,\2", text) for text in fitting]
        numbers = _read_numbers([*also, *fitting], written)
        return numbers[: len(also)], numbers[len(also) :]

    # ---- days

    def _date_remedies(self, found: str) -> Remedies:
        """Return the patterns, beside the declared ones or in their place, by which cells of this kind are read."""
        assert isinstance(self._of, CalendarFeature)
        patterns = found.removeprefix(WRITTEN).split(" or ") if found.startswith(WRITTEN) else []
        remedies = []
        for pattern in patterns:
            for dates in ((*self._written.dates, pattern), (pattern,)):
                short = any(map(has_short_year, dates))
                first_year = (self._written.first_year or 1950) if short else None
                tried = replace(self._written, dates=dates, first_year=first_year)
                if not tried.problem() and _can_read(self._of, pa.array([*self._fitting]), tried).all():
                    say: dict[str, Any] = {"written": [*dates]}
                    if short and self._written.first_year is None:
                        say["first_year"] = Unsaid.CENTURY
                    remedies.append(Remedy(say))
                    break
        return tuple(remedies) or (write_anew("write all days of the column in one form") if patterns else ())


def of_type(of: Feature | Target, kind: pa.DataType) -> Remedies:
    """Return the remedies of a column whose type no cell of the declared one has."""
    anew = write_anew("store the column as the schema declares it")
    types = pa.types
    like = [
        ("boolean", types.is_boolean(kind)), ("date", types.is_date(kind)), ("datetime", types.is_timestamp(kind)),
        ("time", types.is_time(kind)),
        ("numeric", types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)),
    ]  # fmt: skip
    named = next((name for name, holds in like if holds), None)
    if isinstance(of, Target | CategoricalFeature):
        key = "classes" if isinstance(of, Target) else "values"
        has_codes = named in ("boolean", "numeric") and not (isinstance(of, Target) and of.classes is None)
        return (Remedy({key: Unsaid.WRITTEN}), *anew) if has_codes else anew
    if named is None:
        return (*(write_anew(FLATTEN) if types.is_nested(kind) else anew), _IGNORE)
    return (Remedy({"type": named, **({} if named == "boolean" else {"range": Unsaid.KNOWN})}), *anew)


def _part_unit(text: str) -> tuple[str, str]:
    """Return the number in a text, and the unit beside it; "" where there is none."""
    text = sign_first(text)
    if (unit := unit_beside(text)) is not None:
        return without_unit(text, unit), unit
    match = _BESIDE.fullmatch(text)
    if match is None or bool(match["before"]) == bool(match["after"]):
        return text, ""
    return match[1] + match["number"], match["before"] or match["after"]


def _read_numbers(texts: Sequence[str], written: Written) -> NDArray[np.float64]:
    """Return the numbers that the law reads; NaN where it refuses a text, or reads nothing."""
    column = pa.array(texts, pa.large_string())
    try:
        return read_numbers(column, written)
    except Misfit as misfit:
        plain = pc.if_else(pa.array(misfit.cells), pa.scalar(None, column.type), column)
        return read_numbers(plain, written)


def _name_numbers(texts: Sequence[str]) -> list[str]:
    """Name texts of a column of numbers by the plainest form that reads them, without the unit."""
    numbers, units = zip(*map(_part_unit, texts), strict=True) if texts else ((), ())
    read = [(form, _read_numbers(numbers, form)) for form in NUMBERS]
    return [
        _name_number([form for form, values in read if not np.isnan(values[at])],
                     {values[at] for _, values in read if not np.isnan(values[at])}, unit, text)
        for at, (text, unit) in enumerate(zip(texts, units, strict=True))
    ]  # fmt: skip


def _name_number(forms: Sequence[Written], values: set[float], unit: str, text: str) -> str:
    if not forms or not re.search("[0-9]", text):
        return kind_of(text)
    if unit:
        return WITH_UNIT
    if len(values) > 1:
        return "a number with a mark before three digits"
    if forms[0].thousands:
        return "a number with marks between thousands"
    mark = {",": " with a decimal comma"}.get(forms[0].decimal, " with a decimal point" if "." in text else "")
    return f"{A_NUMBER}{mark}"


def _can_read(feature: CalendarFeature, texts: pa.Array, written: Written) -> NDArray[np.bool_]:
    try:
        read_column(feature, texts.cast(pa.large_string()), written)
    except Misfit as misfit:
        return np.zeros(len(texts), bool) if misfit.cells is None else ~misfit.cells
    return np.ones(len(texts), bool)


def _name_dates(feature: CalendarFeature, written: Written, texts: Sequence[str]) -> list[str]:
    """Name texts by the patterns that fit them. Each is tried on all at once: of a text that several fit, those count
    that fit every text which fits any, else it stays open.
    """
    cells, fits = pa.array(texts, pa.large_string()), dict[str, NDArray[np.bool_]]()
    for pattern in DATES if feature.kind != "time" else ():
        first_year = (written.first_year or 2000) if has_short_year(pattern) else None
        fits[pattern] = _can_read(feature, cells, Written(dates=(pattern,), first_year=first_year))
        if pattern.isalpha():  # of digits alone, which fit others
            matches = [DAYS[pattern].match(text) for text in texts]
            fits[pattern] &= [match is None or is_likely(match) for match in matches]
    every = np.any([*fits.values()], axis=0) if fits else np.zeros(len(texts), bool)
    common = [pattern for pattern, fit in fits.items() if (fit >= every).all()]
    of_days = Written(dates=tuple(pattern for pattern in DATES if not has_short_year(pattern)))
    days = _can_read(DateFeature(feature.name, ()), cells, of_days).tolist()
    named = []
    for at, text in enumerate(texts):
        patterns = [pattern for pattern in fits if fits[pattern][at] and (pattern in common or not common)]
        if patterns or days[at]:
            day = A_DATE if feature.kind == "time" else A_DAY
            named.append(f"{WRITTEN}{' or '.join(patterns)}" if patterns else day)
        elif re.fullmatch(r"[0\W]*0[0\W]*", text):  # as databases write no day
            named.append(A_MISSING_WORD)
        elif feature.kind != "time" and any(map(methodcaller("match", text), DAYS.values())):
            named.append("a date that no calendar has")
        else:
            kind = kind_of(text)
            known = (A_MISSING_WORD, A_NUMBER, A_DATE, A_TIME, A_ZONE, "digits of another alphabet")
            no_time = "a time that no day has" if feature.kind == "time" and kind == A_TIME else kind
            named.append(no_time if kind in known else A_TEXT)
    return named
