"""What the releases of a running job answered, kept beside it, so that another process goes on where one was killed.

Before a draw a line says that it is made, and after it another what came, both handed to the system before the learner
sees the answer. So each release of the plan is drawn at most once, whoever plays it: what has an answer is not drawn
again, and where a line says that one was begun and none what came, the job is not resumed (docs/privacy/resumed.md).

The lines are bound to one another, to the job's entry, to this start of this machine, to this very file and to the code
by an HMAC of the accountant's key. Whoever plays the job holds the file's lock for as long as the process lives.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from base64 import b64decode, b64encode
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from accountant.home import Home, settings
from dpserve_verify.errors import InputError
from dpserve_verify.system.files import PRIVATE

FILE = "answers"
SETTING = "DPSERVE_RESUME"
ROOMS = Path(__file__).resolve().parents[2]
BOOT = Path("/proc/sys/kernel/random/boot_id")
MOST_BYTES = 1 << 30


class CannotResume(Exception):
    """What is there is not what a running job leaves: it is burned."""


def is_on() -> bool:
    """Whether answers are kept. InputError where the setting means nothing."""
    said = settings()[SETTING].value
    if said not in ("0", "1"):
        raise InputError(f"{SETTING}={said[:20]!r}: must be 0 or 1")
    return said == "1"


class Answers:
    """Of one job, in the one process that plays it; on leaving the `with` block the file is let go, and stays until
    `end`. Where it `keeps` nothing, each answer is only drawn.
    """

    def __init__(self, home: Home, seq: int, keeps: bool = True) -> None:
        self._home, self._seq, self._keeps = home, seq, keeps and bool(boot())
        self._path = home.jobs / str(seq) / FILE
        self._fd: int | None = None
        self._stored: list[Any] = []
        self._next, self._mac = 0, ""

    def __enter__(self) -> Answers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._let_go()

    def begin(self) -> None:
        """Before the first release. FileExistsError where answers of the job are there that were not read."""
        if self._keeps and self._fd is None:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._open(os.O_CREAT | os.O_EXCL)
            self._write(self._head())

    @classmethod
    def reopen(cls, home: Home, seq: int, done: int) -> Answers:
        """Of a job whose owner is gone, which the ledger heard of when `done` releases were made.

        Raises:
            FileNotFoundError: none were kept.
            BlockingIOError: a process that plays it is there, or another is about to go on with it.
            CannotResume: they are damaged, fewer than `done`, of other code, or of another start or machine; or the
                job ended while it drew.
        """
        found = cls(home, seq)
        try:
            found._open(os.O_NOFOLLOW)
            found._read(done)
        except BaseException:
            found._let_go()
            raise
        return found

    def next(self, draw: Callable[[], Any]) -> Any:
        """The answer of the next release: what was kept of it; else what `draw` gives, kept before it is returned."""
        position, self._next = self._next, self._next + 1
        if not self._keeps:
            return draw()
        if position < len(self._stored):
            return self._stored[position]
        self._write({"draw": position})
        text = _encoded(draw())
        self._write({"answer": position, **text})
        return _decoded(text)

    @property
    def is_kept(self) -> bool:
        """Whether the next release has an answer, so that no row need be read for it."""
        return self._next < len(self._stored)

    def end(self) -> None:
        """Nothing is to be resumed any more: the job is over."""
        if self._keeps:
            self._path.unlink(missing_ok=True)
        self._let_go()

    def _open(self, how: int) -> None:
        self._fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | how, PRIVATE)
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _let_go(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _head(self) -> dict[str, Any]:
        """What this file must be of."""
        return {
            "job": self._seq,
            "reservation": self._home.ledger.reservation_hash(self._seq),
            "boot": boot(),
            "file": os.fstat(self._file).st_ino,
            "code": code(),
        }

    @property
    def _file(self) -> int:
        if self._fd is None:
            raise RuntimeError("answers: are not open")
        return self._fd

    def _write(self, line: dict[str, Any]) -> None:
        text = json.dumps(line)
        self._mac = self._bound(text)
        raw = f"{text} {self._mac}\n".encode()
        while raw:
            raw = raw[os.write(self._file, raw) :]

    def _bound(self, text: str) -> str:
        return self._home.keys.commitment([b"answers\0", self._mac.encode(), b"\0", text.encode()])

    def _read(self, done: int) -> None:
        seen = os.fstat(self._file)
        if seen.st_mtime_ns != seen.st_ctime_ns:  # as of a copy that keeps times, which may get the number of the file
            raise CannotResume("touched since they were written")
        with open(self._file, "rb", closefd=False) as file:
            raw = file.read(MOST_BYTES + 1)
        if len(raw) > MOST_BYTES:
            raise CannotResume("too large")
        *lines, rest = raw.split(b"\n")
        if rest or not lines:
            raise CannotResume("cut within a line")
        read = [self._verified(line) for line in lines]
        if read[0] != self._head():
            raise CannotResume("of another job, code, file or start of the machine")
        pairs = read[1:]
        for at, line in enumerate(pairs):
            kind = "answer" if at % 2 else "draw"
            if line.get(kind) != at // 2:
                raise CannotResume("not in order")
        if len(pairs) % 2:
            raise CannotResume("one short: the process ended while it drew")
        self._stored = [_decoded(line) for line in pairs[1::2]]
        if len(self._stored) < done:
            raise CannotResume("fewer than were told of")

    def _verified(self, line: bytes) -> dict[str, Any]:
        text, _, mac = line.decode("ascii", "replace").rpartition(" ")
        self._mac = self._bound(text)
        if mac != self._mac:
            raise CannotResume("not as it was written")
        found: dict[str, Any] = json.loads(text)
        return found


def _encoded(answer: Any) -> dict[str, Any]:
    """An index, or integers; TypeError for what no mechanism gives."""
    if isinstance(answer, np.ndarray) and answer.dtype == np.int64:
        return {"integers": b64encode(answer.astype("<i8").tobytes()).decode(), "shape": [*answer.shape]}
    if type(answer) is int:
        return {"index": answer}
    raise TypeError("release: neither an index nor integers")


def _decoded(line: dict[str, Any]) -> Any:
    if "index" in line:
        return int(line["index"])
    return np.frombuffer(b64decode(line["integers"]), "<i8").astype(np.int64).reshape(line["shape"])


def boot() -> str:
    """This start of this machine; "" where the system does not say, and then nothing is kept."""
    try:
        return BOOT.read_text().strip()
    except OSError:
        return ""


@lru_cache(maxsize=1)
def code() -> str:
    """sha256 of what plays a plan: our own sources, and the versions of what they compute with."""
    digest = hashlib.sha256()
    for each in ("numpy", "numba"):
        digest.update(f"{each} {version(each)}\n".encode())
    for path in sorted(path for room in ("accountant", "models", "training") for path in (ROOMS / room).rglob("*.py")):
        digest.update(f"{path.relative_to(ROOMS)}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
