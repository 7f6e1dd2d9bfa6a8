"""The manifest: which rows of which files are counted by whom, each once, and the digest that they must have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from itertools import groupby
from pathlib import Path

from accountant.errors import InputError, JobFailed
from training.rows.packed.source import Source
from training.rows.partitions.partition import Partition
from training.rows.schema import Schema, parse_schema

State = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Piece:
    """Rows low .. high - 1 of the packed `folder`, by SHA-256 `digest`; and what a job reads of them, as in `Source`.

    `name` says which it is by what is public: how many pieces there are follows from declared numbers alone. `whole`:
    the rows of the folder. `schema`: the file of the dataset's schema, and `public`, the digest that it is known by.
    """

    name: str
    folder: Path
    low: int = field(repr=False)  # how many rows there are is private, and a cluster writes down what it is asked
    high: int = field(repr=False)
    whole: int = field(repr=False)
    digest: str = field(repr=False)
    schema: Path
    public: str
    target: str | None
    part: str | None
    by: str | None
    fine: bool

    @property
    def source(self) -> Source:
        """What it is read from."""
        return Source(self.folder, _schema(self.schema, self.public), self.target, self.part, self.by, self.fine)

    @property
    def state(self) -> State:
        """Of its files: other ones, or ones that were touched, have another. OSError where one is gone."""
        files = [(self.folder / name).stat() for name in self.source.files]
        return tuple((each.st_dev, each.st_ino, each.st_size, each.st_mtime_ns, each.st_ctime_ns) for each in files)

    def open(self, place: Path) -> Partition:
        """The rows, after checking that they are those of the manifest. JobFailed, with the piece's name, where they
        are not.
        """
        source = self.source
        if source.size != self.whole or source.digest(self.low, self.high) != self.digest:
            raise JobFailed(
                f"{self.name}: its rows are not those of the manifest; they were changed since they were read"
            )
        return source.partition(self.low, self.high, place)


@lru_cache(maxsize=64)
def _schema(path: Path, public: str) -> Schema:
    try:
        found = parse_schema(raw := path.read_bytes())
    except (OSError, InputError):
        raise JobFailed("schema.yaml: cannot be read beside the rows") from None
    if public != sha256(raw).hexdigest():
        raise JobFailed("schema.yaml: is not the one of the manifest")
    return found


def check_manifest(pieces: Sequence[Piece]) -> None:
    """JobFailed, with the name of the piece, unless every row of every folder is in one piece, and in one alone."""
    if not pieces:
        raise JobFailed("manifest: names no piece")
    in_order = sorted(pieces, key=lambda piece: (piece.folder, piece.low, piece.high))
    for folder, some in groupby(in_order, key=lambda piece: piece.folder):
        end = 0
        for piece in some:
            if piece.low < end or piece.high < piece.low:
                raise JobFailed(f"{piece.name}: rows of it would count twice")
            if piece.low > end:
                raise JobFailed(f"{piece.name}: rows before it would not count")
            end, whole = piece.high, piece.whole
        if end != whole:
            raise JobFailed(f"block {folder.name}: its last rows would not count")
    for name, times in Counter(piece.name for piece in pieces).items():
        if times > 1:
            raise JobFailed(f"{name}: would count twice")
