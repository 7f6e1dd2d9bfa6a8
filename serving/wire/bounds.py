"""What a body may become while it is read: a few bytes can stand for many, and what is answered is larger than both.

A body is bounded as it was sent (`request_bodies`); here it is bounded as it is read. What grows is refused before it
is made: objects of JSON and how deep they nest, cells of a table, texts that many cells share, numbers of an answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from dpserve_verify.errors import InputError
from serving.wire.errors import TooLarge

MAX_DEPTH = 32  # objects and lists in one another
MAX_LISTS = 1 << 21  # of JSON: a tensor of shape [n, 1] has one for each cell
MAX_VALUES, MAX_OBJECTS = 1 << 17, 1 << 15  # of JSON that is read exactly, into objects of Python one by one
MAX_DIGITS, MAX_POWER = 1000, 999  # of a number in it: 1e99999999 is ten characters, and an integer of 40 MB
MAX_CELLS = 1 << 23  # records times features
MAX_NUMBERS = 1 << 22  # of an answer
MANY_BYTES, PIECE_BYTES = 4096, 1 << 20  # of a body whose bytes are counted many at a time, and a piece at a time
TEXT_BYTES = 64 << 20  # of all cells of a table, each with its own copy of its text


def check_depth(raw: bytes) -> None:
    """Raise InputError where JSON nests deeper than MAX_DEPTH: readers that call themselves have a bottom."""
    if raw.count(b"[") + raw.count(b"{") <= MAX_DEPTH:
        return
    marks = _bytes_outside_texts(raw) | 0x20  # of [ and {, of ] and }, the same then
    brackets = marks[(marks == ord("{")) | (marks == ord("}"))]
    steps = (ord("|") - brackets).astype(np.int8)  # it stands between the two
    if steps.size and np.cumsum(steps, dtype=np.int32).max() > MAX_DEPTH:
        raise InputError(f"body: nests deeper than {MAX_DEPTH}")


def check_values(raw: bytes) -> None:
    """Raise TooLarge where JSON holds more than MAX_VALUES values, or MAX_OBJECTS objects."""
    for mark, limit, noun in ((b",", MAX_VALUES, "values"), (b"{", MAX_OBJECTS, "objects")):
        if count_byte(raw, mark) > limit and int(np.count_nonzero(_bytes_outside_texts(raw) == ord(mark))) > limit:
            raise TooLarge(f"body: holds more than {limit} {noun}", limit=limit)


def exact_number(text: str) -> Decimal:
    """Return the exact value of a number of JSON. InputError where it has more than MAX_DIGITS digits, or an exponent
    beyond MAX_POWER: what reads it on would spell them all out.
    """
    power = text.lower().partition("e")[2]
    if len(text) > MAX_DIGITS or (power and abs(int(power)) > MAX_POWER):
        raise InputError("body: a number in it is too long")
    return Decimal(text)


def check_objects(raw: bytes, most: int) -> None:
    """Raise TooLarge where JSON holds more than `most` objects and the one around them, or more than MAX_LISTS: each
    takes thirty to fifty times its bytes.
    """
    for mark, limit, noun in ((b"{", most + 1, "objects"), (b"[", MAX_LISTS, "lists")):
        if count_byte(raw, mark) > limit:
            total = int(np.count_nonzero(_bytes_outside_texts(raw) == ord(mark)))
            if total > limit:
                raise TooLarge(f"records: the body holds {total} {noun}; at most {limit} a request", limit=limit)


def count_byte(raw: bytes, mark: bytes) -> int:
    """Count a byte: with many at a time where there are many, which takes a tenth of `bytes.count` there."""
    if len(raw) < MANY_BYTES:
        return raw.count(mark)
    pieces = np.array_split(np.frombuffer(raw, np.uint8), -(-len(raw) // PIECE_BYTES))
    return sum(int(np.count_nonzero(piece == ord(mark))) for piece in pieces)


def _bytes_outside_texts(raw: bytes) -> NDArray[np.uint8]:
    """Return the bytes of JSON outside of texts; a text that is not closed goes on to the end."""
    plain = np.frombuffer(raw.replace(b"\\\\", b"").replace(b'\\"', b""), np.uint8)
    inside = np.cumsum(plain == ord('"'), dtype=np.uint8) & 1  # whether the quotes so far are odd
    outside: NDArray[np.uint8] = plain[inside == 0]
    return outside


def check_cells(records: int, features: int) -> None:
    """Raise TooLarge for a table that is longer than its width allows: a column of nulls takes no bytes on the wire."""
    if records * features > MAX_CELLS:
        most = MAX_CELLS // features
        raise TooLarge(f"records: {records}; at most {most} a request of {features} features", limit=most)


def check_answer(records: int, numbers: int) -> None:
    """Raise TooLarge where an answer of so many numbers a record would have more than MAX_NUMBERS."""
    if records * numbers > MAX_NUMBERS:
        most = MAX_NUMBERS // numbers
        raise TooLarge(f"records: {records}; at most {most} a request with {numbers} numbers each", limit=most)


@dataclass
class Room:
    """Bytes that the texts of one request may still take."""

    left: int = TEXT_BYTES

    def take(self, size: int, field: str) -> None:
        """Take so many bytes; TooLarge where fewer are left."""
        self.left -= size
        if self.left < 0:
            problem = f"{field}: the texts of all records take more than {TEXT_BYTES} bytes; send fewer records"
            raise TooLarge(problem, limit=TEXT_BYTES)
