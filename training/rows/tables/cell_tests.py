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
from itertools import chain, compress, product
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from models.features.column_forms import DATES, NUMBERS
from models.features.date_patterns import pattern_of
from models.features.features import BooleanFeature, CalendarFeature, CategoricalFeature, Feature, NumericFeature
from models.features.written import USUAL, Written
from training.rows.schema.schema import Target
from training.rows.sources.cell_kinds import UNITS, Kind, part_unit
from training.rows.tables.form_search import days_by_pattern, declare, kinds_of, meanings, of_days, read_by, search
from training.rows.tables.remedies import Remedy, Unsaid, write_anew

PER_KIND, FITTING = 200, 1_000  # different texts of a kind, and of those that fit, on which a form is tried
MOST_WORDS, LONGEST_WORD = 20, 40  # that a column may list
CHOICES = 3  # readings that are offered
WRITTEN = "a date written "
Remedies = tuple[Remedy, ...]
_WORD = Remedy({"missing_words": [Unsaid.CELL]}, how="where it stands for a missing value")
_IGNORE = Remedy({"ignore": [Unsaid.COLUMN]}, "schema")
_TRUTH = Remedy({"type": "boolean"}, how="with its `true_words` and `false_words`")
_WORDS_OF_TRUTH = (Remedy({"true_words": [Unsaid.CELL]}), Remedy({"false_words": [Unsaid.CELL]}))
_LISTED = Remedy({"type": "categorical", "values": Unsaid.KNOWN})
_HOW: dict[str, str] = {
    Kind.ZONE: "write its distance from UTC in place of the name, +01:00 for instance",
}
LEAVE_OUT = Remedy({"missing": "leave-out"}, how="(under add-remove)")
NOTHING, NO_CLASS = "nothing", "no class"
OF_ANSWERS: Mapping[str, Remedies] = {
    NOTHING: (Remedy(deletes=True), LEAVE_OUT),
    NO_CLASS: (Remedy({"classes": [Unsaid.CELL]}), *write_anew("write a listed class")),
}
FLATTEN = "write each part of it as a column of its own, as `pandas.json_normalize` and `pyarrow.Table.flatten` do"
_TYPES: dict[str, str] = {
    **dict.fromkeys((Kind.DATE, Kind.DAY, Kind.NO_DAY), "date"), Kind.TIME: "time", Kind.NUMBER: "numeric",
}  # fmt: skip
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
        vars(self).pop("_forms", None)
        texts = [cell.strip() for cell in cells]
        named = _name_dates(self._of, texts) if isinstance(self._of, CalendarFeature) else _name_numbers(texts)
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
            words = [_WORD] if found in (Kind.TEXT, Kind.MISSING_WORD) else []
            words = [*_WORDS_OF_TRUTH, *words] if isinstance(self._of, BooleanFeature) else words
        if is_odd or isinstance(self._of, Target) or found in (*_HOW, Kind.MISSING_WORD):
            return (*words, *anew)
        others = dict[str, Remedies]({Kind.TRUTH: (_TRUTH, _IGNORE), Kind.TEXT: (_LISTED, _IGNORE)})
        if isinstance(self._of, BooleanFeature):
            del others[Kind.TRUTH]
        as_type = _TYPES.get(found)
        if as_type not in (None, kind) and not (kind and found == Kind.NO_DAY):
            others[found] = (Remedy({"type": as_type, "range": Unsaid.KNOWN}),)
        return (*others.get(found, ()), *words, *anew)

    def _read_fitting(self, written: Written) -> NDArray[np.float64] | None:
        """Return what a form reads of the cells that fit; None where it refuses one."""
        texts = [*self._fitting]
        if self._has_floats and written.decimal == ",":  # which the table then spells so
            texts = [re.sub(r"^(-?[0-9]+)\.([0-9]+)$", r"\1,\2", text) for text in texts]
        of = "numeric" if isinstance(self._of, Target) else self._of
        return None if written.problem() else search(of, _texts(texts), [written]).get(written)

    def _number_remedies(self, found: str) -> Remedies:
        """Return the forms by which most of the refused numbers are read, some of this kind among them; of forms that
        read the same the one with the fewest changes.
        """
        own = np.array([kind == found for kind, texts in self._refused.items() for _ in texts])
        forms = [each for each in self._forms if not np.isnan(each[2][: len(own)][own]).all()]
        best = meanings({form: read for rank, form, read in forms if rank[0] == forms[0][0][0]})[:CHOICES]
        if len(best) == 1:
            return (Remedy(self._changes(best[0])),)
        point, remedies = {",": "."}.get(self._written.decimal, ","), list[Remedy]()
        for changes in map(self._changes, best):
            mark = changes.get("thousands") or changes.get("decimal", point).replace("either", point)
            value = "1234" if changes.get("thousands") else "1.234"
            remedies.append(Remedy(changes, how=f"where 1{mark}234 is {value}"))
        return tuple(remedies)

    def _changes(self, form: Written) -> dict[str, Any]:
        """Return what of a form is not declared; a unit only of UNITS, for others may be anything."""
        changes = declare("numeric", form, self._written)
        return changes | ({"unit_mark": Unsaid.UNIT} if changes.get("unit_mark", "%") not in UNITS else {})

    @cached_property
    def _forms(self) -> list[tuple[tuple[int, bool, int], Written, NDArray[np.float64]]]:
        """Return the forms that read all cells that fit, and what they read of the refused ones and of these: those
        first that read most, then those that leave the others as they are, then those with the fewest changes.
        """
        refused, before, found = [*chain(*self._refused.values())], self._read_fitting(self._written), []
        beside = Counter(
            unit for text in refused if (unit := part_unit(text)[1]) and not Written(unit_mark=unit).problem()
        )
        units = dict.fromkeys((self._written.unit_mark, *dict(beside.most_common(3))))
        for form, unit in product(NUMBERS, units):
            form = replace(self._written, decimal=form.decimal, thousands=form.thousands, unit_mark=unit)
            if (fitting := self._read_fitting(form)) is not None:
                numbers = read_by("numeric", _texts(refused), form)[0]
                is_other = self._written.decimal != "." and form.decimal not in (self._written.decimal, "either")
                is_changed = before is None or not np.array_equal(fitting, before, equal_nan=True)
                rank = int(np.isnan(numbers).sum()), is_changed, len(self._changes(form)) + is_other
                found.append((rank, form, np.concatenate([numbers, fitting])))
        return sorted(found, key=lambda each: each[0])

    def _date_remedies(self, found: str) -> Remedies:
        """Return the patterns, beside the declared ones or in their place, by which cells of this kind are read."""
        patterns = found.removeprefix(WRITTEN).split(" or ") if found.startswith(WRITTEN) else []
        remedies = []
        for pattern in patterns:
            for dates in ((*self._written.dates, pattern), (pattern,)):
                form = of_days(*dates, first_year=self._written.first_year)
                if self._read_fitting(replace(self._written, dates=dates, first_year=form.first_year)) is not None:
                    is_open = form.first_year is not None and self._written.first_year is None
                    remedies.append(Remedy({"written": [*dates]} | ({"first_year": Unsaid.CENTURY} if is_open else {})))
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


def _texts(texts: Sequence[str]) -> pa.Array:
    return pa.array(texts, pa.large_string())


def _name_numbers(texts: Sequence[str]) -> list[str]:
    """Name texts of a column of numbers by the plainest form that reads them, without the unit."""
    parts = [part_unit(text) for text in texts]
    read = {form: read_by("numeric", _texts([number for number, _ in parts]), form)[0] for form in NUMBERS}
    has_digits = np.array([bool(re.search(r"\d", text)) for text in texts], bool)
    is_number = has_digits & ~np.isnan([*read.values()]).all(axis=0)
    others = iter(kinds_of([text for text, is_read in zip(texts, is_number, strict=True) if not is_read]))
    named = list[str]()
    for at, (text, (_, unit)) in enumerate(zip(texts, parts, strict=True)):
        values = {form: values[at] for form, values in read.items() if not np.isnan(values[at])}
        plainest = next(iter(values), USUAL)
        if not is_number[at]:
            named.append(next(others))
        elif unit:
            named.append(Kind.WITH_UNIT)
        elif len({*values.values()}) > 1:
            named.append("a number with a mark before three digits")
        elif plainest.thousands:
            named.append("a number with marks between thousands")
        else:
            mark = {",": " with a decimal comma"}.get(plainest.decimal, " with a decimal point" if "." in text else "")
            named.append(f"{Kind.NUMBER}{mark}")
    return named


def _name_dates(feature: CalendarFeature, texts: Sequence[str]) -> list[str]:
    """Name texts by the patterns that fit them. Each is tried on all at once: of a text that several fit, those count
    that fit every text which fits any, else it stays open.
    """
    is_time, cells = feature.kind == "time", _texts(texts)
    fits = days_by_pattern(feature, cells) & (not is_time)
    common = np.asarray((fits >= fits.any(axis=0)).all(axis=1))
    fits &= common[:, None] | ~common.any()
    like_days = np.any([pc.match_substring_regex(cells, pattern_of("date", each)) for each in DATES], axis=0)
    named = list[str]()
    for at, (text, kind) in enumerate(zip(texts, kinds_of(texts), strict=True)):
        if fits[:, at].any():
            named.append(f"{WRITTEN}{' or '.join(compress(DATES, fits[:, at]))}")
        elif kind == Kind.DATE:
            named.append(Kind.DATE if is_time else Kind.DAY)
        elif re.fullmatch(r"[0\W]*0[0\W]*", text):  # as databases write no day
            named.append(Kind.MISSING_WORD)
        elif like_days[at]:
            named.append(Kind.NO_DAY)
        elif is_time and kind == Kind.TIME:
            named.append("a time that no day has")
        else:
            known = (Kind.MISSING_WORD, Kind.NUMBER, Kind.TIME, Kind.ZONE, Kind.NO_DAY)
            named.append(kind if kind in known else Kind.TEXT)
    return named
