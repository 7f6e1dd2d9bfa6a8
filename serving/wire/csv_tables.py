"""Records as CSV (RFC 4180, UTF-8, a header), as `dpserve predict` reads it from a file, and predictions as it writes
them.

By the standard library: a body has at most a few hundred thousand cells, and nothing of it is guessed.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from accountant.errors import RecordError
from dpserve_verify.errors import InputError
from dpserve_verify.system.printable import uncomputed
from models.features.csv_lines import CsvLines, OtherDelimiter, explain_quotes
from models.features.features import Feature
from models.features.table_format import USUAL_FORMAT, TableFormat
from models.features.written import Form
from serving.wire.bounds import MAX_CELLS, check_cells
from serving.wire.errors import TooLarge
from serving.wire.tables_in import Table, check_names

if TYPE_CHECKING:
    from models.parts.beside import Columns

CSV = b"text/csv"
NOTES = "notes"  # the column that says what was clipped, unknown or missing
Kept: TypeAlias = tuple[str, Sequence[str]]  # a column that goes with its predictions, such as an id: name and texts


def table_of(
    raw: bytes, features: Sequence[Feature], limit: int, written: TableFormat = USUAL_FORMAT, passes: bool = False
) -> Table:
    """Read a body, cut and `written` so.

    The header names exactly the features, in any order, once each as `name_columns` names them; others where it
    `passes` over them. InputError where it is no CSV; RecordError: not the model's columns, or a record with other
    cells than the header; TooLarge: more than `limit` records.
    """
    if raw.count(written.form.mark.encode()) > MAX_CELLS:
        raise TooLarge(f"body: more than {MAX_CELLS} cells", limit=MAX_CELLS)
    lines = _lines(raw, limit, written.form)
    names = check_names(next(lines, []), features, passes)
    records = []
    for index, cells in enumerate(lines):
        if len(cells) != len(names):
            raise RecordError(f"records[{index}]: has {len(cells)} cells; the header has {len(names)}", record=index)
        records.append(cells)
    check_cells(len(records), len(features))
    by_column = zip(*records, strict=True) if records else repeat((), len(names))
    columns = {name: pa.array(column, pa.string()) for name, column in zip(names, by_column, strict=True)}
    return Table("csv", columns, written)


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


def check_kept(name: str, classes: Sequence[str | int], beside: Sequence[str]) -> None:
    """Raise InputError where the answer has a column of that name."""
    if name in (*answer_names(classes), *beside, NOTES):
        raise InputError(f"keep {name[:80]!r}: a column of the predictions is called so; rename that of the file")


def csv_of(
    classes: Sequence[str | int],
    label: NDArray[Any],
    probabilities: NDArray[Any],
    notes: Sequence[str] | None = None,
    kept: Kept | None = None,
    beside: Columns | None = None,
) -> bytes:
    """Return predictions as CSV: `label`, which no spreadsheet computes, and `p_<class>` for each class, or `value`;
    then what stands `beside` and the `notes` of each record, where there are some. A column that is `kept`,
    by name, stands first.
    """
    out = io.StringIO(newline="")
    write = csv.writer(out)
    lasts: list[list[Any]] = [[] for _ in label]
    for column in (beside or {}).values():
        for last, value in zip(lasts, column.tolist(), strict=True):
            last.append(str(value).lower() if isinstance(value, bool) else value)
    for last, text in zip(lasts, notes or (), strict=False):
        last.append(uncomputed(text))
    begins = [[]] * len(label) if kept is None else [[uncomputed(text)] for text in kept[1]]
    first, named = [] if kept is None else [kept[0]], [] if notes is None else [NOTES]
    write.writerow([*first, *answer_names(classes), *(beside or ()), *named])
    if classes:
        shown = probabilities.astype(np.float32).astype(str).tolist()
        cells = {name: uncomputed(name) if isinstance(name, str) else name for name in classes}
        rows = zip(begins, label.tolist(), shown, lasts, strict=True)
        write.writerows([*begin, cells.get(name, name), *chances, *end] for begin, name, chances, end in rows)
    else:
        numbers = zip(begins, label.tolist(), lasts, strict=True)
        write.writerows([*begin, repr(value), *end] for begin, value, end in numbers)
    return out.getvalue().encode()
