"""The owner's own rows, read in two steps, so that nothing of a campaign can be told by whether a report comes.

`open_table` reads the file before any campaign is looked at: it is the one step that may fail. `fit_rows` never raises:
a row that does not fit what a campaign asks is marked, and weighs nothing. A .csv (or .parquet, where pyarrow is at
hand) is read without anything that trains or serves.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from math import isnan, nan
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.errors import InputError
from local.reports.corners import corners
from local.reports.question import Question
from models.features.calendar import number_of
from models.features.features import CalendarFeature, CategoricalFeature, Codes, Feature, NumericFeature

Floats = NDArray[np.float64]
Fits = NDArray[np.bool_]
Reader = Callable[[str], float]
MAX_BYTES = 1 << 28
MAX_CELLS = 1 << 24  # numbers that an owner's rows become at once, for any campaign: 128 MB
MIN_ROWS = 32  # that every campaign takes, however wide it is
TRUTHS = dict.fromkeys(("true", "1", "yes"), 1.0) | dict.fromkeys(("false", "0", "no"), 0.0)
MISSING = {"", "na", "nan", "null"}


@dataclass(frozen=True)
class OwnTable:
    """Columns of texts by name, and how many `rows` there are. `problem`: why the file counts as one of no rows, in
    words for the owner alone; None where it was read.
    """

    columns: Mapping[str, list[str]]
    rows: int
    problem: str | None = None


@dataclass(frozen=True, eq=False)
class FittedRows:
    """An owner's rows as a campaign asks for them; at least one, which may be blank. `codes`: one array (n,) a feature;
    `answers` (n, wide): labels' corners, or a number's place in [-1, 1], 0 of a row that does not fit; `fits` (n,).
    """

    codes: list[Codes]
    answers: Floats
    fits: Fits

    @property
    def count(self) -> NDArray[np.int64]:
        """Count the rows, whether they fit or not, as an array (1,) for one owner."""
        return np.array([len(self.fits)])


def open_table(path: Path) -> OwnTable:
    """Read the whole file. What is in it never raises: a file that is no table counts as one of no rows.

    InputError where it cannot be opened; so this is called before a campaign is looked at.
    """
    if path.suffix == ".parquet" and find_spec("pyarrow") is None:
        raise InputError(f"rows={path.name}: a .parquet needs pyarrow; install it, or keep your rows as a .csv")
    try:
        if not path.is_file():
            raise InputError(f"rows={path}: is no file; name one in your settings")
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"rows={path}: cannot be opened ({type(error).__name__})") from None
    if len(raw) > MAX_BYTES:
        return OwnTable({}, 0, f"more than {MAX_BYTES} bytes")
    try:
        return _parquet(raw) if path.suffix == ".parquet" else _csv(raw)
    except Exception as error:  # whatever a file may hold, its owner answers; only the owner is told (`owner check`)
        return OwnTable({}, 0, f"cannot be read as a table ({type(error).__name__})")


def max_rows(definition: Question) -> int:
    """Return how many rows of an owner count at most, the first ones: public, so that memory is bounded whoever
    asks.
    """
    return max(MIN_ROWS, MAX_CELLS // definition.row_numbers)


def fit_rows(table: OwnTable, definition: Question) -> FittedRows:
    """Encode the owner's rows as the campaign asks for them. Never raises, whatever the rows are; a column that is not
    there fits no row. Each cell is read alone: the time follows from how many rows there are, and hardly from what they
    say.
    """
    count = min(max(table.rows, 1), max_rows(definition))
    blank = [""] * count

    def column(name: str) -> tuple[list[str], bool]:
        cells = table.columns.get(name)
        return (blank, False) if not cells else (cells[:count], True)

    texts, there = column(definition.target)
    bounded = getattr(definition, "bounded", None)
    answers, fits = labels(texts, definition.classes) if bounded is None else numbers(texts, bounded)
    fits &= there
    codes = []
    for feature in definition.features:
        texts, there = column(feature.name)
        column_codes, good = _codes(feature, texts)
        fits &= good & there
        codes.append(column_codes)
    return FittedRows(codes, np.where(fits[:, np.newaxis], answers, 0.0), fits)


def labels(answers: Sequence[str], classes: Sequence[str]) -> tuple[Floats, Fits]:
    """Encode each answer as its class's corner (n, K - 1), of two classes -1 of the first and 1 of the second, and 0
    where it is of none of them; and which are of one (n,).
    """
    table = np.concatenate([corners(len(classes)), np.zeros((1, len(classes) - 1))])
    places = {label: at for at, label in enumerate(classes)}
    positions = np.array([places.get(answer, len(classes)) for answer in answers], np.int64)
    return table[positions], positions < len(classes)


def numbers(answers: Sequence[str], ends: tuple[float, float]) -> tuple[Floats, Fits]:
    """Encode each answer as its place (n, 1) in [-1, 1] of its public range, else the nearer end, and 0 where it is no
    number; and which are numbers (n,).
    """
    values, _ = _read_cells(answers, float)
    fits, (low, high) = ~np.isnan(values), ends
    within = np.clip(np.where(fits, values, low), low, high)
    places = np.clip((within - low) / (high - low) * 2 - 1, -1, 1)
    return np.where(fits & np.isfinite(places), places, 0.0)[:, np.newaxis], fits & np.isfinite(places)


def _codes(feature: Feature, texts: list[str]) -> tuple[Codes, Fits]:
    """Return the codes (n,) of a column, and which cells are of its type (n,); a missing one is, by a code of its
    own.
    """
    if isinstance(feature, CategoricalFeature):
        return feature.encode(np.array(texts, dtype=object)), np.ones(len(texts), bool)
    if isinstance(feature, CalendarFeature):
        kind = feature.kind
        values, fits = _read_cells(texts, lambda text: number_of(kind, text))
    elif isinstance(feature, NumericFeature):
        values, fits = _read_cells(texts, float)
    else:
        values, fits = _read_cells([text.lower() for text in texts], TRUTHS.__getitem__)
    return feature.encode(values), fits


def _read_cells(texts: Sequence[str], one: Reader) -> tuple[Floats, Fits]:
    """Return a number (n,) of each text, NaN where it is missing or none; and which are missing or one (n,)."""
    values, fits = np.full(len(texts), nan), np.ones(len(texts), bool)
    for at, text in enumerate(texts):
        cell = text.strip()
        if cell.lower() in MISSING:
            continue
        try:
            values[at] = one(cell)
        except (ValueError, OverflowError, LookupError):
            fits[at] = False
        else:
            fits[at] = not isnan(values[at])
    return values, fits


def _csv(raw: bytes) -> OwnTable:
    reader = csv.reader(io.StringIO(raw.decode("utf-8-sig"), newline=""), strict=True)
    names = next(reader, [])
    rows = list(reader)
    if len(set(names)) != len(names) or any(len(row) != len(names) for row in rows):
        return OwnTable({}, 0, "every row must have one value for each of the header's names, which are different")
    return _table({name: [row[at] for row in rows] for at, name in enumerate(names)}, len(rows))


def _parquet(raw: bytes) -> OwnTable:
    import pyarrow.parquet as pq  # a .csv needs none of it

    table = pq.read_table(io.BytesIO(raw))
    texts = {
        name: ["" if value is None else str(value) for value in table[name].to_pylist()] for name in table.column_names
    }
    return _table(texts, table.num_rows)


def _table(columns: dict[str, list[str]], rows: int) -> OwnTable:
    return OwnTable(columns, rows, None if rows else "has no rows")
