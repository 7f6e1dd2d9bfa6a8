"""Many files as one table: a folder, or what a pattern finds, with Hive partitions (`year=2024/part-0.parquet`).

Files are taken in the order of their names. Each must have the columns of the first, of types that one type holds
exactly: that is looked at before any row is read, so that a file that differs is named and nothing of the others is
packed.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
from pyarrow.types import is_decimal, is_floating, is_integer

from accountant.errors import DataError
from models.features.column_law import is_text
from models.features.written import PLAIN, Form
from training.rows.sources.files import SAID, form_ending, named_ending, open_file
from training.rows.sources.tables import FileTable, Kinds, Types

HIVE_MISSING = "__HIVE_DEFAULT_PARTITION__"
MOST_FILES = 100_000


def open_table(data: Path, form: Form = PLAIN) -> Table:
    """Open a file, a folder of files, or a pattern like `x/*.parquet`. DataError where nothing is there."""
    root, files = find_files(data)
    if [*files] != [data]:
        return open_files(data.name, root, files, form)
    file = open_file(data, form)
    return Table(file.name, root, [file])


def find_files(data: Path) -> tuple[Path, Sequence[Path]]:
    """Return the files of a folder or a pattern and the folder that they lie in, in which none need be; of another path
    itself.
    """
    if data.is_dir():
        return data, _within(data)
    if data.exists() or not glob.has_magic(str(data)):
        return data.parent, [data]
    paths = sorted(Path(file) for file in glob.glob(str(data), recursive=True))
    fixed = next(at for at, part in enumerate(data.parts) if glob.has_magic(part))  # folders before the pattern
    files = [file for path in paths for file in (_within(path) if path.is_dir() else [path])]
    return Path(*data.parts[:fixed]), files


def open_files(name: str, root: Path, files: Sequence[Path], form: Form = PLAIN) -> Table:
    """Open files below a folder as one table. DataError where their names say that they are none."""
    odd = next((path for path in files if not named_ending(path)), None)  # what lies beside rows is seldom meant
    if odd is not None or len(files) > MOST_FILES or not files:
        problem = "holds no file of rows" if not files else f"holds more than {MOST_FILES} files"
        problem = problem if odd is None else f"{odd.name}: must be {SAID}"
        raise DataError(f"data={name}: {problem}")
    if len(set(map(form_ending, files))) > 1:
        raise DataError(
            f"data={name}: its files are of several forms: {', '.join(sorted({*map(named_ending, files)}))}"
        )
    return Table(name, root, [replace(open_file(path, form), keys=_keys(path.relative_to(root))) for path in files])


def _keys(path: Path) -> dict[str, str | None]:
    """Return the partition that a file lies in."""
    pairs = (part.split("=", 1) for part in path.parts[:-1] if "=" in part)
    return {name: None if value == HIVE_MISSING else unquote(value) for name, value in pairs}


def _within(folder: Path) -> list[Path]:
    """Return every file below it, but for those that tools write beside rows: hidden ones, and _SUCCESS."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [path for path in files if not any(part[:1] in "._" for part in path.relative_to(folder).parts)]


@dataclass
class Table:
    """Rows with named columns, wherever they come from: those of its `parts`, one after the other, which lie below
    `root`; the folders of theirs that are called KEY=VALUE are columns.
    """

    name: str
    root: Path
    parts: Sequence[FileTable]

    @property
    def is_plain(self) -> bool:
        """Return whether each file is, and all are of the same types."""
        return all(table.is_plain and table.types().items() <= self._types.items() for table in self.parts)

    @cached_property
    def _types(self) -> Types:
        first, keys = self.parts[0].types(), self.parts[0].keys
        both = sorted(first.keys() & keys.keys())
        if both:
            raise DataError(f"columns {both}: name a folder of {self.name} and a column of {self.parts[0].name}")
        together = dict(first)
        for table in self.parts[1:]:
            types = table.types()
            if table.keys.keys() != keys.keys():
                problem = f"lies in a partition by {sorted(table.keys)}, and the first file by {sorted(keys)}"
            elif types.keys() != first.keys():
                problem = f"has other columns than the first file: {sorted(types.keys() ^ first.keys())[:10]}"
            else:
                joined = {name: _holds_both(kind, types[name]) for name, kind in together.items()}
                odd = next((name for name in joined if joined[name] is None and types[name] is not None), None)
                if odd is None:
                    together = joined
                    continue
                problem = f"column {odd!r} holds {types[odd]}, and {first[odd]} in the first file"
            own, other = (part.path.relative_to(self.root) for part in (table, self.parts[0]))
            raise DataError(f"data={own}: {problem} ({other}); write all files alike")
        return {**together, **dict.fromkeys(keys)}

    def types(self) -> Types:
        """Return types that hold exactly what those of all files do; partitions are of no promised type."""
        return dict(self._types)

    def batches(self, columns: Sequence[str], kinds: Kinds) -> Iterator[pa.RecordBatch]:
        """Read file by file."""
        for part in self.parts:
            inside = [name for name in columns if name not in part.keys]
            read = inside or [*part.types()][:1]  # for the number of rows
            for batch in part.batches(read, {name: kind for name, kind in kinds.items() if name in inside}):
                arrays = {name: self._in_one_type(part, name, batch[name]) for name in inside}
                for name in (name for name in columns if name in part.keys):
                    try:
                        scalar = pa.scalar(part.keys[name], pa.string()).cast(kinds.get(name, pa.string()))
                    except pa.ArrowInvalid:
                        place = part.path.relative_to(self.root)
                        raise DataError(f"data={place}: {name} is no {kinds[name]}") from None
                    arrays[name] = pa.repeat(scalar, len(batch))
                yield pa.RecordBatch.from_arrays([arrays[name] for name in columns], list(columns))

    def _in_one_type(self, part: FileTable, name: str, column: pa.Array) -> pa.Array:
        kind = self._types[name]
        try:
            alike = len(self.parts) == 1 or kind in (None, column.type)  # one file may give its texts as codes
            return column if alike else column.cast(kind)
        except pa.ArrowInvalid:
            raise DataError(
                f"data={part.path.relative_to(self.root)}: column {name!r} holds a {column.type} that no {kind}, as "
                "other files have it, holds exactly; write all files alike"
            ) from None

    def most_rows(self) -> int:
        """Return the sum over all files."""
        return sum(table.most_rows() for table in self.parts)


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
