"""What stands in a cell, in kind: a date, a number with a unit, a word for yes or no. Never the cell itself.

Told to the steward of a file alone: by the draft of a schema, and by the check of a file.
"""

from __future__ import annotations

import re
from enum import StrEnum

from models.features import written as law
from models.features.written import PLAIN_SIGNS
from training.rows.people.people import NOBODY, PLACEHOLDERS


class Kind(StrEnum):
    """What stands in a cell."""

    MISSING_WORD, TRUTH, TEXT = "a word for a missing value", "a word for yes or no", "text"
    DATE, DAY, NO_DAY = "a date", "a date without a time of day", "a date that no calendar has"
    TIME, ZONE = "a time", "a moment with the name of a zone"
    NUMBER, WITH_UNIT, ABOUT = "a number", "a number with a unit", "a number with a sign of more or less"


VALUES = (Kind.NUMBER, Kind.DATE, Kind.TIME)
YES, NO = {*law.YES, "x"}.difference(law.TRUE), law.NO.difference(law.FALSE)
# Units that are named when they are seen beside a number: what else stands there may be anything. Money stands before
# it as well; another letter there makes a code of it, as A11.
_MONEY = "€ $ £ ¥ EUR USD GBP CHF JPY CNY INR BRL PLN CZK SEK NOK DKK kr zł Kč Ft R$ US$ Fr. Rs."
_MEASURES = """
% ‰ ° °C °F
kg g mg µg μg ug t lb lbs oz m cm mm km mi ft in m2 m² m3 m³ ha l L ml mL dl dL cl gal h hr hrs hours min s sec ms
d day days week weeks month months mo year years yr yrs y ans Jahre Tage Stunden jours mois heures años días
mmHg bpm mg/dl mg/dL mmol/l mmol/L g/dl g/dL g/l kg/m2 kg/m² /min W kW kWh MW MWh V A Hz kHz MHz GHz km/h mph m/s
ppm J kJ kcal cal Pa kPa hPa bar MB GB kB KB TB
"""
UNITS = frozenset(f"{_MONEY} {_MEASURES}".split())
# Words for a missing value, small: what a column of numbers or days holds beside them.
MISSING_WORDS = {*NOBODY, *PLACEHOLDERS, "--", "nc", "n/c", "n.c.", "nsp", "s.o.", "k.a.", "inconnu", "unbekannt"}
_KNOWN = "|".join(map(re.escape, sorted(UNITS, key=len, reverse=True)))
_OTHER = r"[^-+.,'’0-9\s\"#<>~()][^0-9\s]{0,11}"  # what may be a unit that is not known here
_BESIDE = re.compile(
    rf"([-+]?)\s*(?P<before>{_OTHER})?\s*(?P<number>[-+]?[.,]?[0-9](?:.*?[0-9])??[.,]?)\s*(?P<after>{_KNOWN}|{_OTHER})?"
)
_NEGATIVE = re.compile(r"\(([^-+()]*)\)|([^-+()]*)-|-([^-+()]*)")
NOTE = r"^\([0-9]{1,2}\)$"  # as it stands in a table's foot, and -1 is written in accounts
LONGEST = 1_000  # characters of a number, a date or a word: longer cells are texts, and are not looked through
# What the law reads as no number and no day; a time also where no day has it.
_KINDS = (
    (Kind.TIME, re.compile(r"\d{1,2}[:hH]\d\d(:\d\d(\.\d+)?)?( ?[aApP]\.?[mM]\.?)?")),
    (Kind.ZONE, re.compile(r"\d.*:\d\d.* ?\(?(?!UTC|GMT)[A-Z][A-Za-z/_]{1,30}\)?")),
    (Kind.NO_DAY, re.compile(r"\d{4}-\d\d-\d\d([ T].*)?|\d{1,4}[./-]\d{1,2}[./-]\d{1,4}[.]?([ T].*)?")),
    (Kind.ABOUT, re.compile(r"[<>~≈≤≥±]=?\s*[-+]?\d.*|\d+\s*[-–]\s*\d+|\d+\+")),
)


def kind_of(cell: str) -> Kind:
    """Return what stands in a cell that no form of numbers or days reads, in kind."""
    text = sign_first(cell)
    if text.lower() in MISSING_WORDS:
        return Kind.MISSING_WORD
    if text.lower() in YES | NO:
        return Kind.TRUTH
    patterns = _KINDS if len(text) <= LONGEST else ()
    return next((kind for kind, pattern in patterns if pattern.fullmatch(text)), Kind.TEXT)


def sign_first(cell: str) -> str:
    """Return a cell without blanks about it, its minus a keyboard's; what the law reads as a minus of all that stands
    there (behind it, apart from it, brackets about it) as one before it.
    """
    text = cell.strip().translate(PLAIN_SIGNS)
    match = _NEGATIVE.fullmatch(text)
    number = match[match.lastindex or 0].strip() if match else ""
    return f"-{number}" if re.search("[0-9]", number) else text


def part_unit(cell: str) -> tuple[str, str]:
    """Return the number in a cell, and the unit beside it; "" where there is none."""
    text = sign_first(cell)
    match = _BESIDE.fullmatch(text) if len(text) <= LONGEST else None
    if match is None or bool(match["before"]) == bool(match["after"]):
        return text, ""
    return match[1] + match["number"], match["before"] or match["after"]


def unit_beside(cell: str) -> str | None:
    """Return the unit of UNITS that stands after a number, or before one as money does; None where it is another."""
    unit = part_unit(cell)[1]
    is_known = unit in UNITS and (unit in _MONEY.split() or sign_first(cell).endswith(unit))
    return unit if is_known else None
