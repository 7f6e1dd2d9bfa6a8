"""What is wrong with a cell of a column, in kind, and the remedy: what a person does to the schema or the file, after
which the cell is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from models.features.column_forms import DATES, is_likely
from models.features.column_law import Misfit, read_column
from models.features.date_patterns import has_short_year, pattern_of
from models.features.features import BooleanFeature, CalendarFeature, DateFeature, Feature
from models.features.written import PLAIN_SIGNS, Written
from training.rows.schema.schema import Target
from training.rows.sources.cell_kinds import (
    A_MISSING_WORD,
    A_TEXT,
    A_TRUTH,
    DAYS,
    NUMBER_WITH_UNIT,
    kind_of,
    sign_first,
    unit_beside,
    without_unit,
)

Verdict = tuple[str, str]  # what is found, and the remedy

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
    "a number with a sign of more or less": "write the number alone",
    NUMBER_WITH_UNIT: "say the unit as it stands there under `unit_mark` of the column: the number is read",
}
NOTHING = ("nothing", "leave the row out, or say `missing: leave-out` of the target (under add-remove)")
NO_CLASS = ("no class", "list the class in `classes`, or mend the row")


def explain_cells(column: Feature | Target, written: Written, cells: Sequence[str]) -> list[Verdict]:
    """Return what stands in cells that the law of columns does not read as this column, and the remedy for each."""
    if isinstance(column, CalendarFeature):
        return _explain_dates(column, written, cells)
    explain = _explain_truth if isinstance(column, BooleanFeature) else _explain_number
    return [explain(cell.strip(), written) for cell in cells]


def _explain_truth(text: str, written: Written) -> Verdict:
    kind = kind_of(text)
    if kind == A_TRUTH:
        return kind, "say what it means by `true_words` and `false_words` of the column"
    if kind == A_TEXT:
        return kind, f"a word for yes or no is said under `true_words` and `false_words`; else {_TEXT}"
    return kind, _OF_ANY_COLUMN.get(kind, _NUMBER)


def _explain_number(text: str, written: Written) -> Verdict:
    if written.unit_mark:
        text = without_unit(sign_first(text), written.unit_mark.translate(PLAIN_SIGNS))
    kind = kind_of(text)
    if kind == NUMBER_WITH_UNIT:
        return kind, _remedy_of_unit(text, written)
    if kind == "a number with a decimal point" and written.thousands:
        return kind, "write it with the mark that the others have, or leave the marks between thousands out"
    return kind, {**_OF_NUMBERS, **_OF_ANY_COLUMN}.get(kind, "write the number alone")


def _remedy_of_unit(text: str, written: Written) -> str:
    if written.unit_mark:
        return "write the numbers of the column in one unit"
    unit = unit_beside(text)
    if unit is None:
        return _OF_NUMBERS[NUMBER_WITH_UNIT]
    said = json.dumps(unit, ensure_ascii=False)
    return f"say `unit_mark: {said}` of the column: the number that stands there is read"


def _explain_dates(feature: CalendarFeature, written: Written, cells: Sequence[str]) -> list[Verdict]:
    """Each pattern is tried on all cells at once, by the law of columns. Of a cell that fits several, those count that
    fit every cell which fits any: else it stays open.
    """
    texts = pa.array(cells, pa.large_string())
    fits = dict[str, NDArray[np.bool_]]()
    for pattern in DATES if feature.kind != "time" else ():
        first_year = (written.first_year or 2000) if has_short_year(pattern) else None
        fits[pattern] = _can_read(feature, texts, Written(dates=(pattern,), first_year=first_year))
        if pattern.isalpha():  # of digits alone, which fit others
            matches = [DAYS[pattern].match(cell.strip()) for cell in cells]
            fits[pattern] &= [match is None or is_likely(match) for match in matches]
    every = np.any([*fits.values()], axis=0) if fits else np.zeros(len(cells), bool)
    common = [pattern for pattern, fit in fits.items() if (fit >= every).all()]
    verdicts: list[Verdict | None] = [None] * len(cells)
    for at in np.flatnonzero(every).tolist():
        patterns = [pattern for pattern in fits if fits[pattern][at] and (pattern in common or not common)]
        verdicts[at] = f"a date written {' or '.join(patterns)}", _remedy_of_patterns(patterns, written)
    of_days = Written(dates=tuple(pattern for pattern in DATES if not has_short_year(pattern)))
    days = _can_read(DateFeature(feature.name, ()), texts, of_days).tolist()
    pairs = zip(verdicts, cells, days, strict=True)
    return [verdict or _misfit_of_calendar(feature, cell.strip(), is_day) for verdict, cell, is_day in pairs]


def _can_read(feature: CalendarFeature, texts: pa.Array, written: Written) -> NDArray[np.bool_]:
    try:
        read_column(feature, texts, written)
    except Misfit as misfit:
        return np.zeros(len(texts), bool) if misfit.cells is None else ~misfit.cells
    return np.ones(len(texts), bool)


def _remedy_of_patterns(patterns: Sequence[str], written: Written) -> str:
    said = [json.dumps(each, ensure_ascii=False) if " " in each else each for each in patterns]
    short = any(map(has_short_year, patterns)) and written.first_year is None
    century = ", and `first_year`, of the hundred years that two digits stand for (1950: 49 is 2049)" if short else ""
    if len(patterns) > 1:
        return f"say which it is under `written` of the column, {' or '.join(said)}{century}"
    both = replace(written, dates=(*written.dates, patterns[0]), first_year=written.first_year or 1950)
    both = replace(both, first_year=both.first_year if any(map(has_short_year, both.dates)) else None)
    if both.problem():
        return f"say `written: [{said[0]}]` of the column{century}, where all are written so; else write it in one form"
    return f"add {said[0]} to `written` of the column{century}, or write it as the others"


def _misfit_of_calendar(feature: CalendarFeature, cell: str, is_day: bool) -> Verdict:
    kind, noun = kind_of(cell), feature.noun
    like = {"date": "2024-03-01", "datetime": "2024-03-01 14:30", "time": "14:30"}[feature.kind]
    if kind == "a time" and feature.kind == "time":
        return "a time that no day has", "mend the row"
    if is_day:
        if feature.kind == "time":
            return "a date", "declare it `type: date` with its range and how it is `written`, or put it under `ignore`"
        return "a date without a time of day", "declare the column `type: date`, or write a time of day after it"
    if any(re.fullmatch(pattern_of("date", pattern), cell, re.ASCII) for pattern in DATES):
        return "a date that no calendar has", "mend the row"
    if kind in ("a date", "a moment with the name of a zone") and feature.kind != "time":
        return "a date in a form without a pattern", f"write it as {like}; a zone by its distance from UTC, +01:00"
    if kind in (A_MISSING_WORD, A_TEXT, "a time"):
        return kind, {**_OF_ANY_COLUMN, A_TEXT: f"write {noun}s like {like}; {_TEXT}"}[kind]
    return kind, f"write {noun}s like {like} in the file, or declare the column `numeric` or `categorical`"
