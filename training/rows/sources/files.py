"""One file of rows, by the end of its name: one of ENDINGS.

Read in batches: memory is bounded whatever the size of a file, and what a compressed one may unpack to is.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from pyarrow import ipc

from accountant.errors import DataError
from models.features.column_law import NULLS
from models.features.csv_lines import CsvLines, OtherDelimiter, broken_quote, explain_quotes, name_columns
from models.features.written import PLAIN, Form
from training.rows import kernels
from training.rows.sources.cell_readers import MOST_ABOVE
from training.rows.sources.cell_tables import SHEETS, STATISTICS, CellTable, split_sheet
from training.rows.sources.text_bytes import PACKED, RECORDS, TEXT, open_bytes, packing_of

NO_ROWS = ("Empty CSV file", "Could not skip")  # as pyarrow says it of a file that ends with its header
BATCH_ROWS = READ_BYTES = 1 << 16
BATCH_BYTES, FIRST_ROWS = 1 << 24, 256
ARROW = (".arrow", ".feather", ".ipc")
_PACKED = [f"{text}{packed}" for text in (*TEXT, *RECORDS) for packed in PACKED]
ENDINGS = (".parquet", *SHEETS, *STATISTICS, *_PACKED, *TEXT, *RECORDS, *ARROW, ".zip")
SAID = (
    ".parquet, .csv, .tsv, .txt, .data, .jsonl, .ndjson, .json (also with .gz, .zst and .zip), .zip, .xlsx, .xlsm, "
    ".xls, .ods, .arrow, .feather, .ipc, or of SPSS, Stata and SAS .sav, .zsav, .por, .dta, .sas7bdat and .xpt"
)
Kinds = Mapping[str, pa.DataType]
# As the law of columns has it, which looks at texts without blanks about them: some blanks alone say nothing, too.
_NO_NUMBERS = [f"{before}{null}{after}" for null in NULLS for before in ("", " ", "  ") for after in ("", " ", "  ")]


class OtherNumbers(Exception):
    """A column of a .csv has cells that pyarrow reads as no numbers: what the law of columns says is not asked yet."""

    def __init__(self, column: str) -> None:
        super().__init__(column)
        self.column = column


class Table(Protocol):
    """Rows with named columns."""

    @property
    def name(self) -> str:
        """Return its name, for messages."""
        ...

    @property
    def is_plain(self) -> bool:
        """Return whether every other reader takes it as it is: the same names, and the same cells."""
        ...

    def types(self) -> dict[str, pa.DataType | None]:
        """Return names and types of the columns, in their order; None where the form says none."""
        ...

    def batches(self, columns: Sequence[str], kinds: Kinds) -> Iterator[pa.RecordBatch]:
        """Read these columns, all rows in order; where the form of the file has no types, as the `kinds` say."""
        ...

    def most_rows(self) -> int:
        """Return as many rows as there are, or may be."""
        ...


def ending(path: Path) -> str:
    """Return the ending of the file's name, one of ENDINGS; "" where it has none of them."""
    name = split_sheet(path)[0].name.lower()
    return next((suffix for suffix in ENDINGS if name.endswith(suffix)), "")


def unused_keys(path: Path, form: Form) -> list[str]:
    """Return the keys of `format` that say which rows and cells of another kind of file than this one are read."""
    is_text = form_ending(path) in TEXT
    keys = ["sheet"] if is_text else ["sheet", "columns", "skip", "skip_rows"]
    keys = [] if ending(path) in SHEETS else keys
    return [key for key in keys if getattr(form, key) != getattr(PLAIN, key)]


def form_ending(path: Path) -> str:
    """Return the ending without that of a packed file, which is a .csv where it says nothing else."""
    suffix = ending(path)
    plain = next((suffix.removesuffix(packed) for packed in PACKED if suffix.endswith(packed)), suffix)
    return plain or (".csv" if suffix else "")


def no_such_file(data: str) -> str:
    """Say that there is no such file; of an address, which a path has lost a stroke of, where one may stand."""
    address = "; name a file or folder of this machine: `dpserve dataset register` alone reads addresses"
    return f"data={data}: no such file{address if re.match('[a-z0-9+]+:/', data) else ''}"


def open_file(path: Path, form: Form = PLAIN) -> Table:
    """Open a file by its ending; `book.xlsx#name` is a sheet of a workbook. DataError where it has none of ENDINGS."""
    path, sheet = split_sheet(path)
    form, suffix = replace(form, sheet=sheet) if sheet else form, ending(path)
    if not suffix:
        raise DataError(f"data={path.name}: must end in .parquet or .csv (or {SAID})")
    if path.exists() and not path.is_file():  # a pipe: it would be waited for, and can be read once
        raise DataError(f"data={path.name}: must be a file; write what comes out of a pipe to one first")
    if suffix == ".parquet":
        return ParquetTable(path)
    if suffix in (*SHEETS, *STATISTICS) or form_ending(path) in RECORDS:
        return CellTable(path, form)
    return ArrowTable(path) if suffix in ARROW else CsvTable(path, form)


@dataclass
class ParquetTable:
    """A Parquet file: a row group is never read at once."""

    path: Path

    @property
    def name(self) -> str:
        """Return the file's name."""
        return self.path.name

    @property
    def is_plain(self) -> bool:
        """Return whether its names are its own."""
        return bool([*self.types()] == self._footer.schema.to_arrow_schema().names)

    def types(self) -> dict[str, pa.DataType | None]:
        """Read names and types from the footer."""
        schema = self._footer.schema.to_arrow_schema()
        return dict(zip(name_columns(schema.names), schema.types, strict=True))

    def batches(self, columns: Sequence[str], kinds: Kinds) -> Iterator[pa.RecordBatch]:
        """Yield as many rows at once as come to BATCH_BYTES; where texts are long, each once, as words and codes."""
        own = dict(zip(self.types(), self._footer.schema.to_arrow_schema().names, strict=True))
        read = [*dict.fromkeys(own[name] for name in columns)]
        names = [own[name] for name, kind in self.types().items() if name in columns and kind and _is_text(kind)]
        file = self._open(names)
        rows = self._rows_at_once(file, read)
        if names and rows >= FIRST_ROWS:
            file = self._open()
        count = 0
        for batch in file.iter_batches(max(FIRST_ROWS, rows), columns=read):
            count += len(batch)
            called = {stands: [name for name, other in own.items() if other == stands] for stands in read}
            names = [called[stands].pop(0) for stands in batch.schema.names]
            yield pa.RecordBatch.from_arrays(batch.columns, names).select(list(columns))
        if count != self.most_rows():
            raise DataError(f"data={self.name}: says that it has {self.most_rows()} rows, and holds {count}")

    @cached_property
    def _footer(self) -> pyarrow.parquet.FileMetaData:
        return pyarrow.parquet.read_metadata(self.path)

    def _open(self, coded: Sequence[str] = ()) -> pyarrow.parquet.ParquetFile:
        return pyarrow.parquet.ParquetFile(
            self.path, metadata=self._footer, pre_buffer=False, buffer_size=READ_BYTES, read_dictionary=list(coded)
        )

    def _rows_at_once(self, file: pyarrow.parquet.ParquetFile, columns: Sequence[str]) -> int:
        """Return as many rows as come to BATCH_BYTES, at most BATCH_ROWS: few where texts are long. By what the file
        says of its parts, and by its first rows: texts that repeat take more room in memory than in the file.
        """
        about, chosen = self._footer, set(columns)
        first = next(file.iter_batches(FIRST_ROWS, columns=list(columns)), None)
        widths = [sum(map(_size, first.columns)) / max(1, len(first))] if first is not None else []
        for part in map(about.row_group, range(about.num_row_groups)):
            chunks = map(part.column, range(part.num_columns))
            size = sum(
                chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema.split(".")[0] in chosen
            )
            widths.append(size / max(1, part.num_rows))
        return min(BATCH_ROWS, int(BATCH_BYTES / max([1, *widths])))

    def most_rows(self) -> int:
        """Read the number of rows from the footer."""
        return int(self._footer.num_rows)


@dataclass
class ArrowTable:
    """Arrow IPC, the file or the stream, mapped into memory."""

    path: Path

    @property
    def name(self) -> str:
        """Return the file's name."""
        return self.path.name

    def _read(self, columns: Sequence[str] | None = None) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        source = pa.memory_map(str(self.path))
        stream = source.read(6) != b"ARROW1"
        source.seek(0)
        schema = (ipc.open_stream(source) if stream else ipc.open_file(source)).schema
        names = name_columns(schema.names)
        fields = None if columns is None else sorted(map(names.index, columns))
        chosen = ipc.IpcReadOptions(included_fields=fields)
        source.seek(0)
        if stream:
            return schema, iter(ipc.open_stream(source, options=chosen))
        file = ipc.open_file(source, options=chosen)
        return schema, map(file.get_batch, range(file.num_record_batches))

    @property
    def is_plain(self) -> bool:
        """Return whether its names are its own."""
        return bool([*self.types()] == self._read()[0].names)

    def types(self) -> dict[str, pa.DataType | None]:
        """Read names and types from the head."""
        schema = self._read()[0]
        return dict(zip(name_columns(schema.names), schema.types, strict=True))

    def batches(self, columns: Sequence[str], kinds: Kinds) -> Iterator[pa.RecordBatch]:
        """Yield the batches as they lie in the file, cut to BATCH_ROWS."""
        called = [name for name in self.types() if name in columns]
        for batch in self._read(columns)[1]:
            batch = pa.RecordBatch.from_arrays(batch.columns, called)
            batch.validate(full=True)  # places within its buffers are the file's own words, followed by no check
            for start in range(0, len(batch), BATCH_ROWS):
                yield batch.slice(start, BATCH_ROWS).select(list(columns))

    def most_rows(self) -> int:
        """Count the rows batch by batch, by the first column that can be read: nobody may want a damaged one."""
        for name in self.types():
            with suppress(OSError, pa.ArrowException):
                return sum(map(len, self._read([name])[1]))
        return sum(map(len, self._read()[1]))


@dataclass
class CsvTable:
    """A .csv file, its first line a header, cut into cells as `form` says."""

    path: Path
    form: Form = PLAIN

    @property
    def name(self) -> str:
        """Return the file's name."""
        return self.path.name

    def raw(self) -> Any:
        """Return the bytes, unpacked."""
        return open_bytes(self.path)

    @cached_property
    def _scanned(self) -> tuple[int, bool]:
        """Count line ends, and tell whether the file holds a quote."""
        lines, quotes = 1, False
        with self.raw() as file:
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

    def require_quotes_closed(self) -> None:
        """Raise DataError where a quote opens a cell that does not end as one in quotes."""
        if not self.is_rewritten:
            assert self._holds_lines in (True, False)

    def _in_utf8(self) -> Iterator[bytes]:
        """Yield the file as UTF-8 without a byte order mark, part by part."""
        decoder = codecs.getincrementaldecoder(self.form.codec)("replace")
        with self.raw() as file:
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
        with self.raw() as file:
            start = bytes(file.read(1 << 20))
        decoder = codecs.getincrementaldecoder(self.form.codec)
        text = decoder("replace").decode(start)
        lines = self.lines(io.StringIO(text, newline=""))
        with self.reading_quotes():
            cells, count = lines.header()
        if not any(map(str.strip, cells)):
            raise DataError(f"data={self.name}: the file is empty")
        if any("\ufffd" in name for name in cells):
            decoder().decode(start)  # raises what the reading of the rows would
        return cells, count, lines.skipped

    @property
    def header_lines(self) -> int:
        """Return how many lines the header takes, with those before it."""
        return self._header[1]

    @property
    def is_plain(self) -> bool:
        """Return whether its cells are parted by one mark, from the header on: as other readers take it."""
        if self.is_rewritten or self.form.columns or self._header[2] or self._header[0] != self.names:
            return False
        return packing_of(self.path) == PACKED.get(self.path.suffix.lower(), "") != "zip"

    @property
    def is_rewritten(self) -> bool:
        """Return whether the quick reader of rows is given another text: of cells that blanks part, of some rows."""
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
            with io.TextIOWrapper(self.raw(), self.form.codec, "replace", "") as text:
                raise self._refuse(explain_quotes(text, self.form, error)) from None

    def row_of_names(self, wanted: Collection[str]) -> int | None:
        """Return how many lines stand above the one in which all these names are; None where none of the first has."""
        skips: Iterable[int] = dict.fromkeys((self.form.skip, *range(MOST_ABOVE)))
        for skip in skips:
            with suppress(DataError, UnicodeError):  # of another encoding, perhaps
                if {*wanted} <= {*CsvTable(self.path, replace(self.form, skip=skip)).names}:
                    return skip
        return None

    @cached_property
    def names(self) -> list[str]:
        """Return the header's names, each once: the third column is `column 3` where it has no name, and a second one
        called `note` is `note (2)`. DataError where there is no header.
        """
        return name_columns(self._header[0])

    def types(self) -> dict[str, pa.DataType | None]:
        """Return None: a .csv says no types."""
        return dict.fromkeys(self.names)

    def batches(self, columns: Sequence[str], kinds: Kinds) -> Iterator[pa.RecordBatch]:
        """Raise OtherNumbers where a cell is no plain number in a column that must be one."""
        names = self.names
        holds_lines = self._scanned[1] if self.is_rewritten else self._holds_lines
        convert = pyarrow.csv.ConvertOptions(
            column_types=dict(kinds), null_values=_NO_NUMBERS, strings_can_be_null=False, include_columns=list(columns)
        )
        parse = pyarrow.csv.ParseOptions(delimiter=self.form.mark, newlines_in_values=holds_lines)
        read = pyarrow.csv.ReadOptions(encoding=self.form.encoding, column_names=names, skip_rows=self._header[1])
        source = self.raw()
        if self.is_rewritten:
            source, parse.delimiter, read.encoding = pa.PythonFile(_Rewritten(self), "r"), "\t", "utf8"
            read.skip_rows = 1
        try:
            yield from pyarrow.csv.open_csv(source, read, parse, convert)
        except pa.ArrowInvalid as error:
            if "straddl" in str(error):
                raise self._refuse(self._longest_row()) from None
            if str(error).startswith(NO_ROWS):
                return
            column = re.match(r"In CSV column #(\d+)", str(error))
            if column is None or kinds.get(names[int(column[1])]) != pa.float64():
                raise
            raise OtherNumbers(names[int(column[1])]) from None

    def _longest_row(self) -> str:
        """Say which row is longer than what is read at one time."""
        with io.TextIOWrapper(self.raw(), self.form.codec, newline="") as text, self.reading_quotes():
            lines = self.lines(text)
            sizes = [sum(map(len, cells)) for cells in lines]
        row = sizes.index(max(sizes)) + lines.skipped + (0 if self.form.columns else 1)
        return f"row {row} as a spreadsheet counts: is longer than a mebibyte; shorten its cells, or leave columns out"

    def most_rows(self) -> int:
        """Count the ends of its lines."""
        return self._scanned[0]


class _Rewritten(io.RawIOBase):
    """A file whose cells blanks part, or some of whose rows are nobody's, with one tab between cells, and without
    these rows: bytes of UTF-8.
    """

    def __init__(self, table: CsvTable) -> None:
        text = io.TextIOWrapper(table.raw(), table.form.codec, newline="")
        self._table, self._rows, self._rest = table, iter(table.lines(text)), b""

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer with as many rows as it takes, at least one, and keep what it does not take."""
        room = memoryview(buffer).cast("B")
        while len(self._rest) < len(room):
            with self._table.reading_quotes():
                rows = [*islice(self._rows, FIRST_ROWS)]
            if not rows:
                break
            out = io.StringIO(newline="")
            csv.writer(out, delimiter="\t", lineterminator="\n").writerows(rows)
            self._rest += out.getvalue().encode()
        part, self._rest = self._rest[: len(room)], self._rest[len(room) :]
        room[: len(part)] = part
        return len(part)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _size(column: pa.Array) -> float:
    """Return the bytes of a column, of words and codes as many as they stand for."""
    if not pa.types.is_dictionary(column.type) or not _is_text(column.type.value_type):
        return float(column.nbytes)
    return float(
        column.indices.nbytes + (pc.sum(pc.binary_length(column.dictionary).take(column.indices)).as_py() or 0)
    )
