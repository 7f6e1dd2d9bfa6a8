"""What the reader of workbooks does not tell of a sheet's cells: which are shown as per cents, and which hold a formula
that no program has computed. Read from the parts of the file itself: of an .xlsx or an .ods.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import unescape
from xml.etree import ElementTree

_SHEET = re.compile(r"<(?:\w+:)?sheet\b[^>]*>")
_RELATION = re.compile(r"<(?:\w+:)?Relationship\b[^>]*>")
_ATTRIBUTE = re.compile(r"([\w:]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")
_FORMAT = re.compile(r"<(?:\w+:)?numFmt\b[^>]*>")
_STYLES = re.compile(r"<(?:\w+:)?cellXfs\b.*?</(?:\w+:)?cellXfs>", re.DOTALL)
_STYLE = re.compile(r"<(?:\w+:)?xf\b[^>]*>")
_NO_SIGN = re.compile(r"\"[^\"]*\"|\\.|\[[^\]]*\]")  # parts of a form of numbers in which a sign is a text
_CELL = rb"<(?:\w+:)?c\b(?=[^>]*?\bs=\"(?:%s)\")[^>]*?\br=\"([A-Z]+)([0-9]+)\"[^>]*>"
_UNCOMPUTED = re.compile(
    rb"<(?:\w+:)?c\b[^>]*?\br=\"([A-Z]+)([0-9]+)\"[^>]*>\s*<(?:\w+:)?f\b(?:[^>]*/>|[^>]*>[^<]*</(?:\w+:)?f>)\s*"
    rb"(?:<(?:\w+:)?v\s*/>|<(?:\w+:)?v>\s*</(?:\w+:)?v>)?\s*</(?:\w+:)?c>"
)
_PERCENT = {"9", "10"}  # forms that every workbook has, by number
Place = tuple[int, int]  # row and column, from 0


@dataclass
class SheetCells:
    """Where, in a sheet, `percents` stand: numbers shown a hundred times as large, with a sign; and cells that hold a
    formula and no value: `uncomputed`.
    """

    percents: set[Place]
    uncomputed: set[Place]


def shows_percents(form: str) -> bool:
    """Return whether a form of numbers shows them as per cents."""
    return "%" in _NO_SIGN.sub("", form)


def read_sheet_cells(archive: zipfile.ZipFile, sheet: str) -> SheetCells:
    """Find such cells of an .xlsx. A sheet that cannot be found has none."""
    styles = _read(archive, "xl/styles.xml").decode("utf-8", "replace")
    relations = {
        of["Id"]: of.get("Target", "")
        for of in _attributes(_RELATION, _read(archive, "xl/_rels/workbook.xml.rels").decode("utf-8", "replace"))
        if "Id" in of
    }
    book = _read(archive, "xl/workbook.xml").decode("utf-8", "replace")
    named = next((of for of in _attributes(_SHEET, book) if of.get("name") == sheet), {})
    target = relations.get(next((value for key, value in named.items() if key.endswith(":id")), ""), "")
    xml = _read(archive, target.lstrip("/") if target.startswith("/") else f"xl/{target}") if target else b""
    forms = _PERCENT | {
        of.get("numFmtId", "") for of in _attributes(_FORMAT, styles) if shows_percents(of.get("formatCode", ""))
    }
    listed = _STYLES.search(styles)
    of_cells = [of.get("numFmtId") for of in _attributes(_STYLE, listed[0] if listed else "")]
    shown = "|".join(str(at) for at, form in enumerate(of_cells) if form in forms).encode()
    return SheetCells(set(_places(re.compile(_CELL % shown), xml)) if shown else set(), set(_places(_UNCOMPUTED, xml)))


def read_ods_cells(archive: zipfile.ZipFile, check: Callable[[int], None]) -> dict[str, SheetCells]:
    """Find such cells of an .ods, by sheet. `check` is asked whether so many may hold something: one that is written
    once may stand for many.
    """
    sheets, place, cells = dict[str, SheetCells](), [0, 0], 0
    for event, node in ElementTree.iterparse(archive.open("content.xml"), ("start", "end")):
        kind, of = node.tag.rpartition("}")[2], {key.rpartition("}")[2]: value for key, value in node.items()}
        rows, columns = (int(of.get(f"number-{each}-repeated", 1)) for each in ("rows", "columns"))
        if kind == "table" and event == "start":
            sheet, place = sheets.setdefault(of.get("name", ""), SheetCells(set(), set())), [0, 0]
        elif kind == "table-row" and event == "start":
            place[1], high = 0, rows
        elif kind == "table-row":
            place[0] += rows
            node.clear()
        elif kind in ("table-cell", "covered-table-cell") and event == "start":
            is_percent, is_formula = of.get("value-type") == "percentage", "formula" in of and "value-type" not in of
            cells += high * columns * ("value-type" in of)
            check(cells)
            where = ((place[0] + row, place[1] + at) for row in range(high) for at in range(columns))
            (sheet.percents if is_percent else sheet.uncomputed).update(where if is_percent or is_formula else ())
            place[1] += columns
    return sheets


def _read(archive: zipfile.ZipFile, name: str) -> bytes:
    return archive.read(name) if name in archive.namelist() else b""


def _attributes(tag: re.Pattern[str], text: str) -> Iterator[dict[str, str]]:
    for found in tag.finditer(text):
        yield {key: unescape(double or single) for key, double, single in _ATTRIBUTE.findall(found[0])}


def _places(cell: re.Pattern[bytes], xml: bytes) -> Iterator[Place]:
    for found in cell.finditer(xml):
        letters, digits = found.groups()
        column = 0
        for letter in letters:
            column = 26 * column + letter - ord("A") + 1
        yield int(digits) - 1, column - 1
