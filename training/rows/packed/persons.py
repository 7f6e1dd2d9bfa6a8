"""One person bounded over all blocks that a job reads, where a total for one person was declared
(docs/privacy/filter.md): of each row, since which block there are as many rows of its person as are used of one.

A window that begins behind that block reads the row, and no other does: so of the person's rows in the window the first
are used, as many as one may contribute. It follows from that person's own rows and their order alone. Who has rows in a
block lies beside them, as keyed digests with how many, for the blocks that come after it; no job reads that.
"""

from __future__ import annotations

import hmac
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from accountant.errors import RowsUnavailable
from accountant.system.numpy_files import PARSING

PEOPLE = "people.bin"
DIGEST = 32  # bytes: two people have one as seldom as two entries of the ledger have one hash
WORDS = DIGEST // 8


@dataclass(frozen=True)
class Before:
    """The blocks before the one that is packed, which has this `number`: `earlier`, the newest first, with the folders
    where their people lie. `key`: the family's, secret; `contributions`: rows of one person that are used. `bounds`:
    whether its rows are bounded by those blocks; else it is written down who has rows, for blocks that may come.
    """

    key: bytes
    contributions: int
    number: int = 1
    earlier: Sequence[tuple[int, Path]] = ()
    bounds: bool = True

    def digests(self, ids: pa.Array) -> NDArray[np.uint64]:
        """Return (WORDS, rows): the digests of a column of ids as `people.unit_ids` gives it, none of them missing."""
        words = ids.dictionary_encode()
        raw = b"".join(hmac.digest(self.key, value, "sha256") for value in words.dictionary.to_pylist())
        digests = np.frombuffer(raw, np.uint64).reshape(-1, WORDS)
        return np.ascontiguousarray(digests[words.indices.to_numpy(zero_copy_only=False)].T)

    def since(self, who: NDArray[np.uint64], folder: Path) -> NDArray[np.uint32]:
        """Return (rows,): of rows in their order by the `digests` of their people, the block of the row that stands as
        many rows of its person before it as are used of one; 0: there is none. Who they are is written to `folder`.
        """
        names = np.ascontiguousarray(who.T).view(f"S{DIGEST}").ravel()
        order = np.argsort(names, kind="stable")
        names = names[order]
        first = np.flatnonzero(np.append(True, names[1:] != names[:-1]))
        counts = np.diff(np.append(first, len(names)))
        people, person = names[first], np.repeat(np.arange(len(first)), counts)
        missing = self.contributions - (np.arange(len(names)) - np.repeat(first, counts))  # of its person, before it
        blocks, rows_before = np.zeros(len(names), np.uint32), np.zeros(len(people), np.int64)
        for number, place in self.earlier:
            block_people, block_counts = self.read(place, number)
            at = np.minimum(np.searchsorted(block_people, people), len(block_people) - 1)
            rows_before += np.where(block_people[at] == people, block_counts[at], 0)
            blocks[(blocks == 0) & (rows_before[person] >= missing)] = number
        body = io.BytesIO()
        np.savez(body, people=people, counts=counts.astype(np.uint32))
        (folder / PEOPLE).write_bytes(self._seal(self.number, body.getvalue()) + body.getvalue())
        placed = np.empty_like(blocks)
        placed[order] = blocks
        return placed

    def read(self, folder: Path, number: int) -> tuple[NDArray[np.bytes_], NDArray[np.uint32]]:
        """Return who has rows in the block of this number, sorted, and how many. RowsUnavailable where that is not
        there as it was written.
        """
        try:
            raw = (folder / PEOPLE).read_bytes()
        except OSError:
            raw = b""
        if not hmac.compare_digest(raw[:DIGEST], self._seal(number, raw[DIGEST:])):
            raise RowsUnavailable(
                f"block {number}: who has rows in it is not in this home as it was written, and nobody can be bounded "
                "over all blocks without it; restore datasets/ from a backup. Nothing was appended"
            )
        with PARSING, np.load(io.BytesIO(raw[DIGEST:]), allow_pickle=False) as arrays:
            return arrays["people"], arrays["counts"]

    def _seal(self, number: int, body: bytes) -> bytes:
        return hmac.digest(self.key, b"block %d " % number + body, "sha256")
