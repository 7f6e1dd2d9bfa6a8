"""How a file seems to be written: told to its steward, to be declared in a schema. Nothing is read by it."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import cast

from models.features.csv_lines import CsvLines, OtherDelimiter, said_delimiter
from models.features.written import Delimiter, Form
from training.rows.sources.encoding import list_readings
from training.rows.sources.text_bytes import open_bytes

FIRST_LINES = 5
MARKS: tuple[Delimiter, ...] = (",", ";", "\t", "|")


def form_of(path: Path, skip: int = 0) -> Form:
    """Return the encoding and the delimiter that a file seems to have: by its first bytes, by what decodes, and by the
    mark that cuts its first row, below `skip` lines, into the most cells.
    """
    encoding = list_readings(path)[0].encoding
    text = "".join(islice(io.StringIO(read_beginning(path, Form(encoding=encoding)), newline=""), skip, None))
    first, *more = _cut_lines(text)
    cells = {mark: len(next(_first_rows(text, mark), ())) for mark in MARKS}
    delimiter = max(cells, key=lambda mark: cells[mark])
    said = said_delimiter(first)
    if said in MARKS or (cells[delimiter] > 1 and not (delimiter == "\t" and "  " in first)):
        delimiter = next((mark for mark in MARKS if mark == said), delimiter)
        count, with_blank = (sum(line.count(mark) for line in more) for mark in (delimiter, delimiter + " "))
        spaced = delimiter in ",;" and 0 < count == with_blank
        return Form(cast(Delimiter, delimiter + " " if spaced else delimiter), encoding)
    sizes = {len(row) for row in islice(_first_rows("\n".join([first, *more]), " "), FIRST_LINES) if row}
    return Form(" " if len(sizes) == 1 and sizes != {1} else ",", encoding)


def _first_rows(text: str, delimiter: Delimiter) -> Iterator[list[str]]:
    """Yield rows as the reader of files cuts them, up to a quote that is not closed."""
    with suppress(csv.Error, OtherDelimiter):
        yield from CsvLines(io.StringIO(text, newline=""), Form(delimiter))


def first_lines(path: Path, form: Form) -> list[str]:
    """Return the first lines of a file, at least one."""
    return _cut_lines(read_beginning(path, form))


def _cut_lines(text: str) -> list[str]:
    return re.split(r"\r\n|\r|\n", text, maxsplit=FIRST_LINES)[:FIRST_LINES]


def read_beginning(path: Path, form: Form, errors: str = "replace") -> str:
    """Read a mebibyte; `errors`: what becomes of bytes that are none of its encoding."""
    with open_bytes(path) as file:
        return codecs.getincrementaldecoder(form.codec)(errors).decode(file.read(1 << 20))
