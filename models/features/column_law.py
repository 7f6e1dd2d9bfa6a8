"""The law of a column: what a feature reads from an Arrow column, through whatever door the column came.

A file, a request and a notebook make an Arrow column of what they hold, and nothing else; this module says which
values, which missing ones and which refusals it has. By feature and type of the column (`written`: how its texts are
written):

- a number: of numbers and decimals the value, of texts the number, in the digits of any alphabet, any dash before or
  behind it or brackets about it a minus; null and NaN are missing, and what is infinite lies beyond every cut point; a
  truth value is no number;
- a truth value: of booleans, of the numbers 0 and 1, of texts the words for yes and no;
- a date, a moment, a time of day: of dates, timestamps (in UTC) and times, of texts by their patterns; no number is
  one;
- a category, and a class: of texts the text as it stands; of numbers and truth values, where any are listed, the listed
  text that means the same (`010` is listed, the column holds 10); of dates the ISO text. A class also of texts that
  mean a listed number or truth value, for what is no class is refused, and never "other".

Dictionaries, views and large texts are as their values. Everything else is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple
from unicodedata import decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from models.features.date_patterns import month_of, patterns_of
from models.features.features import CalendarFeature, CategoricalFeature, Feature, NumericFeature
from models.features.written import DASHES, PLAIN_SIGNS, USUAL, Written

NULLS = ["", "NA", "N/A", "NaN", "nan", "null", "NULL"]  # a missing value, in texts that stand for another type
_DAY_US = 86_400_000_000
_EXACT = 2.0**53  # below it every whole number is a float of its own
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", re.ASCII)


class Misfit(Exception):
    """A column, or some of its cells, do not fit the feature. `problem` never quotes a cell. `row`: the first such
    cell, counted from the column's first, None where the whole column does not fit; `cells` (n,): all such, where they
    are known.
    """

    def __init__(self, problem: str, row: int | None = None, cells: NDArray[np.bool_] | None = None) -> None:
        super().__init__(problem)
        self.problem, self.cells = problem, cells
        self.row = row if cells is None else int(cells.argmax())


def told_row(row: int) -> str:
    """Return the place of a row, counted from 0, as every message tells it: a spreadsheet's header is row 1."""
    return f"row {row + 2} as a spreadsheet counts"


@dataclass(frozen=True)
class ClassFeature(CategoricalFeature):
    """The column of a target with classes."""


def read_column(feature: Feature, column: pa.Array, written: Written = USUAL) -> NDArray[Any]:
    """Return what the feature reads: float64 (n,), NaN where missing; of a category texts (n,), None where missing.
    Raises Misfit.
    """
    if isinstance(feature, CategoricalFeature):
        read = read_class_texts if isinstance(feature, ClassFeature) else read_texts
        texts = read(feature.values, column, written)
        if not pa.types.is_dictionary(texts.type):
            return np.asarray(texts.to_numpy(zero_copy_only=False), dtype=object)
        repeated: NDArray[Any] = np.array([*texts.dictionary.to_pylist(), None], dtype=object)[places_in(texts)]
        return repeated  # one object for each that differs, however long it is
    if isinstance(feature, CalendarFeature):
        return read_dates(feature, column, written)
    return read_numbers(column, written) if isinstance(feature, NumericFeature) else read_truths(column, written)


def plain_column(column: pa.Array) -> pa.Array:
    """Return the same values as one array, without views and extension types."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    return column.cast(pa.large_string()) if pa.types.is_string_view(column.type) else column


def places_in(words: pa.DictionaryArray) -> NDArray[np.int64]:
    """Return the place of each value in the dictionary, which is one beyond its end where there is none."""
    places = words.indices.cast(pa.int64()).fill_null(len(words.dictionary))  # its own integers may end before that
    return np.asarray(places.to_numpy(zero_copy_only=False), np.int64)


def is_text(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds texts, dictionaries of them included."""
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _floats(column: pa.Array) -> NDArray[np.float64]:
    if column.type != pa.float64() or column.null_count:
        column = column.cast(pa.float64(), safe=False).fill_null(float("nan"))
    return np.asarray(column.to_numpy(zero_copy_only=False), np.float64)


# ---- numbers and truth values


def read_numbers(column: pa.Array, written: Written = USUAL) -> NDArray[np.float64]:
    """Return a column of numbers, NaN where missing. Raises Misfit."""
    column = plain_column(column)
    if is_text(column.type):
        return _without(_each_text(column, written, _numbers_of), written)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if not (_is_number(kind) or pa.types.is_null(kind)):
        raise Misfit(f"holds {str(kind)[:60]}; must be numbers")
    return _without(_floats(column), written)


def _without(numbers: NDArray[np.float64], written: Written) -> NDArray[np.float64]:
    """Return the numbers, those that stand for a missing value as NaN."""
    if not written.missing_numbers:
        return numbers
    return np.where(np.isin(numbers, written.missing_numbers), np.nan, numbers)


def read_truths(column: pa.Array, written: Written = USUAL) -> NDArray[np.float64]:
    """Return a column of truth values as 0, 1 and NaN where missing. Raises Misfit."""
    column = plain_column(column)
    if is_text(column.type):
        return _each_text(column, written, _truths_of)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if not (_is_number(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)):
        raise Misfit(f"holds {str(kind)[:60]}; must be true or false")
    numbers = _floats(column)
    wrong = ~(np.isnan(numbers) | (numbers == 0) | (numbers == 1))
    if wrong.any():
        raise Misfit("neither true nor false: of numbers, 0 and 1 are", cells=wrong)
    return numbers


@lru_cache(maxsize=64)
def _nulls(written: Written) -> pa.Array:
    return pa.array([*NULLS, *written.missing], pa.large_string())


class _Meant(NamedTuple):
    """What distinct texts mean: numbers, which of them are not understood, and what would have been."""

    values: NDArray[np.float64]
    wrong: NDArray[np.bool_]
    wanted: str


def _each_text(
    column: pa.Array, written: Written, understand: Callable[[pa.Array, Written], _Meant]
) -> NDArray[np.float64]:
    """Return the number of each text, by looking at each distinct one once; blanks about it do not count, and NULLS
    and the declared words are missing.
    """
    words = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    texts = pc.utf8_trim_whitespace(words.dictionary.cast(pa.large_string()))
    missing = np.asarray(pc.or_kleene(pc.is_null(texts), pc.is_in(texts, _nulls(written))).fill_null(True), bool)
    values, wrong, wanted = understand(_with_plain_digits(texts.fill_null("")), written)
    wrong = np.append(wrong & ~missing, False)
    numbers = np.append(np.where(missing, np.nan, values), np.nan)
    codes = places_in(words)
    if wrong.any() and (bad := wrong[codes]).any():
        raise Misfit(wanted, cells=bad)
    result: NDArray[np.float64] = numbers[codes]
    return result


def _with_plain_digits(texts: pa.Array) -> pa.Array:
    """Return texts with the digits of every alphabet as 0 to 9."""
    is_plain = pc.string_is_ascii(texts)
    if pc.all(is_plain).as_py():
        return texts
    others = texts.filter(pc.invert(is_plain)).to_pylist()
    spelt = ["".join(str(decimal(letter, letter)) for letter in text) for text in others]
    return pc.replace_with_mask(texts, pc.invert(is_plain), pa.array(spelt, texts.type))


_MARKS = {".": r"\.", ",": ",", "either": "[.,]"}
_BLANKS = "[ \u00a0\u2007\u2009\u202f]"
_NO_DIGITS = r"(?i:inf|infinity|nan(?:\([a-z0-9_]*\))?)"  # C writes -nan(ind), which is missing as NaN is
_THOUSANDS = {".": r"\.", ",": ",", " ": _BLANKS, "'": "['\u2019]"}


def number_pattern(written: Written) -> str:
    """Return what a number looks like in a text with PLAIN_SIGNS: its sign before it, and nothing else about it."""
    return rf"[+-]?{_bare_number(written)}"


def _bare_number(written: Written) -> str:
    mark, whole = _MARKS[written.decimal], "[0-9]+"
    if written.thousands:
        whole += f"|[0-9]{{1,3}}(?:{_THOUSANDS[written.thousands]}[0-9]{{3}})+"
    if written.thousands == ",":  # as India parts them: 1,23,456
        whole += "|[0-9]{1,2}(?:,[0-9]{2})+,[0-9]{3}"
    return rf"(?:(?:(?:{whole})(?:{mark}[0-9]*)?|{mark}[0-9]+)(?:[eE][+-]?[0-9]+)?|{_NO_DIGITS})"


def _numbers_of(texts: pa.Array, written: Written) -> _Meant:
    texts = pc.replace_substring(texts, "\u066b", "," if written.decimal == "," else ".")  # as Arabic writes it
    texts, pattern = pc.replace_substring_regex(texts, f"[{DASHES}]", "-"), f"^{number_pattern(written)}$"
    fits = pc.match_substring_regex(texts, pattern)
    if not pc.all(fits).as_py():
        odd = pc.invert(fits)
        texts = pc.replace_with_mask(texts, odd, _with_sign_first(texts.filter(odd), written))
        fits = pc.match_substring_regex(texts, pattern)
    if written.thousands:
        texts = pc.replace_substring_regex(texts, _THOUSANDS[written.thousands], "")
    plain = pc.replace_substring_regex(pc.replace_substring(texts, ",", "."), r"^\+", "")
    values = pc.if_else(fits, plain, pa.scalar("nan", plain.type)).cast(pa.float64())
    words = {".": "", ",": " written with ',' before its fraction", "either": " written with a point or a comma"}
    return _Meant(np.asarray(values), ~np.asarray(fits, bool), f"not a number{words[written.decimal]}")


def _with_sign_first(texts: pa.Array, written: Written) -> pa.Array:
    """Return texts without the unit that stands before or behind a number, and with the sign of one right before it: a
    minus may stand apart (`- 5`) or behind it (`5-`), or be brackets about it (`(5)`), within the unit or around it.
    Others stay as they are.
    """
    number, blanks = _bare_number(written), f"{_BLANKS}*"
    if written.unit_mark:
        unit = re.escape(written.unit_mark.translate(PLAIN_SIGNS))
        around = rf"^(?:([+(-]?){blanks}{unit}{blanks}(.*)|(.*?){blanks}{unit}({blanks}[)-]?))$"
        texts = pc.replace_substring_regex(texts, around, r"\1\2\3\4")
    negative = rf"^(?:-{blanks}({number})|({number}){blanks}-|\({blanks}({number}){blanks}\))$"
    texts = pc.replace_substring_regex(texts, negative, r"-\1\2\3")
    return pc.replace_substring_regex(texts, rf"^\+{blanks}({number})$", r"\1")


def _truths_of(texts: pa.Array, written: Written) -> _Meant:
    meant, named = written.truth_words(), ", ".join(sorted(written.truths()))
    words = pc.utf8_lower(pc.utf8_normalize(texts, "NFKC"))
    index = pc.index_in(words, value_set=pa.array(list(meant), pa.large_string()))
    values = np.append(np.array([*meant.values()], float), np.nan)[np.asarray(index.fill_null(len(meant)))]
    others = "" if written.true or written.false else ", and yes and no in many languages"
    return _Meant(values, np.isnan(values), f"neither true nor false; these words are read: {named}{others}")


# ---- dates


def read_dates(feature: CalendarFeature, column: pa.Array, written: Written = USUAL) -> NDArray[np.float64]:
    """Return a column of dates or times as the numbers that models compare, NaN where missing. Raises Misfit."""
    column = plain_column(column)
    if is_text(column.type):
        return _each_text(column, written, partial(_dates_of, feature))
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_null(kind):
        return np.full(len(column), np.nan)
    is_day = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
    if not (pa.types.is_time(kind) if feature.kind == "time" else is_day):
        raise Misfit(f"holds {str(kind)[:60]}; must be {feature.noun}s")
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz), safe=False)
        column = column.cast(pa.int64()).cast(pa.timestamp("us"))
    micros = column.cast(pa.time64("us") if feature.kind == "time" else pa.timestamp("us"), safe=False).cast(pa.int64())
    return _as_compared(feature, _floats(micros))


def _as_compared(feature: CalendarFeature, micros: NDArray[Any]) -> NDArray[np.float64]:
    return np.floor(micros / _DAY_US) if feature.kind == "date" else micros / 1_000_000


def _dates_of(feature: CalendarFeature, texts: pa.Array, written: Written) -> _Meant:
    micros, is_real = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.bool_)
    for pattern in patterns_of(feature, written.dates):
        places = np.flatnonzero(~is_real)
        if not len(places):
            break
        match = pc.extract_regex(texts if len(places) == len(texts) else texts.take(pa.array(places)), pattern)
        fits = np.asarray(pc.is_valid(match))
        if fits.any():
            at = places[fits]
            micros[at], is_real[at] = _micros(match.filter(pa.array(fits)), written)
    listed = " or ".join(written.dates) or "so that its day and its month can be told apart here; send a file"
    wanted = {
        "time": "not a time of day like 14:30",
        "date": f"not a date written {listed}",
        "datetime": f"not a date {listed} and a time after it",
    }
    return _Meant(_as_compared(feature, micros), ~is_real, wanted[feature.kind])


def _micros(match: pa.StructArray, written: Written) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return matched texts as microseconds since 1970, and which of them are in the calendar. A zone is subtracted:
    UTC.
    """
    texts = {field.name: match.field(field.name) for field in match.type}
    parts: Mapping[str, Any] = {name: text for name, text in texts.items() if pc.any(pc.not_equal(text, "")).as_py()}

    def whole(name: str, default: int) -> NDArray[np.int64]:
        if name not in parts:
            return np.full(len(match), default, np.int64)
        texts = pc.if_else(pc.equal(parts[name], ""), str(default), parts[name])
        return np.asarray(texts.cast(pa.int64()))

    year, month, day = whole("year", 1970), whole("month", 1), whole("day", 1)
    hour, minute, second = whole("hour", 0), whole("minute", 0), whole("second", 0)
    if written.first_year is not None and "year" in parts:
        is_short = np.asarray(pc.equal(pc.utf8_length(parts["year"]), 2))
        year = np.where(is_short, written.first_year + (year - written.first_year) % 100, year)
    if "name" in parts:
        month = np.array([month_of(name) for name in parts["name"].to_pylist()], np.int64)
    if "half" in parts:  # of the day: 12 is the first hour of each
        half = pc.utf8_lower(parts["half"])
        of_twelve = np.where((hour < 1) | (hour > 12), 24, hour % 12 + 12 * np.asarray(pc.equal(half, "p")))
        hour = np.where(np.asarray(pc.equal(half, "")), hour, of_twelve)
    real = (year >= 1) & (month >= 1) & (month <= 12) & (hour < 24) & (minute < 60) & (second < 60)
    months = ((np.where(real, year, 1970) - 1970) * 12 + np.where(real, month, 1) - 1).astype("M8[M]")
    days = months.astype("M8[D]") + (day - 1)
    real &= (day >= 1) & (days.astype("M8[M]") == months)
    micros = days.astype(np.int64) * _DAY_US + ((hour * 60 + minute) * 60 + second) * 1_000_000
    if "part" in parts:
        micros += np.asarray(pc.utf8_slice_codeunits(pc.utf8_rpad(parts["part"], 6, "0"), 0, 6).cast(pa.int64()))
    if "zone" in parts:
        zones = [f"{zone.replace(':', '')}00"[:5] for zone in parts["zone"].to_pylist()]
        named = [zone if zone[0] in "+-" else "+0000" for zone in zones]
        clocks = np.array([(int(f"{zone[0]}1"), int(zone[1:3]), int(zone[3:])) for zone in named], np.int64)
        real &= (clocks[:, 1] < 24) & (clocks[:, 2] < 60)
        micros -= clocks[:, 0] * (clocks[:, 1] * 60 + clocks[:, 2]) * 60_000_000
    return micros, real


# ---- categories and classes


def read_texts(listed: Sequence[str], column: pa.Array, written: Written = USUAL) -> pa.Array:
    """Return a column of texts, large ones or a dictionary of them, null where missing; what is no text as the text
    among `listed` that means the same, else in its plainest form. Raises Misfit.
    """
    texts = _texts_of(listed, plain_column(column))
    if written.trim:
        words = texts if pa.types.is_dictionary(texts.type) else texts.dictionary_encode()
        texts = pc.utf8_trim_whitespace(words.dictionary).take(words.indices)
    if not written.missing:
        return texts
    words = texts if pa.types.is_dictionary(texts.type) else texts.dictionary_encode()
    is_missing = pc.is_in(pc.utf8_trim_whitespace(words.dictionary), pa.array(written.missing, pa.large_string()))
    kept = pc.if_else(is_missing, pa.scalar(None, pa.large_string()), words.dictionary)
    return pa.DictionaryArray.from_arrays(words.indices, kept)


def _texts_of(listed: Sequence[str], column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_dictionary(kind):
        words = _texts_of(listed, plain_column(column.dictionary))
        words = words.dictionary_decode() if pa.types.is_dictionary(words.type) else words
        return pa.DictionaryArray.from_arrays(column.indices, words)
    if is_text(kind) or pa.types.is_null(kind):
        return column.cast(pa.large_string())
    if pa.types.is_boolean(kind):
        words_of = _by_truth(listed)
        if len(words_of) < 2:
            raise Misfit("holds truth values; the listed values have no words for both")
        return pc.if_else(column, *(pa.scalar(words_of[means], pa.large_string()) for means in (True, False)))
    if _is_number(kind):
        by_number = {float(text): text for text in reversed(listed) if _NUMBER.fullmatch(text)}
        if not by_number:
            raise Misfit(f"holds {str(kind)[:60]}; no listed value is a number")
        return _listed_numbers(column, listed, by_number)
    if pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_timestamp(kind):
        return pc.replace_substring_regex(column.cast(pa.large_string()), r" 00:00:00(\.0+)?Z?$", "")
    raise Misfit(f"holds {str(kind)[:60]}; must be texts, numbers or truth values")


def read_class_texts(listed: Sequence[str], column: pa.Array, written: Written = USUAL) -> pa.DictionaryArray:
    """Return a column of classes as a dictionary of large texts. As `read_texts`; and what is no class, where it is the
    number or the truth value of one (`1.0` for 1; `True` for yes, and so 1), as that class. Raises Misfit.
    """
    column, meant = plain_column(column), class_reader(tuple(listed))
    plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    if _is_number(plain.type) and not any(map(_NUMBER.fullmatch, listed)) and len(_by_truth(listed)) == 2:
        column = pc.equal(pa.array(read_truths(plain, written), from_pandas=True), 1.0)
    words = read_texts(listed, column, written)
    words = words if pa.types.is_dictionary(words.type) else words.dictionary_encode()
    texts = [None if text is None else meant(text) for text in words.dictionary.to_pylist()]
    return pa.DictionaryArray.from_arrays(words.indices, pa.array(texts, pa.large_string()))


@lru_cache(maxsize=64)
def class_reader(listed: tuple[str, ...]) -> Callable[[str], str]:
    """Return what reads a text as one of the `listed` classes: itself, or that of the same number or truth value; as it
    stands where it is none.
    """
    known, truths, by_truth = {*listed}, USUAL.truths(), _by_truth(listed)
    by_number = {float(text): text for text in reversed(listed) if _NUMBER.fullmatch(text)}

    def read(text: str) -> str:
        if text in known:
            return text
        plain = text.strip().lower()
        number = float(plain) if _NUMBER.fullmatch(plain) else None
        if number in by_number and abs(number) < _EXACT:
            return by_number[number]
        means = truths.get(plain, {0.0: False, 1.0: True}.get(number) if number is not None and not by_number else None)
        return text if means is None or len(by_truth) < 2 else by_truth[means]

    return read


def _by_truth(listed: Sequence[str]) -> dict[bool, str]:
    """Return the first of the listed texts that mean yes, and the first that mean no."""
    truths = USUAL.truths()
    return {truths[text.strip().lower()]: text for text in reversed(listed) if text.strip().lower() in truths}


def _listed_numbers(column: pa.Array, listed: Sequence[str], by_number: Mapping[float, str]) -> pa.Array:
    """Return numbers as texts, whole ones without a point; where that is not listed and the number is, as it is listed.
    NaN is missing. Raises Misfit for a fraction where none is listed, and for what is infinite.
    """
    numbers = column.cast(pa.float64(), safe=False)
    if pa.types.is_integer(column.type):
        texts = column.cast(pa.large_string())
    else:
        nothing = pa.scalar(None, pa.float64())
        numbers = pc.if_else(pc.is_nan(numbers), nothing, numbers)
        is_whole = pc.and_(pc.equal(pc.floor(numbers), numbers), pc.less(pc.abs(numbers), _EXACT)).fill_null(True)
        wrong = pc.is_inf(numbers).fill_null(False)
        if all(number.is_integer() for number in by_number):
            wrong = pc.or_(wrong, pc.invert(is_whole))
        if pc.any(wrong).as_py():
            raise Misfit("a number that no listed value is like", cells=np.asarray(wrong, bool))
        whole = pc.if_else(is_whole, numbers, nothing).cast(pa.int64()).cast(pa.large_string())
        texts = pc.coalesce(whole, numbers.cast(pa.large_string()))
    same = pc.index_in(numbers, value_set=pa.array(list(by_number), pa.float64()))
    as_listed = pc.take(pa.array(list(by_number.values()), pa.large_string()), same)
    is_listed = pc.is_in(texts, value_set=pa.array(listed, pa.large_string()))
    is_unlike = pc.or_(pc.is_null(as_listed), pc.greater_equal(pc.abs(numbers), _EXACT).fill_null(True))
    return pc.if_else(pc.or_(is_listed, is_unlike), texts, as_listed)
