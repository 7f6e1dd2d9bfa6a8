"""Files of text as tables: lines that are cut into cells, which have no types of their own."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from accountant.errors import DataError
from models.features.column_law import NULLS
from models.features.csv_lines import (
    CsvLines,
    OtherDelimiter,
    broken_quote,
    explain_quotes,
    name_columns,
    said_delimiter,
)
from models.features.written import Form
from training.rows import kernels
from training.rows.sources.encoding import can_decode, is_utf8, lines_beside_utf8
from training.rows.sources.sniff import first_lines, form_of, read_beginning
from training.rows.sources.tables import MOST_ABOVE, FileTable, Kinds, OtherNumbers, Placed
from training.rows.sources.text_bytes import open_bytes

CHUNK = 1 << 13  # rows that are looked at together
NO_ROWS = ("Empty CSV file", "Could not skip")  # as pyarrow says it of a file that ends with its header
# As the law of columns has it, which looks at texts without blanks about them: some blanks alone say nothing, too.
_NO_NUMBERS = [f"{before}{null}{after}" for null in NULLS for before in ("", " ", "  ") for after in ("", " ", "  ")]


@dataclass
class CsvTable(FileTable):
    """A .csv file, its first line a header, cut into cells as `form` says."""

    is_text = True
    uses = ("delimiter", "encoding", "columns", "skip", "skip_rows")

    @property
    def own(self) -> Sequence[tuple[str, None]]:
        """Return the names of the header: a .csv says no types."""
        return [(name, None) for name in self._header[0]]

    @cached_property
    def _scanned(self) -> tuple[int, bool]:
        """Count line ends, and tell whether the file holds a quote."""
        lines, quotes = 1, False
        with open_bytes(self.path) as file:
            for part in iter(lambda: file.read(1 << 20), b""):
                codes = np.frombuffer(part, np.uint8)  # `count` of bytes takes five times as long
                lines += int(np.count_nonzero((codes == ord("\n")) | (codes == ord("\r"))))
                quotes = quotes or b'"' in part
        return lines, quotes

    @cached_property
    def _holds_lines(self) -> bool:
        """Return whether a cell in quotes holds a line's end: then the end of a row must be looked for. DataError where
        quotes are not as `CsvLines` reads them, which the quick reader of rows does not mind.
        """
        if not self._scanned[1]:
            return False
        follow, state = kernels.quotes, np.array([0, self._header[1], 0, 0, 0, -1, 0], np.int64)
        for part in self._in_utf8():
            follow.follow(np.frombuffer(part, np.uint8), ord(self.form.mark), state)
            if state[follow.PLACE] == follow.BROKEN:
                break
        if state[follow.PLACE] in (follow.BROKEN, follow.QUOTED):
            opened, broke = int(state[follow.OPENED]), int(state[follow.BROKE])
            raise self._refuse(broken_quote(self._line_of(opened), self._line_of(broke) if broke >= 0 else None))
        return bool(state[follow.HELD_LINES])

    def _in_utf8(self) -> Iterator[bytes]:
        """Yield the file as UTF-8 without a byte order mark, part by part."""
        decoder = codecs.getincrementaldecoder(self.form.codec)("replace")
        with open_bytes(self.path) as file:
            start = file.read(len(codecs.BOM_UTF8))
            start = b"" if start == codecs.BOM_UTF8 else start
            for part in chain([start], iter(lambda: file.read(1 << 20), b"")):
                yield part if self.form.encoding == "utf-8" else decoder.decode(part).encode()

    def _line_of(self, place: int) -> int:
        """Return in which line of the file a byte of its UTF-8 stands."""
        lines, after_cr = 1, False
        for part in self._in_utf8():
            part = part[:place]
            lines += len(re.findall(rb"\r\n?|\n", part)) - int(after_cr and part[:1] == b"\n")
            after_cr, place = part[-1:] == b"\r" if part else after_cr, place - len(part)
        return lines

    def _refuse(self, words: str) -> DataError:
        return DataError(f"data={self.name}: {words}")

    @cached_property
    def _header(self) -> tuple[list[str], int, int]:
        """Read the names of the header as they stand, how many lines they take with those before them, and how many
        these are. DataError where there are no names.
        """
        lines = self.lines(io.StringIO(read_beginning(self.path, self.form), newline=""))
        with self.reading_quotes():
            cells, count = lines.header()
        if not any(map(str.strip, cells)):
            raise DataError(f"data={self.name}: the file is empty")
        if any("\ufffd" in name for name in cells):
            read_beginning(self.path, self.form, "strict")  # raises what the reading of the rows would
        return cells, count, lines.skipped

    @property
    def header_lines(self) -> int:
        """Return how many lines the header takes, with those before it."""
        return self._header[1]

    @property
    def is_cut_by_line(self) -> bool:
        """Return whether pyarrow cannot cut it: cells that blanks part, rows that are nobody's between others."""
        return self.form.has_blanks or bool(self.form.skip_rows)

    def lines(self, text: Iterable[str]) -> CsvLines:
        """Cut lines of the file into cells. DataError where it says itself that it is cut otherwise."""
        try:
            return CsvLines(text, self.form)
        except OtherDelimiter as error:
            raise self._refuse(str(error)) from None

    @contextmanager
    def reading_quotes(self) -> Iterator[None]:
        """Say of what `lines` refuses within where it stands: DataError."""
        try:
            yield
        except csv.Error as error:
            with io.TextIOWrapper(open_bytes(self.path), self.form.codec, "replace", "") as text:
                raise self._refuse(explain_quotes(text, self.form, error)) from None

    def fitting_form(self, wanted: Collection[str]) -> Form:
        """Return the form with the row of the names, the encoding and the mark that the file seems to have; with names
        of its own where each row has a cell more than there are names.
        """
        seems, form = form_of(self.path), replace(self.form, skip=self._row_of_names(wanted))
        is_wide = seems.encoding.startswith("utf-16") and seems.encoding != form.encoding
        spoilt = form.encoding == "utf-8" and not is_wide and self.lines_of_another_encoding()
        if is_wide or self.is_utf8_after_all() or not (spoilt or can_decode(self.path, form.encoding)):
            form = replace(form, encoding=seems.encoding)
        first = [*first_lines(self.path, form), *[""] * form.skip][form.skip]
        if seems.mark != form.mark and (said_delimiter(first) or form.mark not in first):
            form = replace(form, delimiter=seems.delimiter)
        table = replace(self, form=form)
        with suppress(DataError, UnicodeError):  # which are raised where the rows are read
            begins = next(table.placed(), Placed((), {}))
            if named := _name_more(table.names, [] if begins.places else [*begins.odd.values()]):
                form = replace(form, columns=tuple(named), skip=table.header_lines)
        return form

    def _row_of_names(self, wanted: Collection[str]) -> int:
        """Return how many lines stand above the one in which all these names are; as declared where none of the first
        has them.
        """
        skips: Iterable[int] = dict.fromkeys((self.form.skip, *range(0 if self.form.columns else MOST_ABOVE)))
        for skip in skips:
            with suppress(DataError, UnicodeError):  # of another encoding, perhaps
                if {*wanted} <= {*replace(self, form=replace(self.form, skip=skip)).names}:
                    return skip
        return self.form.skip

    def lines_of_another_encoding(self) -> list[int]:
        """Return which lines of a file, most of which can be read in its encoding, cannot."""
        if self.form.encoding == "utf-8":
            return lines_beside_utf8(self.path)
        with io.TextIOWrapper(open_bytes(self.path), self.form.codec, "replace") as text:
            lines = [at for at, line in enumerate(text, 1) if "\ufffd" in line]
        return [] if not lines or can_decode(self.path, self.form.encoding) else lines

    def is_utf8_after_all(self) -> bool:
        """Return whether it is UTF-8 and declared to be another encoding."""
        return self.form.encoding != "utf-8" and is_utf8(self.path)

    def placed(self, ignored: Collection[str] = ()) -> Iterator[Placed]:
        """Cut it into cells line by line, which goes on where the reader of registrations ends."""
        return self._cut("replace")

    def _cut(self, errors: str) -> Iterator[Placed]:
        """Cut it into cells; `errors`: what becomes of bytes that are none of its encoding."""
        with io.TextIOWrapper(open_bytes(self.path), self.form.codec, errors, "") as text:
            names, lines = self.names, self.lines(text)
            at = lines.skipped + (1 if self.form.columns else 2)  # where the first row stands
            lines.header()
            numbered = ((row, cells) for row, cells in enumerate(lines, at) if cells)  # an empty line is no row
            while True:
                with self.reading_quotes():
                    rows = dict(islice(numbered, CHUNK))
                if not rows:
                    return
                odd = {row: cells for row, cells in rows.items() if len(cells) != len(names)}
                whole = rows if not odd else {row: cells for row, cells in rows.items() if row not in odd}
                columns = [pa.array(cells, pa.string()) for cells in zip(*whole.values(), strict=True)]
                yield Placed([*whole], dict(zip(names, columns, strict=False)), odd)

    @cached_property
    def names(self) -> list[str]:
        """Return the header's names, each once: the third column is `column 3` where it has no name, and a second one
        called `note` is `note (2)`. DataError where there is no header.
        """
        return name_columns(self._header[0])

    def batches(self, columns: Sequence[str], kinds: Kinds) -> Iterator[pa.RecordBatch]:
        """Raise OtherNumbers where a cell is no plain number in a column that must be one."""
        if self.is_cut_by_line:
            yield from self._cut_batches(columns, kinds)
            return
        names = self.names
        convert = pyarrow.csv.ConvertOptions(
            column_types=dict(kinds), null_values=_NO_NUMBERS, strings_can_be_null=False, include_columns=list(columns)
        )
        parse = pyarrow.csv.ParseOptions(delimiter=self.form.mark, newlines_in_values=self._holds_lines)
        read = pyarrow.csv.ReadOptions(encoding=self.form.encoding, column_names=names, skip_rows=self._header[1])
        try:
            yield from pyarrow.csv.open_csv(open_bytes(self.path), read, parse, convert)
        except pa.ArrowInvalid as error:
            if "straddl" in str(error):
                raise self._refuse(self._longest_row()) from None
            if str(error).startswith(NO_ROWS):
                return
            column = re.match(r"In CSV column #(\d+)", str(error))
            if column is None or kinds.get(names[int(column[1])]) != pa.float64():
                raise
            raise OtherNumbers(names[int(column[1])]) from None

    def _cut_batches(self, columns: Sequence[str], kinds: Kinds) -> Iterator[pa.RecordBatch]:
        """Read by the line what pyarrow cannot cut."""
        for placed in self._cut("strict"):
            if placed.odd:
                raise pa.ArrowInvalid("CSV parse error: a row has more or fewer cells than the first one")
            cells = [_as_kind(name, placed.columns[name], kinds.get(name, pa.string())) for name in columns]
            yield pa.RecordBatch.from_arrays(cells, list(columns))

    def _longest_row(self) -> str:
        """Say which row is longer than what is read at one time."""
        with io.TextIOWrapper(open_bytes(self.path), self.form.codec, newline="") as text, self.reading_quotes():
            lines = self.lines(text)
            sizes = [sum(map(len, cells)) for cells in lines]
        row = sizes.index(max(sizes)) + lines.skipped + (0 if self.form.columns else 1)
        return f"row {row} as a spreadsheet counts: is longer than a mebibyte; shorten its cells, or leave columns out"

    def most_rows(self) -> int:
        """Count the ends of its lines."""
        return self._scanned[0]


def _as_kind(name: str, texts: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        if pa.types.is_floating(kind):
            texts = pc.if_else(pc.is_in(texts, pa.array(_NO_NUMBERS)), None, texts)
        return texts.cast(kind)
    except pa.ArrowInvalid:
        raise OtherNumbers(name) from None


def _name_more(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str] | None:
    """Name the columns of rows that all have one cell more than the header: without a name is the last one where it is
    empty, else the first one, as R writes row names. None where they have not.
    """
    if len(rows) < 2 or any(len(cells) != len(names) + 1 for cells in rows):
        return None
    more = [f"column {len(names) + 1}"] if not any(cells[-1] for cells in rows) else []
    return [*([] if more else ["column 0"]), *names, *more]
