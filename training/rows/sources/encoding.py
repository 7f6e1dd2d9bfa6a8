"""In which encoding a .csv seems to be written, of those that a schema may declare. Nothing is read by it: its steward
sees the words that each likely one makes of the file, and says which it is.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path

from accountant.system.lazy_import import later
from training.rows.sources.text_bytes import open_bytes

charset_normalizer = later("charset_normalizer")  # needed where bytes are not UTF-8
# Of two that read the same words the first one is proposed, for it is the better known.
LATIN = ("cp1252", "cp1250", "cp1254", "cp1257", "iso-8859-2", "iso8859-9", "mac-roman", "cp850", "cp852")
LIKELY = (
    "cp1252", "cp1251", "gb18030", "shift_jis", "cp932", "euc-jp", "euc-kr", "cp949", "big5", "big5hkscs", "cp1253",
    "cp1256", "cp1255", "cp874", "koi8-r", "koi8-u", "iso-8859-5", "iso8859-6", "iso-8859-7", "cp866", "mac-cyrillic",
    *LATIN[1:],
)  # fmt: skip
# Letters beyond ASCII of languages in Latin letters: each page of LATIN has those of several, and no word mixes them.
LETTERS = (
    "äöüß", "àâæçéèêëîïôùûüÿœ", "áéíñóúü", "ãâáàçéêíóôõúü", "àèéìíîòóùú", "åäöé", "æøåéö", "áðéíóúýþæö", "äëéèïóöü",
    "ąćęłńóśźż", "áčďéěíňóřšťúůýž", "áäčďéíĺľňóôŕšťúýž", "áéíóöőúüű", "ăâîşţ", "čćđšž", "çğıöşüâîû", "ąčęėįšųūž",
    "āčēģīķļņšūž", "äöõüšž",
)  # fmt: skip
MARKS = {codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32", codecs.BOM_UTF16_LE: "utf-16"} | {
    codecs.BOM_UTF16_BE: "utf-16"
}
SAMPLE = 1 << 16  # bytes of lines that are not ASCII
SHOWN = 6  # words, of at most LONG letters
LONG = 20
_BEYOND_ASCII = re.compile(rb"[^\n]*[\x80-\xff][^\n]*\n?")
_WORD = re.compile(r"[A-Za-z\u0080-\U0010ffff]*[\u0080-\U0010ffff][A-Za-z\u0080-\U0010ffff]*")
_BEYOND = re.compile(rb"[\x80-\xff]+")
_RUN = re.compile(rb"[\x80-\xff]{2,}")


@dataclass(frozen=True)
class Reading:
    """An encoding in which a file can be read whole, and some words beyond ASCII as they are in it."""

    encoding: str
    words: tuple[str, ...] = ()


def list_readings(path: Path) -> list[Reading]:
    """Return the likely encodings of a file, the likeliest first; one alone where its bytes say so themselves."""
    with open_bytes(path) as file:
        start = bytes(file.read(SAMPLE))
    if (mark := next((name for bom, name in MARKS.items() if start.startswith(bom)), None)) is not None:
        return [Reading(mark)]
    first, second = start[::2].count(0), start[1::2].count(0)
    if max(first, second) > 4 * min(first, second) + 1:  # ASCII in two bytes each, and no cells that hold such bytes
        return [Reading("utf-16-le" if second > first else "utf-16-be")]
    if can_decode(path, "utf-8"):
        return [Reading("utf-8")]
    sample = _lines_beyond_ascii(path)
    readings: dict[str, Reading] = {}
    for encoding in (*_rank(sample), "cp1252", "latin-1"):
        text = sample.decode(encoding, "replace")
        if text not in readings and can_decode(path, encoding):
            words = dict.fromkeys(word for word in _WORD.findall(text) if len(word) <= LONG and word.isprintable())
            readings[text] = Reading(encoding, tuple(words)[:SHOWN])
    return list(readings.values())


def can_decode(path: Path, encoding: str) -> bool:
    """Return whether the whole file can be read in an encoding."""
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        for block in _blocks(path):
            decoder.decode(block)
        decoder.decode(b"", final=True)
    except UnicodeError:
        return False
    return True


def is_utf8(path: Path) -> bool:
    """Return whether a file is UTF-8 with letters beyond ASCII, which hardly a file of another encoding is."""
    return not can_decode(path, "ascii") and can_decode(path, "utf-8")


def lines_beside_utf8(path: Path) -> list[int]:
    """Return which lines are not UTF-8, in a file of which more lines with letters beyond ASCII are; else none."""
    others, fitting, count, rest = list[int](), 0, 0, b""
    for block in chain(_blocks(path), [b"\n"]):
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            count += 1
            try:
                fitting += not line.decode().isascii()
            except UnicodeError:
                others.append(count)
    return others if len(others) < fitting else []


def describe_readings(readings: list[Reading]) -> str:
    """Say, to its steward alone, what the likely encodings make of a file; empty where its bytes leave no doubt."""
    if len(readings) == 1 and not readings[0].words:
        return ""
    first, *others = [f"{reading.encoding}: {', '.join(reading.words) or 'no words'}" for reading in readings[:3]]
    more = "".join(f"\n  or, in {other}" for other in others)
    return f"It is read here in {first}{more}\nSay `encoding` under `format` in the schema as the words are right."


def _blocks(path: Path) -> Iterator[bytes]:
    with open_bytes(path) as file:
        yield from iter(lambda: bytes(file.read(1 << 20)), b"")


def _lines_beyond_ascii(path: Path) -> bytes:
    """Return whole lines, for the bytes of a letter must not be cut, up to SAMPLE bytes."""
    lines, size, rest = [], 0, b""
    for block in _blocks(path):
        whole, end, rest = (rest + block).rpartition(b"\n")
        for line in _BEYOND_ASCII.findall(whole + end):
            lines.append(line)
            size += len(line)
        if size + len(rest) > SAMPLE:
            break
    return b"".join([*lines, rest])


def _rank(sample: bytes) -> list[str]:
    """Return encodings of LIKELY that fit, the likeliest first, as charset-normalizer has it; those of Latin letters
    by their languages, and before the others where letters beyond ASCII stand alone, as no other writing has them.
    """
    matches = charset_normalizer.from_bytes(sample, cp_isolation=[*LIKELY])
    texts = {name: sample.decode(name, "replace") for name in LIKELY}
    fitting = sorted(map(str, matches), key=_count_signs)
    ranked = [name for text in fitting for name in LIKELY if texts[name] == text]
    latin = sorted(
        (name for name in LATIN if "\ufffd" not in texts[name]), key=lambda name: _count_foreign_letters(texts[name])
    )
    alone = 2 * sum(map(len, _RUN.findall(sample))) < sum(map(len, _BEYOND.findall(sample)))
    return list(dict.fromkeys([*latin, *ranked] if alone or not ranked or ranked[0] in LATIN else ranked))


def _count_foreign_letters(text: str) -> int:
    """Count the letters beyond ASCII that the language with most of them lacks, and the signs within words."""
    counts = Counter(text.lower())
    letters = {letter for letter in counts if letter > "\x7f" and letter.isalpha()} - set("ªºµ")
    lacking = min(sum(counts[letter] for letter in letters.difference(known)) for known in LETTERS)
    return lacking + _count_signs(text)


def _count_signs(text: str) -> int:
    """Count the letters beside which a sign beyond ASCII stands, as within no word."""
    counts = Counter(pairwise(text))
    beyond = {letter for letter in set(text) if letter > "\x7f" and unicodedata.category(letter)[0] in "SPNC"}
    signs = beyond - set("‘’°·")
    return sum(counts[a, b] for a, b in counts if (a.isalpha() and b in signs) or (a in signs and b.isalpha()))
