"""The hosts' side: a piece is opened and checked, a question answered. Nothing is kept that could not be made again
from the files and from released values.

Nothing is raised: what a cluster's log would say of an error may hold anything. A refusal is an answer of its own.
"""

from __future__ import annotations

import json
import platform
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

import accountant
import dpserve_cluster
import models
import training.rows
from accountant.errors import JobFailed
from dpserve_cluster.pieces import Piece, Seen, State, host
from dpserve_verify.errors import DpserveError
from training.rows.partitions.partition import Integers, Partition, Question

IDLE_SECONDS = 300.0  # after which nobody comes back to what is held


@dataclass
class _Held:
    """An open piece of a job: how its files lay when it was checked, and what `run` of questions its caches are of."""

    state: State
    part: Partition
    run: int
    used: float = field(default_factory=time.monotonic)


_HELD: dict[tuple[str, Piece], _Held] = {}
_ALONE = threading.Lock()  # opens and forgets
_ASKING: dict[Piece, threading.Lock] = {}


def answer(job: str, run: int, piece: Piece, question: Question) -> bytes:
    """Return what the rows of a piece answer, or why they do not, as `Answer` reads it. `job`: whose caches; another
    `run` of it begins without any.
    """
    try:
        with _ASKING.setdefault(piece, threading.Lock()):
            piece_rows = _hold_rows(job, run, piece)
            return pack_answer(piece.name, piece_rows.part.size, question(piece_rows.part), (host(), piece_rows.state))
    except OSError as error:
        return pack_refusal(piece.name, f"{piece.name}: its files cannot be read here ({error.strerror})")
    except Exception as error:
        why = error.message if isinstance(error, DpserveError) else f"{piece.name}: {type(error).__name__}"
        return pack_refusal(piece.name, why)


def forget(job: str) -> bool:
    """Drop what is held for a job that is over, and what nobody came back to."""
    with _ALONE:
        _sweep(job)
    return True


def _hold_rows(job: str, run: int, piece: Piece) -> _Held:
    with _ALONE:
        _sweep()
        piece_rows = _HELD.get((job, piece))
    if piece_rows is None or piece_rows.state != piece.state:
        part, state = piece.open(Path(tempfile.gettempdir()))
        piece_rows = _Held(state, part, run)
    elif piece_rows.run != run:
        piece_rows = _Held(piece_rows.state, piece_rows.part.fresh(), run)
    piece_rows.used = time.monotonic()
    with _ALONE:
        _HELD[job, piece] = piece_rows
    return piece_rows


def _sweep(over: str | None = None) -> None:
    now = time.monotonic()
    for key in [key for key, piece_rows in _HELD.items() if key[0] == over or now - piece_rows.used > IDLE_SECONDS]:
        del _HELD[key]
        _ASKING.pop(key[1], None)


def pack_answer(name: str, rows: int, sums: Integers, seen: Seen = ("", ())) -> bytes:
    """Return an answer in bytes: a line of JSON, and 64-bit integers. No pickle, so that the driver loads none."""
    head = {"piece": name, "rows": rows, "shape": list(sums.shape), "seen": seen}
    return json.dumps(head).encode() + b"\n" + sums.astype("<i8", casting="equiv", copy=False).tobytes()


def pack_refusal(name: str, why: str) -> bytes:
    """Return a refusal in bytes."""
    return json.dumps({"piece": name, "refused": why}).encode() + b"\n"


@dataclass(frozen=True)
class Answer:
    """What a piece of `rows` rows answered, whose files were `seen`."""

    rows: int
    sums: Integers
    seen: Seen

    @classmethod
    def of(cls, name: str, raw: Any) -> Answer:
        """Read what came for the piece of that name. JobFailed where it is a refusal, or is no answer to it."""
        try:
            line, _, body = bytes(raw).partition(b"\n")
            head: dict[str, Any] = json.loads(line)
            if head["piece"] != name:
                raise JobFailed(f"{name}: another piece answered in its place")
            if "refused" in head:
                raise JobFailed(str(head["refused"]))
            sums = np.frombuffer(body, "<i8").reshape([int(size) for size in head["shape"]])
            where, state = head["seen"]
            seen = str(where), tuple(tuple(map(int, file)) for file in state)
            return cls(int(head["rows"]), sums.astype(np.int64), seen)
        except (ValueError, TypeError, KeyError):
            raise JobFailed(f"{name}: what came back is no answer") from None


@dataclass(frozen=True)
class CountRows:
    """Rows: ()."""

    def __call__(self, part: Partition) -> Integers:
        return np.array(part.size, np.int64)


@lru_cache(maxsize=1)
def fingerprint() -> str:
    """Return a digest of what answers depend on in this process: Python, numpy, and the sources of the rooms that a
    question comes from.
    """
    digest = sha256(f"{platform.python_version_tuple()[:2]} {np.__version__}".encode())
    for room in (accountant, dpserve_cluster, models, training):
        place = Path(str(room.__file__)).parent
        for path in sorted(place.rglob("*.py")):
            digest.update(path.relative_to(place).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def look(files: Mapping[str, int] | Sequence[tuple[str, int]]) -> bytes:
    """Return what a host is like: its fingerprint, and which of these files of so many bytes it does not see."""
    unseen = []
    for name, size in dict(files).items():
        try:
            if Path(name).stat().st_size != size:
                unseen.append(name)
        except OSError:
            unseen.append(name)
    return json.dumps({"fingerprint": fingerprint(), "unseen": unseen}).encode()
