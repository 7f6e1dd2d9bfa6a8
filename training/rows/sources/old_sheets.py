"""The same of an old workbook (.xls) as `sheet_cells` has of others: looked up in the records of its stream (MS-XLS),
which lies in sectors of the file (MS-CFB).
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import iter_unpack, unpack_from

from training.rows.sources.sheet_cells import SheetCells, shows_percents

_BEGIN, _END, _SHEET, _FORM, _STYLE, _LOCKED = 0x0809, 0x000A, 0x0085, 0x041E, 0x00E0, 0x002F
_NUMBERS, _NUMBERS_OF_ROW = (0x0203, 0x027E, 0x0006), 0x00BD  # one, a small one, a formula; several small ones
_CELLS = {*_NUMBERS, _NUMBERS_OF_ROW, 0x00BE, 0x00D6, 0x00FD, 0x0201, 0x0204, 0x0205}
_PERCENTS = {9, 10}  # forms that every workbook has
_MINI = 64  # bytes of a sector of a short stream


def read_old_cells(raw: bytes) -> list[SheetCells]:
    """Find such cells of each sheet. PermissionError where it has a password; ValueError, LookupError or struct.error
    where it is no such workbook.
    """
    stream = _stream_of(raw)
    wide = unpack_from("<H", stream, 4)[0] >= 0x0600
    forms, styles, sheets = set(_PERCENTS), list[int](), list[int]()
    for kind, body in _records(stream, 0):
        if kind == _LOCKED:
            raise PermissionError
        if kind == _SHEET:
            sheets.append(unpack_from("<I", body)[0])
        elif kind == _STYLE:
            styles.append(unpack_from("<H", body, 2)[0])
        elif kind == _FORM:
            text = body[5:].decode("utf-16-le" if body[4] & 1 else "latin-1") if wide else body[3:].decode("latin-1")
            if shows_percents(text):
                forms.add(unpack_from("<H", body)[0])
    shown = {at for at, form in enumerate(styles) if form in forms}
    return [_read_sheet(stream, at, shown) for at in sheets]


def _read_sheet(stream: bytes, at: int, shown: set[int]) -> SheetCells:
    """Find the cells in the styles that are `shown` as per cents. A formula always has a value there."""
    styles = dict[tuple[int, int], int]()
    for kind, body in _records(stream, at):
        if kind in _CELLS and unpack_from("<H", body, 2)[0] > 255:  # room is made for all cells before it
            raise ValueError("a cell beyond the last column")
        if kind in _NUMBERS:
            row, column, styles[row, column] = unpack_from("<HHH", body)
        elif kind == _NUMBERS_OF_ROW:
            row, first = unpack_from("<HH", body)
            styles |= {(row, first + place): style for place, (style, _) in enumerate(iter_unpack("<HI", body[4:-2]))}
    return SheetCells({place for place, style in styles.items() if style in shown}, set())


def _records(stream: bytes, at: int) -> Iterator[tuple[int, bytes]]:
    """Yield the records of a sheet, or of the workbook, without those of charts in it."""
    depth = 0
    while at + 4 <= len(stream):
        kind, size = unpack_from("<HH", stream, at)
        depth += (kind == _BEGIN) - (kind == _END)
        if depth == 1:
            yield kind, stream[at + 4 : at + 4 + size]
        if depth <= 0:
            return
        at += 4 + size


def _stream_of(raw: bytes) -> bytes:
    """Return the stream of the workbook; raises as `read_old_cells` does."""
    size = 1 << unpack_from("<H", raw, 30)[0]
    if max(unpack_from("<I", raw, at)[0] for at in (40, 44, 64, 72)) > len(raw) // size:
        raise ValueError("more sectors than bytes")
    lists = [*unpack_from("<109I", raw, 76)]
    more, count = unpack_from("<II", raw, 68)

    def sector(at: int) -> bytes:
        return raw[(at + 1) * size : (at + 2) * size]

    def integers(block: bytes) -> list[int]:
        return [number for (number,) in iter_unpack("<I", block)]

    for _ in range(count):
        *listed, more = integers(sector(more))
        lists += listed
    follow = [number for at in lists if at < len(raw) // size for number in integers(sector(at))]

    def chain(at: int, follow: list[int]) -> list[int]:
        places = list[int]()
        while at < len(follow):
            places.append(at)
            at = follow[at]
            if len(places) > len(follow):
                raise ValueError("a circle of sectors")
        return places

    def stream(at: int) -> bytes:
        return b"".join(map(sector, chain(at, follow)))

    folder = stream(unpack_from("<I", raw, 48)[0])
    entries = [folder[at : at + 128] for at in range(0, len(folder), 128)]
    for entry in entries:
        name = entry[: max(0, unpack_from("<H", entry, 64)[0] - 2)].decode("utf-16-le", "replace")
        begin, length = unpack_from("<II", entry, 116)
        if name == "EncryptedPackage":  # an .xlsx with a password lies in such a file
            raise PermissionError
        if name in ("Workbook", "Book"):
            if length >= unpack_from("<I", raw, 56)[0]:
                return stream(begin)[:length]
            short, mini = stream(unpack_from("<I", entries[0], 116)[0]), integers(stream(unpack_from("<I", raw, 60)[0]))
            return b"".join(short[at * _MINI : (at + 1) * _MINI] for at in chain(begin, mini))[:length]
    raise ValueError("no workbook")
