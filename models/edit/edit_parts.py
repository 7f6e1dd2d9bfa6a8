"""Which bins an edit is about, as people write it.

`all`                          every bin
`bin 3`, `bin 3-7`             bins by number
`30..40`, `..18`, `65..`       numbers: every bin with values above the first, up to the second; dates as ISO texts; a
                               cut point may be written as it is shown, with six digits or more
`Bachelors, Masters`, `true`   values by name; `other` and `missing` are names too
`["a, b", "c"]`                the same as JSON, for names with commas in them

Programs say the first and the last bin of each run, `[[3, 7], [9, 9]]`: of a pair, its cells row by row.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from math import inf, isnan
from typing import Any, TypeAlias

import numpy as np

from dpserve_verify.errors import InputError
from dpserve_verify.formats import canonical
from models.features.calendar import number_of
from models.features.features import CalendarFeature, CategoricalFeature, Feature, NumericFeature

ALL = "all"
_BINS = re.compile(r"bin (\d{1,5})(?:-(\d{1,5}))?", re.ASCII)
_NAMED = 10  # names that an error message lists
Part: TypeAlias = str | Sequence[Any]


def part_of(feature: Feature, part: str) -> list[int]:
    """Return codes of the bins, ascending, each once. InputError where there is no such bin."""
    text = part.strip()
    names = {feature.label(code): code for code in reversed(range(feature.bins))}  # a value called "other" comes first
    if isinstance(feature, NumericFeature):
        names = {"missing": feature.missing}
    if text in names and isinstance(feature, CategoricalFeature):
        return [names[text]]
    if text == ALL:
        return list(range(feature.bins))
    numbered = _BINS.fullmatch(text)
    if numbered:
        first, last = int(numbered[1]), int(numbered[2] or numbered[1])
        if not first <= last < feature.bins:
            raise InputError(f"bins={first}-{last}: {feature.name} has bins 0 to {feature.bins - 1}")
        return list(range(first, last + 1))
    if isinstance(feature, NumericFeature) and text != "missing":
        return _interval(feature, text)
    return sorted({_code_of_name(feature, name, names) for name in _split_names(text)})


def runs_of(name: str, runs: Sequence[Any], bins: int) -> list[int]:
    """Return codes of runs [first, last] of the `bins` of what is called `name`, ascending, each once. InputError where
    they are none.
    """
    codes: set[int] = set()
    for run in runs:
        ends = list(run) if isinstance(run, list | tuple) else []
        if [type(end) for end in ends] != [int, int] or not 0 <= ends[0] <= ends[1] < bins:
            raise InputError(f"bins={run!r:.80}: must be a first and a last bin, of {name} from 0 to {bins - 1}")
        codes.update(range(ends[0], ends[1] + 1))
    if not codes:
        raise InputError("bins: must name one at least")
    return sorted(codes)


def bin_text(feature: Feature, code: int) -> str:
    """Return a bin as `part_of` reads it, its cut points to six digits."""
    if not isinstance(feature, NumericFeature) or code == feature.missing:
        return feature.label(code)
    if not feature.edges:
        return ALL
    low, high = feature.edges[code - 1 : code], feature.edges[code : code + 1]  # none below the first, above the last
    return "..".join("".join(map(feature.text, ends)) for ends in (low if code else (), high))


def ordered_codes(feature: Feature) -> range:
    """Return codes that stand in an order: the bins of numbers, but for missing. InputError for other features."""
    if not isinstance(feature, NumericFeature):
        raise InputError(f"feature={feature.name}: is {feature.kind}, its values have no order")
    return range(feature.missing)


def ranges(codes: Sequence[int]) -> list[canonical.Encodable]:
    """Return each run of consecutive numbers in the ascending `codes` as [first, last]."""
    starts = [code for before, code in zip((None, *codes), codes, strict=False) if before is None or code > before + 1]
    ends = [code for code, after in zip(codes, (*codes[1:], None), strict=False) if after is None or after > code + 1]
    return [[start, end] for start, end in zip(starts, ends, strict=True)]


def _interval(feature: NumericFeature, text: str) -> list[int]:
    before, dots, after = text.partition("..")
    low, high = _number(feature, before, -inf), _number(feature, after, inf)
    if not dots or not low < high:
        raise InputError(f"bins={text:.80}: {feature.name} is numeric: say 30..40, ..18, 65.., bin 3, missing or all")
    edges = np.asarray(feature.edges)
    return list(range(int(np.searchsorted(edges, low, "right")), int(np.searchsorted(edges, high, "left")) + 1))


def _number(feature: NumericFeature, text: str, otherwise: float) -> float:
    shown = next((edge for edge in feature.edges if feature.text(edge) == text.strip()), None)
    if shown is not None:
        return shown
    try:
        if isinstance(feature, CalendarFeature) and text.strip():
            return number_of(feature.kind, text.strip())
        number = float(text) if text.strip() else otherwise
    except ValueError as error:
        if isinstance(feature, CalendarFeature):
            raise InputError(f"bins={text:.80}: {feature.name}: {error}") from None
        raise InputError(f"bins={text:.80}: {feature.name} is numeric, this is no number") from None
    if isnan(number):
        raise InputError(f"bins={text:.80}: must be numbers")
    return number


def _split_names(text: str) -> list[str]:
    if not text.startswith("["):
        return [name.strip() for name in text.split(",")]
    try:
        names = json.loads(text)
    except ValueError:
        names = None
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"bins={text:.80}: must be a JSON list of texts")
    return names


def _code_of_name(feature: Feature, name: str, names: dict[str, int]) -> int:
    if name not in names:
        rest = "" if len(names) <= _NAMED else f" and {len(names) - _NAMED} more"
        choices = ", ".join(sorted(names, key=names.__getitem__)[:_NAMED])
        raise InputError(f"bins={name!r:.80}: {feature.name} has {choices}{rest}")
    return names[name]
