"""What the reader of workbooks does not tell of a sheet's cells: which are shown as per cents, and which hold a formula
that no program has computed. Read from the parts of the file itself.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from html import unescape

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


class SheetCells:
    """The cells of a sheet of a workbook, as they are written in its file."""

    def __init__(self, archive: zipfile.ZipFile, sheet: str) -> None:
        """Find the sheet by its name. What cannot be found has no such cells."""
        self._styles = _read(archive, "xl/styles.xml").decode("utf-8", "replace")
        relations = {
            of["Id"]: of.get("Target", "")
            for of in _attributes(_RELATION, _read(archive, "xl/_rels/workbook.xml.rels").decode("utf-8", "replace"))
            if "Id" in of
        }
        book = _read(archive, "xl/workbook.xml").decode("utf-8", "replace")
        named = next((of for of in _attributes(_SHEET, book) if of.get("name") == sheet), {})
        target = relations.get(next((value for key, value in named.items() if key.endswith(":id")), ""), "")
        self._xml = _read(archive, target.lstrip("/") if target.startswith("/") else f"xl/{target}") if target else b""

    def percents(self) -> set[Place]:
        """Return the cells whose number is shown as per cents: a hundred times as large, and a sign."""
        forms = _PERCENT | {
            of.get("numFmtId", "")
            for of in _attributes(_FORMAT, self._styles)
            if "%" in _NO_SIGN.sub("", of.get("formatCode", ""))
        }
        listed = _STYLES.search(self._styles)
        styles = [of.get("numFmtId") for of in _attributes(_STYLE, listed[0] if listed else "")]
        shown = "|".join(str(at) for at, form in enumerate(styles) if form in forms).encode()
        return set(_places(re.compile(_CELL % shown), self._xml)) if shown else set()

    def uncomputed(self) -> set[Place]:
        """Return the cells that hold a formula and no value."""
        return set(_places(_UNCOMPUTED, self._xml))


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
