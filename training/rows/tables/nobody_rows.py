"""Rows of a file that are nobody: totals, notes, lines of units, second headers. Told in kind, to the steward alone."""

from __future__ import annotations

import re
from collections.abc import Mapping

from training.rows.sources.cell_kinds import UNITS
from training.rows.tables.remedies import Remedy, Unsaid

DELETE = Remedy(deletes=True, how="for it is nobody")
PASS_OVER = Remedy({"skip_rows": [Unsaid.FIRST]}, "format", how="where no person's row begins so")
EMPTY = Remedy({"skip_rows": [""]}, "format")
_TOTALS = {
    "total", "totals", "subtotal", "sum", "sums", "summe", "gesamt", "gesamtsumme", "insgesamt", "zwischensumme",
    "somme", "totale", "totali", "suma", "suma:", "totaal", "summa", "average", "avg", "mean", "median", "durchschnitt",
    "mittelwert", "moyenne", "media", "promedio", "grand", "count", "anzahl", "min", "max",
}  # fmt: skip
_RULE = re.compile("[-=+:|]{2,}")
_UNIT = re.compile(r"[(\[]?\s*([^()\[\]]*?)\s*[)\]]?")


def describe_nobody(cells: Mapping[str, str]) -> tuple[str, tuple[Remedy, ...]] | None:
    """Return what a row looks like that does not fit, by the texts of its cells, and the remedies; None where it may be
    somebody's.
    """
    present = {name: text for name, cell in cells.items() if (text := cell.strip())}
    if not present:
        return "a row in which nothing stands", (DELETE, EMPTY)
    remedy = DELETE, PASS_OVER
    first = next(iter(present.values()))
    if sum(text == name for name, text in present.items()) * 2 > len(present):
        return "a row that looks like a second header", remedy
    if re.split(r"[\s:(]", first.casefold().lstrip("\u03a3\u00f8 "), maxsplit=1)[0] in _TOTALS:
        return "a row that looks like a total", remedy
    if all(map(_RULE.fullmatch, present.values())):
        return "a row that looks like a line between others", remedy
    units = [_UNIT.sub(r"\1", text) in UNITS for text in present.values()]
    bracketed = [text[0] + text[-1] in ("[]", "()") for text in present.values()]
    if len(present) > 1 and any(units) and all(map(max, units, bracketed)):
        return "a row that looks like a line of units", remedy
    if len(present) == 1 and len(cells) > 2:
        return "a row that looks like a note, for one cell alone holds something", remedy
    return None
