"""How a text differs from a listed category that it is like but for its form: capitals, blanks, zeros. Told to the
steward of a file alone.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from contextlib import suppress

from models.features.written import PLAIN_SIGNS

BLANKS = "blanks about them"
LONGEST = 200  # characters of a text that is compared
_BLANKS = " \t\r\n\u00a0\u202f\u200b\ufeff"
_PLAIN = PLAIN_SIGNS | {0x2018: "'", 0x2019: "'", 0x02BC: "'", 0x00AD: None, 0x200B: None}
_NO_ZEROS = re.compile(r"^0+(?=[0-9])|\.0+$")


def _plainest(text: str) -> str:
    """Return what two texts have in common that are written otherwise: of those alike by any of FORMS, the same."""
    with suppress(UnicodeError):  # UTF-8 that was read as cp1252
        text = text.encode("cp1252").decode()
    plain = unicodedata.normalize("NFKC", text).translate(_PLAIN).strip(f"{_BLANKS}\"'").rstrip(".").casefold()
    return _NO_ZEROS.sub("", " ".join(plain.split()))


FORMS: dict[str, Callable[[str], str]] = {
    BLANKS: str.strip,
    "letters that are put together otherwise (Unicode NFC)": lambda text: unicodedata.normalize("NFC", text),
    "other capitals": str.casefold,
    "`.0` after them": lambda text: re.sub(r"\.0+$", "", text),
    "other zeros before them": lambda text: text.lstrip("0") or "0",
    "quotes about them": lambda text: text.strip("\"'"),
    "a dot after them": lambda text: text.rstrip("."),
    "blanks, capitals, zeros, quotes, dashes, a dot or an encoding of their own": _plainest,
}


class NearMisses:
    """What is like one of the `listed` texts and is none of them."""

    def __init__(self, listed: Sequence[str]) -> None:
        self._listed = listed
        self._plainest = {_plainest(text) for text in listed if len(text) <= LONGEST}

    def __call__(self, text: str) -> str | None:
        """Return how a text that is not listed differs from a listed one, of FORMS; None where it is like none."""
        if len(text) > LONGEST or _plainest(text) not in self._plainest:
            return None
        return next(form for form, plain in FORMS.items() if plain(text) in {plain(each) for each in self._listed})
