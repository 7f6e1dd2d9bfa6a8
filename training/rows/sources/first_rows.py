"""The first rows of a file as they stand, for its steward to point at the one that has the names; and which row that
seems to be, and which sheet of a workbook: told to the steward and declared in a schema. Nothing is read by it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from models.features.csv_lines import said_delimiter
from models.features.written import Form
from training.rows.sources.cell_tables import CellTable
from training.rows.sources.folders import open_table
from training.rows.sources.sniff import MARKS, form_of, read_beginning
from training.rows.sources.tables import MOST_ABOVE

SHOWN, WIDE, LONG = 8, 12, 24  # rows, cells of a row, and characters of a cell, that are shown
FEWEST = 3  # cells of a row that stands below titles


@dataclass(frozen=True)
class FirstRows:
    """How a file seems to be written, as far as that is `form`; its first `rows`; the `sheets` of a workbook."""

    form: Form
    rows: tuple[tuple[str, ...], ...] = ()
    sheets: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return what a page shows, for the steward of the file alone."""
        cut = [[cell[:LONG] for cell in cells[:WIDE]] for cells in self.rows[: max(SHOWN, self.form.skip + 2)]]
        return {"form": asdict(self.form), "rows": cut, "sheets": list(self.sheets)}


def look_at_first_rows(path: Path, said: Mapping[str, Any]) -> FirstRows | None:
    """Return the first rows of a workbook, or of a text file that is cut into cells; None of another file, and of a
    folder. `said`: what a person said of the form; the rest is as it seems to be.
    """
    first, *more = open_table(path).parts
    if more or path.is_dir():
        return None
    if isinstance(first, CellTable):
        return _look_at_sheet(first, said)
    return _look_at_text(first.path, said) if first.is_text else None


def _look_at_sheet(table: CellTable, said: Mapping[str, Any]) -> FirstRows | None:
    facts = replace(table, form=Form(**{"sheet": said.get("sheet", "")})).first_rows
    if not facts["sheets"]:
        return None
    is_said = bool(facts["sheet"]) and len(facts["sheets"]) > 1
    rows = tuple(map(tuple, facts["rows"]))
    named = "skip" in said or bool(said.get("columns"))
    skip = 0 if named else count_titles([sum(map(bool, cells)) for cells in rows])
    form = Form(**{"skip": skip, **said, "sheet": facts["sheet"] if is_said else said.get("sheet", "")})
    return FirstRows(form, rows, tuple(facts["sheets"]))


def _look_at_text(path: Path, said: Mapping[str, Any]) -> FirstRows:
    if said.keys() >= {"encoding", "delimiter"}:
        guess = Form(**{key: said[key] for key in ("encoding", "delimiter")})
    else:
        guess = form_of(path)
    text = read_beginning(path, guess)
    lines = [line.rstrip("\r\n") for line in islice(io.StringIO(text, newline=""), MOST_ABOVE)]
    if not {"skip", "columns"} & said.keys() and said_delimiter("".join(lines[:1])) is None:
        guess = _below_titles(path, text, guess, "delimiter" in said)
    form = Form(**{**asdict(guess), **said})
    return FirstRows(form, tuple(tuple(next(iter(_cut(line, form.mark)), ((), 0))[0]) for line in lines))


def _below_titles(path: Path, text: str, guess: Form, delimiter_is_said: bool) -> Form:
    """Return the form of a text with lines of titles above its names: most rows are as wide as the one with the names,
    and the first is not, by the mark that the first seems to be cut by.
    """
    for mark in (guess.mark,) if delimiter_is_said else (guess.mark, *(each for each in MARKS if each != guess.mark)):
        rows = [*_cut(text, mark)]
        widths = [len(cells) for cells, _ in rows]
        usual = max(widths, key=widths.count, default=0)
        above = count_titles([sum(map(bool, cells)) for cells, _ in rows])
        if mark == guess.mark and 1 < usual == widths[0] and not above:
            return guess
        if not above or usual < FEWEST or 2 * widths.count(usual) < len(widths):
            continue
        skip = rows[above - 1][1]
        return replace(guess if delimiter_is_said else form_of(path, skip), encoding=guess.encoding, skip=skip)
    return guess


def count_titles(filled: Sequence[int]) -> int:
    """Return how many of the first rows hold titles: of each row, how many of its cells are `filled`. The row with the
    names fills about as many as the fullest, for a column or two may have none.
    """
    most = max(filled, default=0)
    least = most - max(1, most // 4)
    return next(at for at, count in enumerate(filled) if count >= least) if most >= FEWEST else 0


def _cut(text: str, mark: str) -> list[tuple[list[str], int]]:
    """Return the first rows, each with how many lines end with it, up to a quote that is not closed."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark)
    rows = []
    with suppress(csv.Error):
        for cells in islice(reader, MOST_ABOVE):
            rows.append((cells, reader.line_num))
    return rows
