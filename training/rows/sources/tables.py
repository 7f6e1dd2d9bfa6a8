"""What every kind of file of rows becomes: a table of typed columns, which knows where each of its rows stands."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from models.features.csv_lines import name_columns
from models.features.written import PLAIN, Form

BATCH_ROWS, FIRST_ROWS = 1 << 16, 256
MOST_ABOVE = 20  # rows in which the names of the columns are looked for
Kinds = Mapping[str, pa.DataType]
Types = dict[str, pa.DataType | None]


class OtherNumbers(Exception):
    """A column of a .csv has cells that pyarrow reads as no numbers: what the law of columns says is not asked yet."""

    def __init__(self, column: str) -> None:
        super().__init__(column)
        self.column = column


@dataclass(frozen=True)
class Placed:
    """Rows by column, and where each stands, as a spreadsheet counts: the names of the columns stand in row 1. `odd`:
    by place the cells of those that have more or fewer than there are columns, and are no rows.
    """

    places: Sequence[int]
    columns: Mapping[str, pa.Array]
    odd: Mapping[int, Sequence[str]] = field(default_factory=dict)


@dataclass
class FileTable(ABC):
    """The rows of one file, with named columns, written as `form` says. `keys`: columns that are the names of folders
    which it lies in, each with the value of all rows.
    """

    path: Path
    form: Form = PLAIN
    keys: Mapping[str, str | None] = field(default_factory=dict)

    scanned_as: ClassVar[str] = ""  # what pyarrow calls it; "" where others do not take it as it is
    is_text: ClassVar[bool] = False  # whether cells are cut from its lines, and have no types
    has_floats: ClassVar[bool] = False  # whether numbers may stand among the texts of a column

    @property
    def name(self) -> str:
        """Return the file's name, for messages."""
        return self.path.name

    @property
    @abstractmethod
    def own(self) -> Sequence[tuple[str, pa.DataType | None]]:
        """Return names and types as the file itself has them, in their order; None where it says no types."""

    @property
    def is_plain(self) -> bool:
        """Return whether every other reader takes it as it is: the same names, and the same cells."""
        return self.scanned_as != "" and [*self.types()] == [name for name, _ in self.own]

    def types(self) -> Types:
        """Return names and types of the columns, each named once."""
        return dict(zip(name_columns([name for name, _ in self.own]), [kind for _, kind in self.own], strict=True))

    @abstractmethod
    def batches(self, columns: Sequence[str], kinds: Kinds) -> Iterator[pa.RecordBatch]:
        """Read these columns, all rows in order; where the file has no types, as the `kinds` say."""

    @property
    def header_lines(self) -> int:
        """Return how many lines stand before the first row."""
        return 1

    def placed(self, ignored: Collection[str] = ()) -> Iterator[Placed]:
        """Read all columns and where each row stands. What is wrong with one that is `ignored` is passed over."""
        at = self.header_lines + 1
        for batch in self.batches([*self.types()], {}):
            yield Placed(range(at, at + len(batch)), dict(zip(batch.schema.names, batch.columns, strict=True)))
            at += len(batch)

    @abstractmethod
    def most_rows(self) -> int:
        """Return as many rows as there are, or may be."""

    def fitting_form(self, wanted: Collection[str]) -> Form:
        """Return how it seems to be written, for its steward: the declared form where nothing speaks against it. The
        `wanted` columns are looked for.
        """
        return self.form

    def lines_of_another_encoding(self) -> list[int]:
        """Return which lines are not in the encoding of the others."""
        return []

    def is_utf8_after_all(self) -> bool:
        """Return whether it is declared to be written in another encoding, which would read other letters."""
        return False

    def spelling(self, commas: Collection[str]) -> FileTable:
        """Return it with a comma before the fraction of numbers that stand among the texts of these columns."""
        return self

    @property
    def uses(self) -> Collection[str]:
        """Return the keys of `format` that may be said of it. How text is cut may be of every file of typed columns:
        rows that are made from a schema, and what a query answers about text, are such files.
        """
        return ("delimiter", "encoding")

    def unused_keys(self) -> list[str]:
        """Return the keys of `format` that are of another kind of file than this one."""
        keys = [key.name for key in fields(Form) if key.name not in self.uses]
        return [key for key in keys if getattr(self.form, key) != getattr(PLAIN, key)]
