"""Records as CSV (RFC 4180, UTF-8, a header), as `dpserve predict` reads it from a file, and predictions as it writes
them.

By the standard library: a body has at most a few hundred thousand cells, and nothing of it is guessed.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from accountant.errors import RecordError
from dpserve_verify.errors import InputError
from dpserve_verify.system.printable import uncomputed
from models.features.column_law import read_column
from models.features.csv_lines import CsvLines, OtherDelimiter, explain_quotes
from models.features.features import CategoricalFeature, Feature
from models.features.written import PLAIN, USUAL, Form, Written
from serving.wire.bounds import MAX_CELLS, Room, check_cells
from serving.wire.errors import TooLarge
from serving.wire.tables_in import Feed, check_names, columns_by_law, stand_in
from serving.wire.work_time import check_time

CSV = b"text/csv"
NOTES = "notes"  # the column that says what was clipped, unknown or missing
ENDS = ("low", "high")  # columns of the part of an interval that noise makes


@dataclass(frozen=True)
class FileForm:
    """How a file that is sent as it is is written: cut into cells, and each column that is not written as usual."""

    form: Form = PLAIN
    columns: Mapping[str, Written] = field(default_factory=dict)


def columns_of(
    raw: bytes, features: Sequence[Feature], reads: Container[str], limit: int, file: FileForm | None = None
) -> Feed:
    """Read a body into columns (n,) for `OnnxModel.infer`: all are checked, those that the model `reads` are returned.

    The header names exactly the features, in any order; of a `file`, which is read as it says, also others, which are
    passed over. InputError where it is no CSV; RecordError: not the model's
    columns, or a cell that does not fit, by record and field; TooLarge: more than `limit` records.
    """
    form, written = (PLAIN, {}) if file is None else (file.form, file.columns)
    if raw.count(form.mark.encode()) > MAX_CELLS:
        raise TooLarge(f"body: more than {MAX_CELLS} cells", limit=MAX_CELLS)
    lines = _lines(raw, limit, form)
    names: list[str] = next(lines, [])
    if file is not None:
        names = [name.strip() for name in names]
    known = {feature.name for feature in features}
    check_names(names if file is None else [name for name in names if name in known], features)
    records = []
    for index, cells in enumerate(lines):
        if len(cells) != len(names):
            raise RecordError(f"records[{index}]: has {len(cells)} cells; the header has {len(names)}", record=index)
        records.append(cells)
    check_cells(len(records), len(features))
    columns: dict[str, Sequence[str]] = dict(zip(names, zip(*records, strict=True), strict=True) if records else ())
    feed, room = {}, Room()
    for feature in features:
        check_time()
        column = columns.get(feature.name, ())
        if not isinstance(feature, CategoricalFeature):
            with columns_by_law(feature):
                law = written.get(feature.name, USUAL)
                feed[feature.name] = read_column(feature, pa.array(column, pa.string()), law)
        elif feature.name in reads:
            law = written.get(feature.name, USUAL)
            if law.missing or law.trim:
                missing = law.missing_words
                column = ["" if text.strip() in missing else text.strip() if law.trim else text for text in column]
            widest, stand_in_text = stand_in(feature)
            texts = [text if len(text.encode()) <= widest else stand_in_text for text in column]
            room.take(sum(map(len, texts)), feature.name)
            feed[feature.name] = np.array(texts, object)
    return feed


def texts_of(raw: bytes, name: str, limit: int, file: FileForm) -> list[str]:
    """Return the cells of one column as they stand, of a body that `columns_of` has read."""
    lines = _lines(raw, limit, file.form)
    names = [each.strip() for each in next(lines, [])]
    if names.count(name) != 1:
        raise InputError(f"keep {name[:80]!r}: the header has {names.count(name)} columns of that name")
    place = names.index(name)
    return [cells[place] for cells in lines]


def _lines(raw: bytes, limit: int, form: Form) -> Iterator[list[str]]:
    """Yield the header and at most `limit` records; empty lines are skipped."""
    try:
        text = raw.decode(form.codec)
        lines = CsvLines(io.StringIO(text, newline=""), form)
        for count, cells in enumerate(filter(None, lines)):
            if count > limit:
                raise TooLarge(f"records: more than {limit}; at most that many a request", limit=limit)
            yield cells
    except UnicodeDecodeError as error:
        raise InputError(f"body: must be {form.encoding.upper()}, byte {error.start} is not") from None
    except OtherDelimiter as error:
        raise InputError(f"body: {error}") from None
    except csv.Error as error:
        raise InputError(f"body: {explain_quotes(io.StringIO(text, newline=''), form, error)}") from None


def answer_names(classes: Sequence[str | int]) -> list[str]:
    """Return the names of the columns that predictions have."""
    return ["label", *(f"p_{name}" for name in classes)] if classes else ["value"]


def csv_of(
    classes: Sequence[str | int],
    label: NDArray[Any],
    probabilities: NDArray[Any],
    notes: Sequence[str] | None = None,
    kept: tuple[str, Sequence[str]] | None = None,
    ends: NDArray[np.float64] | None = None,
) -> bytes:
    """Return predictions as CSV: `label`, which no spreadsheet computes, and `p_<class>` for each class, or `value`;
    then the `ends` (n, 2) of intervals and the `notes` of each record, where there are some. A column that is `kept`,
    by name, stands first.
    """
    out = io.StringIO(newline="")
    write = csv.writer(out)
    lasts: list[list[Any]] = [[] for _ in label] if ends is None else ends.tolist()
    for last, text in zip(lasts, notes or (), strict=False):
        last.append(uncomputed(text))
    begins = [[]] * len(label) if kept is None else [[text] for text in kept[1]]
    first, named = [] if kept is None else [kept[0]], [] if notes is None else [NOTES]
    write.writerow([*first, *answer_names(classes), *([] if ends is None else ENDS), *named])
    if classes:
        shown = probabilities.astype(np.float32).astype(str).tolist()
        cells = {name: uncomputed(name) if isinstance(name, str) else name for name in classes}
        rows = zip(begins, label.tolist(), shown, lasts, strict=True)
        write.writerows([*begin, cells.get(name, name), *chances, *end] for begin, name, chances, end in rows)
    else:
        numbers = zip(begins, label.tolist(), lasts, strict=True)
        write.writerows([*begin, repr(value), *end] for begin, value, end in numbers)
    return out.getvalue().encode()
