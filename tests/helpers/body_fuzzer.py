"""Bodies that somebody might send who means no good, or whose client is broken: mutations of good ones, and now and
then one that stands for much more than it is. The same seed and number give the same body.
"""

from __future__ import annotations

import gzip
import random
import zlib
from collections.abc import Callable
from dataclasses import replace

import hostile_bodies
from hostile_bodies import Body

AMPLIFIED = 0.003  # of all inputs; each takes a second
WORDS = (
    b"null", b"true",
    b"NaN", b"Infinity", b"-0", b"1e999", b"0.1", b"9" * 400, b"9" * 5000, b'""', b'"\\ud800"', b"\xff",
    b"[" * 31, b"]" * 31, b"[" * 2000, b'{"a":' * 2000, b"}", b"{", b":", b",", b'"', b"\\", b"\0", b"\xef\xbb\xbf",
    "\u0661".encode(), "🦉".encode(), b"a" * 5000, b'"age"', b'"model"', b'"records"', b'"data"', b'"shape"', b"[0]",
    b"[20000]", b"[1, 1]", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x00\x00\x00\x80", b"__class__", b"../", b"%00",
)  # fmt: skip
Change = Callable[[random.Random, bytearray], None]


def _flip(draw: random.Random, raw: bytearray) -> None:
    for _ in range(draw.choice((1, 1, 2, 8, 64))):
        if raw:
            raw[draw.randrange(len(raw))] ^= 1 << draw.randrange(8)


def _number(draw: random.Random, raw: bytearray) -> None:
    """A length or an offset, as binary forms have them."""
    if len(raw) > 8:
        at, width = draw.randrange(len(raw) - 8), draw.choice((1, 2, 4, 8))
        value = draw.choice((0, 1, -1, 2**7, 2**15, 2**31 - 1, 2**31, 2**62, draw.getrandbits(62)))
        raw[at : at + width] = (value & (256**width - 1)).to_bytes(width, "little")


def _cut(draw: random.Random, raw: bytearray) -> None:
    del raw[draw.randrange(len(raw) + 1) :]


def _drop(draw: random.Random, raw: bytearray) -> None:
    start = draw.randrange(len(raw) + 1)
    del raw[start : start + draw.choice((1, 4, 40))]


def _twice(draw: random.Random, raw: bytearray) -> None:
    start = draw.randrange(len(raw) + 1)
    part = raw[start : start + draw.choice((1, 8, 100, 5000))]
    raw[start:start] = part * draw.choice((1, 2, 50))


def _word(draw: random.Random, raw: bytearray) -> None:
    start = draw.randrange(len(raw) + 1)
    raw[start : start + draw.choice((0, 0, 1, 4))] = draw.choice(WORDS)


def _value(draw: random.Random, raw: bytearray) -> None:
    """Another value in the place of one of JSON's."""
    places = [at for at in range(len(raw)) if raw[at] in b":,["]
    if places:
        start = draw.choice(places) + 1
        end = next((at for at in range(start, len(raw)) if raw[at] in b",]}"), len(raw))
        raw[start:end] = draw.choice(WORDS)


CHANGES: tuple[Change, ...] = (_flip, _flip, _number, _number, _cut, _drop, _twice, _word, _value)


class Fuzzer:
    """`body(number)`: the body of that number."""

    def __init__(self, seed: int) -> None:
        self._seed, self._good = seed, hostile_bodies.good()
        self._hostile = tuple(hostile_bodies.hostile())

    def body(self, number: int) -> Body:
        """A good body with one to five changes, under the headers of another one in twenty; or a hostile one."""
        draw = random.Random(f"{self._seed}:{number}")
        if draw.random() < AMPLIFIED:
            return draw.choice(self._hostile)()
        good = draw.choice(self._good)
        encoding = good.headers.get("Content-Encoding")
        inside = encoding is not None and draw.random() < 0.7  # else the packed bytes are what is spoilt
        raw = bytearray(zlib.decompress(good.raw, 47) if inside else good.raw)
        for _ in range(draw.choice((1, 1, 2, 3, 5))):
            draw.choice(CHANGES)(draw, raw)
        spoilt = bytes(raw)
        if inside:
            spoilt = gzip.compress(spoilt, 1) if encoding == "gzip" else zlib.compress(spoilt, 1)
        other = draw.choice(self._good) if draw.random() < 0.05 else good
        headers = dict(other.headers)
        if draw.random() < 0.02:
            headers["Inference-Header-Content-Length"] = draw.choice(("0", "1", "99999999999999999999", "-1", "x"))
        return replace(other, name=f"{good.name} as {other.name}", raw=spoilt, headers=headers)
