"""The manifest: which rows of which files are counted by whom, each once, and the digest that they must have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import sha256
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from uuid import uuid4

from accountant.errors import JobFailed
from dpserve_verify.errors import InputError
from training.rows.partitions import threads
from training.rows.partitions.partition import Partition
from training.rows.schema.schema import Schema, parse_schema
from training.rows.tables.partition_source import Source, Span

PARTS = 16  # of a piece: each has a digest of its own, and can be asked of somebody else
State = tuple[tuple[int, ...], ...]
Seen = tuple[str, State]  # on which host files had which state
Part = tuple[int, str]  # rows, and their SHA-256


@dataclass(frozen=True)
class Piece:
    """Rows low .. high - 1 of the packed `folder`, by SHA-256 of its `parts`; and what a job reads of them, as in
    `Source`.

    `name` says which it is by what is public: how many pieces there are follows from declared numbers alone. `whole`:
    the rows of the folder. `schema`: the file of the dataset's schema, and `public`, the digest that it is known by.
    `origin`: of what it is a part, and from which part on; `seen`: in which states of its files the digests were found
    to be right.
    """

    name: str
    folder: Path
    low: int = field(repr=False)  # how many rows there are is private, and a cluster writes down what it is asked
    high: int = field(repr=False)
    whole: int = field(repr=False)
    parts: tuple[Part, ...] = field(repr=False)
    schema: Path
    public: str
    target: str | None
    part: str | None
    by: str | None
    fine: bool
    origin: tuple[str, int] = ("", 0)
    seen: frozenset[Seen] = field(default=frozenset(), repr=False, compare=False)
    begins: int | None = None
    features: tuple[str, ...] | None = None
    firsts: bool = False

    @property
    def whose(self) -> str:
        """Return the name of the piece of the manifest that this is, or is a part of."""
        return self.origin[0] or self.name

    @property
    def cuts(self) -> list[Span]:
        """Return the span of rows of each part."""
        return list(pairwise(accumulate((rows for rows, _ in self.parts), initial=self.low)))

    def split(self, count: int) -> list[Piece]:
        """Return the same rows in at most so many pieces, cut where parts end."""
        count = max(1, min(count, len(self.parts)))
        if count == 1:
            return [self]
        pieces, first = [], self.origin[1]
        for begin, end in pairwise(len(self.parts) * at // count for at in range(count + 1)):
            (low, _), (_, high) = self.cuts[begin], self.cuts[end - 1]
            name = f"parts {first + begin + 1} to {first + end} of {self.whose}"
            parts, origin = self.parts[begin:end], (self.whose, first + begin)
            pieces.append(replace(self, name=name, low=low, high=high, parts=parts, origin=origin))
        return pieces

    @property
    def source(self) -> Source:
        """Return the source that the piece is read from."""
        schema = _schema(self.schema, self.public)
        same = self.target, self.part, self.by, self.fine, self.begins, self.features, self.firsts
        return Source(self.folder, schema, *same)

    @property
    def state(self) -> State:
        """Return the state of its files, which differs once they are replaced or touched. OSError where one is gone."""
        files = [(self.folder / name).stat() for name in self.source.files]
        return tuple(
            (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns) for status in files
        )

    def open(self, place: Path) -> tuple[Partition, State]:
        """Return the rows, after checking that they are those of the manifest, and the state that their files had.
        JobFailed, with the piece's name, where they are not.

        What was read and found right on this host is not read again where no file was touched since: from question to
        question a worker goes by nothing else.
        """
        state, source = self.state, self.source
        matches = source.size == self.whole and self.low + sum(rows for rows, _ in self.parts) == self.high
        if matches and (host(), state) not in self.seen:
            digests = threads.each(lambda cut: source.digest(*cut), self.cuts)
            matches = list(digests) == [digest for _, digest in self.parts]
        if not matches:
            raise JobFailed(
                f"{self.name}: its rows are not those of the manifest; they were changed since they were read"
            )
        part = source.partition(self.low, self.high, place)
        if self.state != state:
            raise JobFailed(f"{self.name}: its files were changed while they were read")
        return part, state


@lru_cache(maxsize=1)
def host() -> str:
    """Return an id of this host since it was started: the same in all of its processes, and on no other; a word of this
    process where the system has none.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return uuid4().hex


@lru_cache(maxsize=64)
def _schema(path: Path, public: str) -> Schema:
    try:
        schema = parse_schema(raw := path.read_bytes(), registered=True)
    except (OSError, InputError):
        raise JobFailed("schema.yaml: cannot be read beside the rows") from None
    if public != sha256(raw).hexdigest():
        raise JobFailed("schema.yaml: is not the one of the manifest")
    return schema


def check_manifest(pieces: Sequence[Piece]) -> None:
    """Raise JobFailed, with the name of the piece, unless every row of every folder is in exactly one piece."""
    if not pieces:
        raise JobFailed("manifest: names no piece")
    in_order = sorted(pieces, key=lambda piece: (piece.folder, piece.low, piece.high))
    for folder, block_pieces in groupby(in_order, key=lambda piece: piece.folder):
        end = 0
        for piece in block_pieces:
            if piece.low < end or piece.high < piece.low:
                raise JobFailed(f"{piece.name}: rows of it would count twice")
            if piece.low > end:
                raise JobFailed(f"{piece.name}: rows before it would not count")
            end, block_size = piece.high, piece.whole
        if end != block_size:
            raise JobFailed(f"block {folder.name}: its last rows would not count")
    for name, times in Counter(piece.name for piece in pieces).items():
        if times > 1:
            raise JobFailed(f"{name}: would count twice")
