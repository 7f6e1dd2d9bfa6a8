"""Many files as one table: a folder, or what a pattern finds, with Hive partitions (`year=2024/part-0.parquet`).

Files are taken in the order of their names. Each must have the columns of the first, of types that one type holds
exactly: that is looked at before any row is read, so that a file that differs is named and nothing of the others is
packed.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from pyarrow.types import is_decimal, is_floating, is_integer

from accountant.errors import DataError
from models.features.column_law import is_text
from models.features.written import PLAIN, Form
from training.rows.sources.files import SAID, Kinds, Table, ending, form_ending, open_file

HIVE_MISSING = "__HIVE_DEFAULT_PARTITION__"
MOST_FILES = 100_000


def open_table(data: Path, form: Form = PLAIN) -> Table:
    """Open a file, a folder of files, or a pattern like `x/*.parquet`. DataError where nothing is there."""
    if data.is_dir():
        return FolderTable(data.name, data, tuple(_within(data)), form)
    if not data.exists() and glob.has_magic(str(data)):
        paths = sorted(Path(file) for file in glob.glob(str(data), recursive=True))
        files = [file for path in paths for file in (_within(path) if path.is_dir() else [path])]
        fixed = next(at for at, part in enumerate(data.parts) if glob.has_magic(part))  # folders before the pattern
        return FolderTable(data.name, Path(*data.parts[:fixed]), tuple(files), form)
    return open_file(data, form)


def _within(folder: Path) -> list[Path]:
    """Return every file below it, but for those that tools write beside rows: hidden ones, and _SUCCESS."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [path for path in files if not any(part[:1] in "._" for part in path.relative_to(folder).parts)]


@dataclass
class FolderTable:
    """The rows of `files`, one after the other; below `root`, folders called KEY=VALUE are columns."""

    name: str
    root: Path
    files: tuple[Path, ...]
    form: Form = PLAIN

    def check(self) -> None:
        """Raise DataError where the files' names say that they are no table."""
        assert self._tables

    @property
    def is_plain(self) -> bool:
        """Return whether each file is, and all are of the same types."""
        return all(table.is_plain and table.types().items() <= self._types.items() for table in self._tables)

    @property
    def parts(self) -> list[Table]:
        """Return a table for each file."""
        return self._tables

    @property
    def keys(self) -> list[dict[str, str | None]]:
        """Return, for each file, the columns that are names of its folders, and its value in each."""
        return [self._keys(path) for path in self.files]

    @cached_property
    def _tables(self) -> list[Table]:
        kinds = {ending(path) for path in self.files}
        odd = next((path for path in self.files if not ending(path)), None)
        if odd is not None or len(self.files) > MOST_FILES or not self.files:
            problem = "holds no file of rows" if not self.files else f"holds more than {MOST_FILES} files"
            problem = problem if odd is None else f"{odd.name}: must end in {SAID}"
            raise DataError(f"data={self.name}: {problem}")
        if len(set(map(form_ending, self.files))) > 1:
            raise DataError(f"data={self.name}: its files are of several forms: {', '.join(sorted(kinds))}")
        return [open_file(path, self.form) for path in self.files]

    def _keys(self, path: Path) -> dict[str, str | None]:
        """Return the partition that a file lies in."""
        folders = path.relative_to(self.root).parts[:-1]
        pairs = (part.split("=", 1) for part in folders if "=" in part)
        return {name: None if value == HIVE_MISSING else unquote(value) for name, value in pairs}

    @cached_property
    def _types(self) -> dict[str, pa.DataType | None]:
        first, keys = self._tables[0].types(), self._keys(self.files[0])
        both = sorted(first.keys() & keys.keys())
        if both:
            raise DataError(f"columns {both}: name a folder of {self.name} and a column of {self.files[0].name}")
        together = dict(first)
        for path, table in zip(self.files[1:], self._tables[1:], strict=True):
            types = table.types()
            if self._keys(path).keys() != keys.keys():
                problem = f"lies in a partition by {sorted(self._keys(path))}, and the first file by {sorted(keys)}"
            elif types.keys() != first.keys():
                problem = f"has other columns than the first file: {sorted(types.keys() ^ first.keys())[:10]}"
            else:
                joined = {name: _holds_both(kind, types[name]) for name, kind in together.items()}
                odd = next((name for name in joined if joined[name] is None and types[name] is not None), None)
                if odd is None:
                    together = joined
                    continue
                problem = f"column {odd!r} holds {types[odd]}, and {first[odd]} in the first file"
            own, other = (file.relative_to(self.root) for file in (path, self.files[0]))
            raise DataError(f"data={own}: {problem} ({other}); write all files alike")
        return {**together, **dict.fromkeys(keys)}

    def types(self) -> dict[str, pa.DataType | None]:
        """Return types that hold exactly what those of all files do; partitions are of no promised type."""
        return dict(self._types)

    def batches(self, columns: Sequence[str], kinds: Kinds) -> Iterator[pa.RecordBatch]:
        """Read file by file."""
        types = self._types
        for path, table in zip(self.files, self._tables, strict=True):
            keys = {name: value for name, value in self._keys(path).items() if name in columns}
            inside = [name for name in columns if name not in keys]
            read = inside or [next(name for name in types if name not in self._keys(path))]  # for the number of rows
            for batch in table.batches(read, {name: kind for name, kind in kinds.items() if name in inside}):
                arrays = {name: self._in_one_type(path, name, batch[name]) for name in inside}
                for name, value in keys.items():
                    try:
                        scalar = pa.scalar(value, pa.string()).cast(kinds.get(name, pa.string()))
                    except pa.ArrowInvalid:
                        raise DataError(f"data={path.relative_to(self.root)}: {name} is no {kinds[name]}") from None
                    arrays[name] = pa.repeat(scalar, len(batch))
                yield pa.RecordBatch.from_arrays([arrays[name] for name in columns], list(columns))

    def _in_one_type(self, path: Path, name: str, column: pa.Array) -> pa.Array:
        kind = self._types[name]
        try:
            return column if kind in (None, column.type) else column.cast(kind)
        except pa.ArrowInvalid:
            raise DataError(
                f"data={path.relative_to(self.root)}: column {name!r} holds a {column.type} that no {kind}, as other "
                "files have it, holds exactly; write all files alike"
            ) from None

    def most_rows(self) -> int:
        """Return the sum over all files."""
        return sum(table.most_rows() for table in self._tables)


def _holds_both(one: pa.DataType | None, other: pa.DataType | None) -> pa.DataType | None:
    """Return a type that holds exactly what these two do; None where there is none."""
    if one == other or one is None or other is None:
        return one if one == other else None
    plain = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in (one, other)]
    plain = [pa.large_string() if pa.types.is_string_view(kind) else kind for kind in plain]
    if any(map(pa.types.is_null, plain)):
        return plain[int(pa.types.is_null(plain[0]))]
    if len({*map(is_text, plain)}) == 2:
        return None
    if len({*map(is_decimal, plain)}) == 2:  # as the law of columns reads a decimal
        numbers = all(is_decimal(kind) or is_integer(kind) or is_floating(kind) for kind in plain)
        return pa.float64() if numbers else None
    try:
        schemas = [pa.schema([("", kind)]) for kind in plain]
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        return None
