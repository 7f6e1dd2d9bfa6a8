"""The audit from static tiles alone: entries from the bundles, and every hash tile held against the tree they give."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from operator import itemgetter
from pathlib import Path

from dpserve_verify.audit.audit import Leaf, Progress, audit
from dpserve_verify.audit.exports import vouching
from dpserve_verify.audit.judge_models import Bundle
from dpserve_verify.audit.tree_of_entries import Findings, Report, Tree
from dpserve_verify.errors import LedgerInvalid
from dpserve_verify.formats.merkle import HASH_SIZE
from dpserve_verify.keys.trust import PublicKeys
from dpserve_verify.log.seen_checkpoints import verify_head
from dpserve_verify.log.tiles import BUNDLE_LIMIT, HEIGHT, WIDTH, pack, tile_path, tiles_of, unpack
from dpserve_verify.system.files import read_beginning

_ENTRY = re.compile(r"entry ([0-9]+): ")
_DIGITS = 3  # of the largest width of a partial tile


def audit_tiles(
    directory: Path,
    trust: PublicKeys,
    bundles: Iterable[Bundle] = (),
    seen: Iterable[str] = (),
    progress: Progress | None = None,
) -> Report:
    """Audit a folder of tiles against `trust`, which came by another way. Reads one bundle at a time."""
    notes = vouching(directory)
    size = verify_head(notes[0], trust).size
    tiles = _Tiles(directory, size)
    report = audit(
        tiles.entries(),
        (),  # the one checkpoint came by this way, as one that was kept: those before it are not there
        trust,
        bundles=bundles,
        seen=(*notes, *seen),
        progress=progress,
        total=size,
    )
    return _merge_reports(report, tiles.findings)


def _merge_reports(report: Report, findings: Findings) -> Report:
    """Return a report with the problems of both, in the order of their entries; problems about a range of entries come
    last.

    With one checkpoint the tree alone says only that something is wrong; the hash tiles say where.
    """
    if not findings.found:
        return report
    problems = [*(problem for _, problem in findings.found), *report.problems]
    matches = [(_ENTRY.match(problem), problem) for problem in problems]
    exact = sorted(((int(match[1]), problem) for match, problem in matches if match), key=itemgetter(0))
    rest = [problem for match, problem in matches if not match]
    first = exact[0][0] if exact else report.first
    return replace(report, problems=(*(problem for _, problem in exact), *rest), first=first)


class _Tiles:
    """The files of a tree of `size` entries. What is wrong with them goes to `findings`, and names the file."""

    def __init__(self, directory: Path, size: int) -> None:
        self.findings = Findings()
        self._directory, self._size, self._tree = directory, size, Tree()
        self._hashes: defaultdict[int, list[bytes]] = defaultdict(list)  # of each level's last tile, so far
        self._wrong: list[int] = []  # the first wrong entry of every wrong tile at level 0

    def entries(self) -> Iterator[Leaf]:
        """Yield every entry up to the first bundle that is missing or damaged."""
        for index, width in tiles_of(self._size):
            try:
                bodies = self._bundle(index, width)
            except LedgerInvalid as error:
                self.findings.add(index * WIDTH, f"entry {index * WIDTH}: {error.message}")
                return
            for place, body in enumerate(bodies):
                self._grow(body)
                yield index * WIDTH + place, body
        for level, hashes in self._hashes.items():
            if hashes:
                self._compare(level, (self._size >> HEIGHT * level) // WIDTH, hashes)

    def _bundle(self, index: int, width: int) -> list[bytes]:
        path = tile_path(None, index, width)
        raw, there = self._read(None, index, width)
        bodies = unpack(raw, path)
        if len(bodies) != there:
            raise LedgerInvalid(f"{path}: holds {len(bodies)} entries")
        for older in self._older(None, index, width):
            # A narrower bundle was shown to somebody: it must be the beginning of the one that stands there now.
            narrow = tile_path(None, index, older)
            if self._file(narrow, BUNDLE_LIMIT) != pack(bodies[:older]):
                first = index * WIDTH
                self.findings.add(first, f"entry {first}: {narrow}: holds other entries than its successor")
        return bodies[:width]

    def _grow(self, body: bytes) -> None:
        for height, index, digest in self._tree.append(body):
            level, rest = divmod(height, HEIGHT)
            if rest == 0:
                self._hashes[level].append(digest)
                if len(self._hashes[level]) == WIDTH:
                    self._compare(level, index // WIDTH, self._hashes.pop(level))

    def _compare(self, level: int, index: int, hashes: list[bytes]) -> None:
        """Hold a tile, and older partial ones of the same place, against the hashes that it must have."""
        self._check(level, index, hashes, len(hashes))
        for older in self._older(level, index, len(hashes)):
            self._check(level, index, hashes[:older], older, substitute=False)

    def _check(self, level: int, index: int, hashes: list[bytes], width: int, substitute: bool = True) -> None:
        path, first = tile_path(level, index, width), index * WIDTH << HEIGHT * level
        try:
            exact = None if substitute else (self._file(path, WIDTH * HASH_SIZE), width)
            tile, there = exact or self._read(level, index, width)
        except LedgerInvalid as error:
            self.findings.add(first, f"entry {first}: {error.message}")
            return
        if len(tile) != there * HASH_SIZE:
            self.findings.add(first, f"entry {first}: {path}: must be of {there} hashes, is of {len(tile)} bytes")
            return
        for place, digest in enumerate(hashes):
            if tile[place * HASH_SIZE : (place + 1) * HASH_SIZE] == digest:
                continue
            entry = first + (place << HEIGHT * level)
            at = bisect_left(self._wrong, entry)
            explained = level > 0 and at < len(self._wrong) and self._wrong[at] < entry + (1 << HEIGHT * level)
            if not explained:  # by a hash below it that was wrong already
                self._wrong += [entry] if level == 0 else []
                self.findings.add(entry, f"entry {entry}: {path}: hash {place} is not what the entries give")
                return

    def _read(self, level: int | None, index: int, width: int) -> tuple[bytes, int]:
        """Return a tile and its width; where a partial one is gone, the full one that took its place."""
        limit = BUNDLE_LIMIT if level is None else WIDTH * HASH_SIZE
        partial, full = tile_path(level, index, width), tile_path(level, index)
        if not (self._directory / partial).is_file() and (self._directory / full).is_file():
            return self._file(full, limit), WIDTH
        return self._file(partial, limit), width

    def _older(self, level: int | None, index: int, width: int) -> list[int]:
        """List, in ascending order, the widths of the narrower partial tiles that were left in place."""
        folder = self._directory / f"{tile_path(level, index)}.p"
        names = [file.name for file in folder.iterdir()] if folder.is_dir() else []
        widths = [int(name) for name in names if name.isascii() and name.isdigit() and len(name) <= _DIGITS]
        return sorted(older for older in widths if 0 < older < width and (folder / str(older)).is_file())

    def _file(self, path: str, limit: int) -> bytes:
        file = self._directory / path
        if not file.is_file():  # a pipe, say, would keep us waiting
            raise LedgerInvalid(f"{path}: is missing")
        try:
            raw = read_beginning(file, limit)
        except OSError as error:
            raise LedgerInvalid(f"{path}: cannot be read ({error.strerror})") from error
        if len(raw) > limit:
            raise LedgerInvalid(f"{path}: must be at most {limit} bytes")
        return raw
