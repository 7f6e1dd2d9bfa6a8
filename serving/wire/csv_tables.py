"""Records as CSV (RFC 4180, UTF-8, a header), as `dpserve predict` reads it from a file, and predictions as it writes
them.

By the standard library: a body has at most a few hundred thousand cells, and nothing of it is guessed.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Container, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from accountant.errors import RecordError
from dpserve_verify.errors import InputError
from dpserve_verify.system.printable import uncomputed
from models.features.column_law import read_column
from models.features.csv_lines import CsvLines, OtherDelimiter, explain_quotes, name_columns
from models.features.features import CategoricalFeature, Feature
from models.features.table_format import USUAL_FORMAT, TableFormat
from models.features.written import Form
from serving.wire.bounds import MAX_CELLS, Room, check_cells
from serving.wire.errors import TooLarge
from serving.wire.tables_in import Feed, as_texts, check_names, columns_by_law, stand_in
from serving.wire.work_time import check_time

CSV = b"text/csv"
NOTES = "notes"  # the column that says what was clipped, unknown or missing
ENDS = ("low", "high")  # columns of the part of an interval that noise makes


def columns_of(
    raw: bytes,
    features: Sequence[Feature],
    reads: Container[str],
    limit: int,
    form: TableFormat = USUAL_FORMAT,
    passes: bool = False,
) -> Feed:
    """Read a body, written as `form` says, into columns (n,) for `OnnxModel.infer`: all are checked, those that the
    model `reads` are returned.

    The header names exactly the features, in any order, once each as `name_columns` names them; others where it
    `passes` over them. InputError where it is no CSV; RecordError: not the model's
    columns, or a cell that does not fit, by record and field; TooLarge: more than `limit` records.
    """
    if raw.count(form.form.mark.encode()) > MAX_CELLS:
        raise TooLarge(f"body: more than {MAX_CELLS} cells", limit=MAX_CELLS)
    lines = _lines(raw, limit, form.form)
    names = check_names([name.strip() for name in next(lines, [])], features, passes)
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
                feed[feature.name] = read_column(feature, pa.array(column, pa.string()), form.written_as(feature.name))
        elif feature.name in reads:
            widest, stand_in_text = stand_in(feature)
            texts = [text if len(text.encode()) <= widest else stand_in_text for text in column]
            room.take(sum(map(len, texts)), feature.name)
            with columns_by_law(feature):
                values = read_column(feature, pa.array(texts, pa.string()), form.written_as(feature.name))
            feed[feature.name] = as_texts(values)
    return feed


def texts_of(raw: bytes, name: str, limit: int, form: Form) -> list[str]:
    """Return the cells of one column as they stand, of a body that `columns_of` has read."""
    lines = _lines(raw, limit, form)
    names = name_columns(next(lines, []))
    if name not in names:
        raise InputError(f"keep {name[:80]!r}: the header has no column of that name")
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
