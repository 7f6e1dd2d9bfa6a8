"""Records of JSON, one a line or in one list: rows of cells by the names of their fields, an absent one empty."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from accountant.errors import DataError
from training.rows.sources.text_bytes import open_bytes

MOST_CELLS, MOST_LINE, MOST_LIST = 1 << 25, 1 << 24, 1 << 30  # characters of a line, and of a list
LINE = 'write one record a line, like {"age": 34, "town": "Bonn"}'
FLAT = "write each part as a field of its own, as `pandas.json_normalize` does"


def read_records(path: Path, codec: str) -> tuple[list[str], list[Sequence[Any]], list[int]]:
    """Read the names of the fields as they first come, the rows, and in which line each stands, in a list which one it
    is. DataError where a record cannot be read, is nested, or there are more than MOST_CELLS cells.
    """
    places, rows, columns = list[int](), list[list[Any]](), dict[str, int]()
    with io.TextIOWrapper(open_bytes(path), codec) as text:
        for place, record in _records(text):
            problem = _problem_of(record)
            if problem or not isinstance(record, _Fields):
                raise DataError(f"data={path.name}: line {place}: {problem}")
            row: list[Any] = [None] * len(columns)
            for name, cell in record:
                at = columns.setdefault(name, len(columns))
                row += [None] * (at + 1 - len(row))
                row[at] = cell
            places.append(place)
            rows.append(row)
            if len(columns) * len(rows) > MOST_CELLS:
                raise DataError(f"data={path.name}: has more than {MOST_CELLS} cells; save it as .csv or .parquet")
    if not columns:
        raise DataError(f"data={path.name}: holds no record; {LINE}")
    return [*columns], [row + [None] * (len(columns) - len(row)) for row in rows], places


class _Fields(tuple[tuple[str, Any], ...]):
    """The fields of one record, in their order."""


# A whole number that no column of numbers may hold exactly is a text.
_DECODER = json.JSONDecoder(
    object_pairs_hook=_Fields, parse_int=lambda digits: int(digits) if len(digits) < 19 else digits
)


def _records(text: io.TextIOWrapper) -> Iterator[tuple[int, Any]]:
    """Yield what each line holds, or each place of a list; None where it is no JSON."""
    place = 0
    while line := text.readline(MOST_LINE):
        place += 1
        if place == 1 and line.lstrip().startswith("["):
            listed = _decode(line + text.read(MOST_LIST))
            yield from enumerate([listed] if listed is None else listed, 1)
        elif line.strip():
            yield place, _decode(line)


def _decode(text: str) -> Any:
    try:
        return _DECODER.decode(text.strip())
    except (ValueError, RecursionError):
        return None


def _problem_of(record: Any) -> str | None:
    """Return what keeps a record from being a row, and the remedy."""
    if not isinstance(record, _Fields):
        return f"is no record of JSON; {LINE}"
    if len(dict(record)) < len(record):
        return "names a field twice; name each once"
    nested = next((name for name, cell in record if isinstance(cell, _Fields | list)), None)
    return None if nested is None else f"{nested!r} holds a record or a list; {FLAT}"
