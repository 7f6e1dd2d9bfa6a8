"""What is wrong with a cell of a column, in kind, and the remedy: what a person does to the schema or the file, after
which the cell is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace

from models.features.column_law import NULLS, number_pattern
from models.features.date_patterns import has_short_year, is_real, pattern_of, patterns_of
from models.features.features import BooleanFeature, CalendarFeature, NumericFeature
from models.features.written import Written
from training.rows.schema.schema import Schema, Target
from training.rows.sources.cell_kinds import (
    A_MISSING_WORD,
    A_TEXT,
    A_TRUTH,
    DATES,
    NUMBER_WITH_UNIT,
    kind_of,
    unit_beside,
)

Verdict = tuple[str, str]  # what is found, and the remedy
Test = Callable[[str], Verdict | None]

_WORD = "say the word under `missing_words` of the column, or of `format` for all columns"
_TEXT = (
    "declare the column `categorical` with its public values, or put it under `ignore`; say a word for a missing value "
    "under `missing_words`"
)
_NUMBER = "declare the column `numeric` with its range, or write the cells as it is declared"
_OF_ANY_COLUMN = {
    A_MISSING_WORD: _WORD,
    A_TEXT: _TEXT,
    A_TRUTH: "declare the column `boolean`, and say what the word means by `true_words` and `false_words`",
    "a date": "declare it `type: date` with its range and how it is `written`, or put the column under `ignore`",
    "a time": "declare it `type: time` with its range, or put the column under `ignore`",
    "a moment with the name of a zone": "write its distance from UTC in place of the name, +01:00 for instance",
    "digits of another alphabet": "write the digits as 0 to 9",
}
_OF_NUMBERS = {
    "a number with a mark before three digits": "say which it is: `thousands` where 1,234 is 1234, or else `decimal`",
    "a number with a decimal comma": 'say `decimal: ","` of the column, or `either` where others have points',
    "a number with a decimal point": "say `decimal: either` of the column",
    "a number with marks between thousands": "say the mark under `thousands` of the column, beside its `decimal`",
    "a negative number in another form": "write it with a minus before it, -5 for instance",
    "a number with a sign of more or less": "write the number alone",
    NUMBER_WITH_UNIT: "say the unit as it stands there under `unit_mark` of the column: the number is read",
}
NOTHING = ("nothing", "leave the row out, or say `missing: leave-out` of the target (under add-remove)")
NO_CLASS = ("no class", "list the class in `classes`, or mend the row")


def tests_of(schema: Schema) -> dict[str, Test]:
    """Return, by column, what is wrong with a cell; None where nothing is. Categories take anything."""
    tests: dict[str, Test] = {}
    for feature in schema.stored:
        written = schema.written_as(feature.name)
        if isinstance(feature, CalendarFeature):
            tests[feature.name] = _dates(feature, written)
        elif isinstance(feature, NumericFeature):
            tests[feature.name] = _numbers(written)
        elif isinstance(feature, BooleanFeature):
            tests[feature.name] = _truths(written)
    return tests | {target.name: _answers(target, schema.written_as(target.name)) for target in schema.targets}


def _answers(target: Target, written: Written) -> Test:
    classes, number = {str(label) for label in target.classes or ()}, _numbers(written)

    def test(cell: str) -> Verdict | None:
        if cell in classes:
            return None
        if _is_missing(cell, written):
            return None if target.leave_out else NOTHING
        return NO_CLASS if classes else number(cell)

    return test


def _is_missing(cell: str, written: Written) -> bool:
    return cell.strip() in NULLS or cell.strip() in written.missing


def _truths(written: Written) -> Test:
    words = written.truths()

    def test(cell: str) -> Verdict | None:
        if cell.strip().lower() in words or _is_missing(cell, written):
            return None
        kind = kind_of(cell)
        if kind == A_TRUTH:
            return kind, "say what it means by `true_words` and `false_words` of the column"
        if kind == A_TEXT:
            return kind, f"a word for yes or no is said under `true_words` and `false_words`; else {_TEXT}"
        return kind, _OF_ANY_COLUMN.get(kind, _NUMBER)

    return test


def _numbers(written: Written) -> Test:
    """Return a test of numbers as the law of columns reads them."""
    fits = re.compile(number_pattern(written), re.ASCII).fullmatch

    def test(cell: str) -> Verdict | None:
        if _is_missing(cell, written) or fits(cell.strip()):
            return None
        text = cell.strip()
        if written.unit_mark:
            text = text.removeprefix(written.unit_mark).removesuffix(written.unit_mark).strip()
        kind = kind_of(text)
        if kind == NUMBER_WITH_UNIT:
            return kind, _remedy_of_unit(text, written)
        if kind == "a number with a decimal point" and written.thousands:
            return kind, "write it with the mark that the others have, or leave the marks between thousands out"
        return kind, {**_OF_NUMBERS, **_OF_ANY_COLUMN}.get(kind, "write the number alone")

    return test


def _remedy_of_unit(text: str, written: Written) -> str:
    if written.unit_mark:
        return "write the numbers of the column in one unit"
    unit = unit_beside(text)
    if unit is None:
        return _OF_NUMBERS[NUMBER_WITH_UNIT]
    said = json.dumps(unit, ensure_ascii=False)
    return f"say `unit_mark: {said}` of the column: the number that stands there is read"


def _dates(feature: CalendarFeature, written: Written) -> Test:
    """Return a test of dates as registration reads them, each text once."""
    verdicts: dict[str, Verdict | None] = {}

    def fits(cell: str, dates: tuple[str, ...]) -> bool:
        matches = (re.fullmatch(pattern, cell.strip(), re.ASCII) for pattern in patterns_of(feature, dates))
        return any(match is not None and is_real(match, written.first_year) for match in matches)

    def judge(cell: str) -> Verdict | None:
        if _is_missing(cell, written) or fits(cell, written.dates):
            return None
        other = () if feature.kind == "time" else (pattern for pattern in DATES if fits(cell, (pattern,)))
        for pattern in other:
            return f"a date written {pattern}", _remedy_of_pattern(pattern, written)
        return _misfit_of_calendar(feature, cell)

    def test(cell: str) -> Verdict | None:
        if cell not in verdicts:
            verdicts[cell] = judge(cell)
        return verdicts[cell]

    return test


def _remedy_of_pattern(pattern: str, written: Written) -> str:
    said = json.dumps(pattern, ensure_ascii=False) if " " in pattern else pattern
    short = has_short_year(pattern) and written.first_year is None
    century = ", and `first_year`, of the hundred years that two digits stand for (1950: 49 is 2049)" if short else ""
    both = replace(written, dates=(*written.dates, pattern), first_year=written.first_year or 1950)
    both = replace(both, first_year=both.first_year if any(map(has_short_year, both.dates)) else None)
    if both.problem():
        return f"say `written: [{said}]` of the column{century}, where all are written so; else write it in one form"
    return f"add {said} to `written` of the column{century}, or write it as the others"


def _misfit_of_calendar(feature: CalendarFeature, cell: str) -> Verdict:
    kind, noun = kind_of(cell), feature.noun
    like = {"date": "2024-03-01", "datetime": "2024-03-01 14:30", "time": "14:30"}[feature.kind]
    days = [re.fullmatch(pattern_of("date", each), cell.strip(), re.ASCII) for each in DATES]
    if kind == "a time" and feature.kind == "time":
        return "a time that no day has", "mend the row"
    if any(day is not None and is_real(day) for day in days):
        if feature.kind == "time":
            return "a date", "declare it `type: date` with its range and how it is `written`, or put it under `ignore`"
        return "a date without a time of day", "declare the column `type: date`, or write a time of day after it"
    if any(days):
        return "a date that no calendar has", "mend the row"
    if kind in ("a date", "a moment with the name of a zone") and feature.kind != "time":
        return "a date in a form without a pattern", f"write it as {like}; a zone by its distance from UTC, +01:00"
    if kind in (A_MISSING_WORD, A_TEXT, "a time"):
        return kind, {**_OF_ANY_COLUMN, A_TEXT: f"write {noun}s like {like}; {_TEXT}"}[kind]
    return kind, f"write {noun}s like {like} in the file, or declare the column `numeric` or `categorical`"
