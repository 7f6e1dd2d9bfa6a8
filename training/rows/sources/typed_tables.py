"""Files whose columns have types of their own, as tables: Parquet and Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from pyarrow import ipc

from accountant.errors import DataError
from models.features.csv_lines import name_columns
from training.rows.sources.tables import BATCH_ROWS, FIRST_ROWS, FileTable, Kinds

READ_BYTES, BATCH_BYTES = 1 << 16, 1 << 24


@dataclass
class ParquetTable(FileTable):
    """A Parquet file: a row group is never read at once. `source`: its bytes, where it is not read by its path; then no
    thread is begun for it.
    """

    source: pa.Buffer | None = None

    scanned_as = "parquet"

    @property
    def own(self) -> Sequence[tuple[str, pa.DataType]]:
        """Read names and types from the footer."""
        schema = self._footer.schema.to_arrow_schema()
        return [*zip(schema.names, schema.types, strict=True)]

    def batches(self, columns: Sequence[str], kinds: Kinds) -> Iterator[pa.RecordBatch]:
        """Yield as many rows at once as come to BATCH_BYTES; where texts are long, each once, as words and codes."""
        own = dict(zip(self.types(), (name for name, _ in self.own), strict=True))
        read = [*dict.fromkeys(own[name] for name in columns)]
        names = [own[name] for name, kind in self.types().items() if name in columns and kind and _is_text(kind)]
        file = self._open(names)
        rows = self._rows_at_once(file, read)
        if names and rows >= FIRST_ROWS:
            file = self._open()
        count = 0
        for batch in file.iter_batches(max(FIRST_ROWS, rows), columns=read, use_threads=self.source is None):
            count += len(batch)
            called = {stands: [name for name, other in own.items() if other == stands] for stands in read}
            names = [called[stands].pop(0) for stands in batch.schema.names]
            yield pa.RecordBatch.from_arrays(batch.columns, names).select(list(columns))
        if count != self.most_rows():
            raise DataError(f"data={self.name}: says that it has {self.most_rows()} rows, and holds {count}")

    @cached_property
    def _footer(self) -> pyarrow.parquet.FileMetaData:
        return pyarrow.parquet.read_metadata(self._bytes())

    def _bytes(self) -> Any:
        return self.path if self.source is None else pa.BufferReader(self.source)

    def _open(self, coded: Sequence[str] = ()) -> pyarrow.parquet.ParquetFile:
        return pyarrow.parquet.ParquetFile(
            self._bytes(), metadata=self._footer, pre_buffer=False, buffer_size=READ_BYTES, read_dictionary=list(coded),
            page_checksum_verification=True,
        )  # fmt: skip

    def _rows_at_once(self, file: pyarrow.parquet.ParquetFile, columns: Sequence[str]) -> int:
        """Return as many rows as come to BATCH_BYTES, at most BATCH_ROWS: few where texts are long. By what the file
        says of its parts, and by its first rows: texts that repeat take more room in memory than in the file. What it
        says of columns is not asked: pyarrow ends the process where that is damaged.
        """
        threads = self.source is None
        first = next(file.iter_batches(FIRST_ROWS, columns=list(columns), use_threads=threads), None)
        widths = [sum(map(_size, first.columns)) / max(1, len(first))] if first is not None else []
        parts = map(self._footer.row_group, range(self._footer.num_row_groups))
        widths += [part.total_byte_size / max(1, part.num_rows) for part in parts]
        return min(BATCH_ROWS, int(BATCH_BYTES / max([1, *widths])))

    def most_rows(self) -> int:
        """Read the number of rows from the footer."""
        return int(self._footer.num_rows)


class ArrowTable(FileTable):
    """Arrow IPC, the file or the stream, mapped into memory."""

    scanned_as = "ipc"

    @property
    def own(self) -> Sequence[tuple[str, pa.DataType]]:
        """Read names and types from the head."""
        schema = self._read()[0]
        return [*zip(schema.names, schema.types, strict=True)]

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


def open_parquet(raw: bytes) -> FileTable:
    """Open Parquet by its bytes, which is then read without a thread."""
    return ParquetTable(Path("records"), source=pa.py_buffer(raw))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _size(column: pa.Array) -> float:
    """Return the bytes of a column, of words and codes as many as they stand for."""
    if not pa.types.is_dictionary(column.type) or not _is_text(column.type.value_type):
        return float(column.nbytes)
    return float(
        column.indices.nbytes + (pc.sum(pc.binary_length(column.dictionary).take(column.indices)).as_py() or 0)
    )
