"""What stands in a cell, in kind: a date, a number with a unit, a word for yes or no. Never the cell itself.

Told to the steward of a file alone: by the draft of a schema, and by the check of a file.
"""

from __future__ import annotations

import re

from models.features import written as law
from models.features.column_forms import DATES
from models.features.date_patterns import pattern_of
from models.features.written import PLAIN_SIGNS
from training.rows.people.people import NOBODY, PLACEHOLDERS

YES, NO = {*law.YES, "x"}.difference(law.TRUE), law.NO.difference(law.FALSE)
DAYS = {each: re.compile(pattern_of("date", each), re.ASCII) for each in DATES}
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
LONGEST = 1_000  # characters of a number, a date or a word: longer cells are texts, and are not looked through
_NUMBER = r"\d(?:[\d.,'’ \u00a0\u2009\u202f]*\d)?"
_AFTER, _BEFORE = ("|".join(map(re.escape, sorted(units, key=len, reverse=True))) for units in (UNITS, _MONEY.split()))
_WITH_KNOWN_UNIT = re.compile(rf"[-+]?\s*(?:{_NUMBER}\s*(?P<after>{_AFTER})|(?P<before>{_BEFORE})\s*[-+]?{_NUMBER})")
A_MISSING_WORD, A_TRUTH, A_TEXT = "a word for a missing value", "a word for yes or no", "text"
A_NUMBER, A_DATE, A_TIME = "a number", "a date", "a time"
A_ZONE = "a moment with the name of a zone"
_KINDS = (
    ("digits of another alphabet", re.compile(r"[-+]?(?=.*[^\W0-9])\d+([.,٫٬．]\d+)*")),
    (A_NUMBER, re.compile(r"[-+]?\d+([eE][-+]?\d+)?")),
    (A_TIME, re.compile(r"\d{1,2}[:hH]\d\d(:\d\d(\.\d+)?)?( ?[aApP]\.?[mM]\.?)?")),
    (
        A_ZONE,
        re.compile(r"\d.*:\d\d.* ?\(?(?!UTC|GMT)[A-Z][A-Za-z/_]{1,30}\)?"),
    ),
    (A_DATE, re.compile(r"\d{4}-\d\d-\d\d([ T].*)?|\d{1,4}[./-]\d{1,2}[./-]\d{1,4}[.]?([ T].*)?")),
    ("a number with a sign of more or less", re.compile(r"[<>~≈≤≥±]=?\s*[-+]?\d.*|\d+\s*[-–]\s*\d+|\d+\+")),
)


def kind_of(cell: str) -> str:
    """Return what stands in a cell that does not fit, in kind."""
    if len(cell) > LONGEST:
        return A_TEXT
    text = sign_first(cell)
    if is_missing_word(text):
        return A_MISSING_WORD
    if text.lower() in YES | NO:
        return A_TRUTH
    return next((kind for kind, pattern in _KINDS if pattern.fullmatch(text)), A_TEXT)


def sign_first(cell: str) -> str:
    """Return a cell without blanks about it, its minus a keyboard's; what the law reads as a minus of all that stands
    there (behind it, apart from it, brackets about it) as one before it.
    """
    text = cell.strip().translate(PLAIN_SIGNS)
    for before, behind in (("(", ")"), ("", "-"), ("-", "")):
        number = text[len(before) : len(text) - len(behind)].strip()
        is_whole = text.startswith(before) and text.endswith(behind)
        if is_whole and not {*"-+()"}.intersection(number) and re.search("[0-9]", number):
            return f"-{number}"
    return text


def is_missing_word(text: str) -> bool:
    """Return whether a text is one that people write where nothing is known."""
    return text.lower() in MISSING_WORDS


def unit_beside(text: str) -> str | None:
    """Return the unit of UNITS that stands before or after a number; None where it is another text."""
    match = _WITH_KNOWN_UNIT.fullmatch(sign_first(text))
    return match and (match["after"] or match["before"])


def without_unit(text: str, unit: str) -> str:
    """Return a number without the unit before it, behind its sign or not, or after it."""
    sign = text[: text[:1] in "+-" and 1]
    return sign + text.removeprefix(sign).strip().removeprefix(unit).removesuffix(unit).strip()
