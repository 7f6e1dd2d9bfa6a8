"""The ledger as static files that any web server can offer: c2sp.org/tlog-tiles.

`checkpoint`: the newest note. `tile/<L>/<N>`: 256 hashes of complete subtrees at level 8 L. `tile/entries/<N>`: 256
entries, each behind its length in two bytes. N is written in groups of three digits, all but the last behind an x. The
last of each kind may be partial: `.p/<W>` behind N, W its width. `witnessed`: ours, the newest cosigned checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator

from dpserve_verify.errors import LedgerInvalid
from dpserve_verify.formats.canonical import ENTRY_LIMIT

WIDTH = 256
HEIGHT = 8  # levels of the tree in a tile
CHECKPOINT = "checkpoint"
BUNDLE_LIMIT = WIDTH * (2 + ENTRY_LIMIT)
PREFIX = 2  # bytes of an entry's length


def tile_path(level: int | None, index: int, width: int = WIDTH) -> str:
    """Return the path of a tile; `level` None: of a bundle of entries."""
    groups = [f"{index % 1000:03d}"]
    while index := index // 1000:
        groups.insert(0, f"x{index % 1000:03d}")
    partial = f".p/{width}" if width < WIDTH else ""
    return f"tile/{'entries' if level is None else level}/{'/'.join(groups)}{partial}"


def tiles_of(count: int, first: int = 0) -> Iterator[tuple[int, int]]:
    """Index and width of the tiles that hold `count` items in a row, from the tile of item `first` on."""
    for index in range(first // WIDTH, -(-count // WIDTH)):
        yield index, min(WIDTH, count - index * WIDTH)


def pack(entries: list[bytes]) -> bytes:
    """Write entries as one bundle."""
    return b"".join(len(entry).to_bytes(PREFIX, "big") + entry for entry in entries)


def unpack(raw: bytes, path: str) -> list[bytes]:
    """Read what `pack` wrote; LedgerInvalid where the bundle is cut short."""
    entries, at = [], 0
    while at < len(raw):
        end = at + PREFIX + int.from_bytes(raw[at : at + PREFIX], "big")
        if len(raw) < at + PREFIX or len(raw) < end:
            raise LedgerInvalid(f"{path}: is cut short")
        entries.append(raw[at + PREFIX : end])
        at = end
    return entries
