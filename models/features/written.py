"""How a table is written: what a schema declares of its files and cells, so that nothing is guessed when they are read.

A released model is asked by values; what brings them to it, a file, a request or a frame, is read by these forms.
"""

from __future__ import annotations

import codecs
import encodings
import pkgutil
import re
import string
import unicodedata
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Literal

from models.features import date_patterns

Delimiter = Literal[",", ";", "\t", "|", " ", ", ", "; "]
DELIMITERS = {  # as a schema names them
    ",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe", " ": "blanks", ", ": "comma and blank",
    "; ": "semicolon and blank",
}  # fmt: skip
Decimal = Literal[".", ",", "either"]
Thousands = Literal["", ".", ",", " ", "'"]
ISO_DATE = "YYYY-MM-DD"
MOST_SKIPPED = 20  # texts that begin rows of nobody
MOST_WORDS, LONGEST_WORD = 1000, 200  # of words that stand for a missing value, or for yes or no; characters of one
# Signs that are read as the minus of a keyboard: minus, hyphens and dashes, as word processors and banks write them.
DASHES = "\u2212\u2010\u2011\u2012\u2013\u2014\ufe63\uff0d"
PLAIN_SIGNS = str.maketrans(dict.fromkeys(DASHES, "-"))
_MINUS = {"minus", "neg", "neg.", "negative", "negativ", "moins", "menos", "meno", "mínus"}
_UNIT = re.compile(r"[^-+.,'0-9\s\"]([^\n\"]{0,18}[^\s\"])?")
# As schemas spell them, and people know them; every other has Python's own name.
USUAL_ENCODINGS = (
    "utf-8", "utf-16", "cp1252", "latin-1", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "iso-8859-2",
    "iso-8859-5", "iso-8859-7", "iso-8859-15", "koi8-r", "mac-roman", "gb18030", "big5", "shift_jis", "euc-jp",
    "euc-kr",
)  # fmt: skip
TRUE, FALSE = ("true", "1", "yes"), ("false", "0", "no")
# Yes and no where a column declares no words of its own: of many languages, as programs and spreadsheets write them.
# Small letters (NFKC); no word means yes in one language and no in another.
_YES_NO = """
y/n t/f on/off ja/nein j/n wahr/falsch oui/non o/n vrai/faux sí/no si/no s/n verdadero/falso sì/no vero/falso
sim/não sim/nao verdadeiro/falso ja/nee waar/onwaar ja/nej sant/falskt ja/nei sand/falsk kyllä/ei tosi/epätosi tak/nie
prawda/fałsz ano/ne áno/nie pravda/nepravda igen/nem igaz/hamis da/nu evet/hayır evet/hayir doğru/yanlış да/нет
истина/ложь так/ні ναι/όχι はい/いいえ 是/否 예/아니요 예/아니오
"""
_PAIRS = [tuple(pair.split("/")) for pair in _YES_NO.split()]
YES, NO = (frozenset(pair[at] for pair in _PAIRS) for at in (0, 1))


@lru_cache(256)
def encoding_named(name: str) -> str:
    """Return the one name here of an encoding that Python knows, by any of its names: `windows-1251` is cp1251.

    ValueError where it has none, or where a table cannot be cut by it: its ASCII is another, or it has two commas.
    """
    if name in USUAL_ENCODINGS:
        return name
    try:
        known = codecs.lookup(name).name
        usual = {codecs.lookup(spelling).name: spelling for spelling in USUAL_ENCODINGS}
        wide = known.startswith(("utf-16", "utf-32"))
        text = string.printable if wide or "escape" in known else string.printable.encode().decode(known)
        beyond = "" if wide else "".join(bytes([at]).decode(known, "replace") for at in range(128, 256))
        cut = text == string.printable and not set(beyond).intersection("\n\r,;\t|\"'") and "escape" not in known
    except (LookupError, ValueError):  # of which those about what cannot be decoded are
        cut = False
    if not cut:
        raise ValueError(f"{name[:40]!r} is no encoding of tables that Python names; utf-8, cp1251, gb18030 are")
    return "utf-8" if known.startswith("utf-8") else usual.get(known, known)


@cache
def list_encodings() -> tuple[str, ...]:
    """Return the names of all encodings in which a table may be written, the usual ones first."""
    names = []
    for module in pkgutil.iter_modules(encodings.__path__):
        with suppress(ValueError):
            names.append(encoding_named(module.name))
    return tuple(dict.fromkeys((*USUAL_ENCODINGS, *sorted(names))))


@dataclass(frozen=True)
class Form:
    """How a text file is cut into cells: " " stands for any number of blanks and tabs, ", " for a comma and the blanks
    after it. `columns`: their names, where no line of the file has them; `skip`: lines before that line, or before the
    rows. `sheet`: of a workbook, where several hold cells. `skip_rows`: texts, of which one stands first in each row
    that is nobody's, a total for instance; `*` at its end stands for anything, "" for a row without a text. ValueError
    where its encoding is none, or there are more such texts than MOST_SKIPPED.
    """

    delimiter: Delimiter = ","
    encoding: str = "utf-8"
    sheet: str = ""
    columns: tuple[str, ...] = ()
    skip: int = 0
    skip_rows: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Name the encoding as it is named here."""
        object.__setattr__(self, "skip_rows", tuple(self.skip_rows))
        if len(self.skip_rows) > MOST_SKIPPED or any(len(text) > LONGEST_WORD for text in self.skip_rows):
            raise ValueError(f"skip_rows: at most {MOST_SKIPPED} texts, of at most {LONGEST_WORD} characters each")
        object.__setattr__(self, "encoding", encoding_named(self.encoding))
        object.__setattr__(self, "columns", tuple(self.columns))

    def is_nobody(self, cells: Iterable[str]) -> bool:
        """Return whether a row is nobody's, by the first text that stands in it."""
        first = next((text for cell in cells if (text := cell.strip())), "")
        return first in self._nobodies[0] or first.startswith(self._nobodies[1])

    @cached_property
    def _nobodies(self) -> tuple[frozenset[str], tuple[str, ...]]:
        """Return the texts that begin such rows as they stand, and what begins the others."""
        said = [text.strip() for text in self.skip_rows]
        begun = tuple(text[:-1] for text in said if text.endswith("*"))
        return frozenset(text for text in said if not text.endswith("*")), begun

    @property
    def mark(self) -> str:
        """Return the one mark that stands between cells, with blanks after it or without."""
        return self.delimiter[:1]

    @property
    def has_blanks(self) -> bool:
        """Return whether blanks part the cells, or stand after the mark that does."""
        return self.delimiter.endswith(" ")

    @property
    def codec(self) -> str:
        """Return what Python reads such a file by: a byte order mark is none of the first name."""
        return "utf-8-sig" if self.encoding == "utf-8" else self.encoding


PLAIN = Form()


@dataclass(frozen=True)
class Written:
    """How the cells of one column are written. `decimal`: the mark before the fraction; "either" takes both, and then
    no mark may part thousands. `thousands`: the mark between thousands; " " is a blank of any kind, "'" the other
    apostrophe as well. `unit_mark`: what may stand before or after a number and says its unit: the number is what is
    read. `dates`: patterns, of which a text fits one at most; `first_year`: of the hundred that years with two digits
    stand for. Words for yes and no are read without regard to capitals, beside TRUE and FALSE; where none are declared,
    YES and NO are read. `missing`: texts, and numbers, that stand for a missing value. `trim`: blanks about a text are
    no part of it.
    """

    decimal: Decimal = "."
    dates: tuple[str, ...] = (ISO_DATE,)
    true: tuple[str, ...] = ()
    false: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    missing_numbers: tuple[float, ...] = ()
    thousands: Thousands = ""
    unit_mark: str = ""
    first_year: int | None = None
    trim: bool = False

    def problem(self) -> str | None:
        """Return what is wrong with it in itself: more than is read at once, or a text that may be read in two ways."""
        for name in ("true", "false", "missing", "missing_numbers"):
            words: tuple[object, ...] = getattr(self, name)
            if len(words) > MOST_WORDS or any(isinstance(word, str) and len(word) > LONGEST_WORD for word in words):
                return f"{name}: at most {MOST_WORDS} words, of at most {LONGEST_WORD} characters each"
        if problem := date_patterns.problem_of(self.dates, self.first_year):
            return problem
        if self.unit_mark.translate(PLAIN_SIGNS).startswith("-") or self.unit_mark.lower() in _MINUS:
            return (
                f"unit_mark: {self.unit_mark!r}: is a minus, and no unit; say nothing of it, a number is read with it"
            )
        if self.unit_mark and not (_UNIT.fullmatch(self.unit_mark) and self.unit_mark.strip("()")):
            return f"unit_mark: {self.unit_mark!r}: must be a sign or a word as in 5 % or 5 kg, without blanks about it"
        if self.thousands and self.decimal in ("either", self.thousands):
            return f"thousands: {self.thousands!r} may stand before a fraction, too; say the `decimal` that does"
        both = self.truths().keys() & {word.lower() for word in (*FALSE, *self.false)}
        wrong = sorted(word for word in both if self.truths()[word])
        return f"{wrong}: cannot mean yes and no" if wrong else None

    @cached_property
    def missing_words(self) -> frozenset[str]:
        """Return `missing` to look cells up in."""
        return frozenset(self.missing)

    def truths(self) -> dict[str, bool]:
        """Return what each word means, in small letters; where one is listed as both, yes."""
        words: Collection[tuple[tuple[str, ...], bool]] = (((*FALSE, *self.false), False), ((*TRUE, *self.true), True))
        return {word.strip().lower(): means for listed, means in words for word in listed}

    def truth_words(self) -> dict[str, bool]:
        """Return what each word means that a column of truth values may hold, in small letters: `truths`, 1.0 and 0.0;
        and YES and NO, where it has no words of its own.
        """
        words = {"1.0": True, "0.0": False}
        if not (self.true or self.false):
            words |= dict.fromkeys(YES, True) | dict.fromkeys(NO, False)
        return {unicodedata.normalize("NFKC", word): means for word, means in (words | self.truths()).items()}


USUAL = Written()


def lone_truths(words: Iterable[str]) -> list[str]:
    """Return those of a column's words for yes and no of which the other of the pair stands nowhere, while another word
    means the same: N of T, F and N, which may be a third answer.
    """
    there = {unicodedata.normalize("NFKC", word).lower() for word in words}
    known = there & (YES | NO).difference(TRUE, FALSE)
    others = {word: {other for pair in _PAIRS if word in pair for other in pair} - {word} for word in known}
    meant = USUAL.truth_words()
    same = {word: [each for each in there if meant.get(each) is meant[word]] for word in known}
    return sorted(word for word in known if len(same[word]) > 1 and not others[word] & there)
