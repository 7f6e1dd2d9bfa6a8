"""Keep what the releases of a running job answered, so that another process goes on where one was killed.

Before a draw a line says that it is made, and after it another what came, both handed to the system before the learner
sees the answer. So each release of the plan is drawn at most once, whoever plays it: what has an answer is not drawn
again, and where a line says that one was begun and none what came, the job is not resumed (docs/privacy/filter.md).

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
MAX_BYTES = 1 << 30


class CannotResume(Exception):
    """The journal is not what a running job leaves: the job is burned."""


def is_on() -> bool:
    """Return whether answers are kept. InputError where the setting means nothing."""
    value = settings()[SETTING].value
    if value not in ("0", "1"):
        raise InputError(f"{SETTING}={value[:20]!r}: must be 0 or 1")
    return value == "1"


class DrawJournal:
    """The answers of one job, in the one process that plays it. Leaving the `with` block closes the file, which stays
    until `end`. Where it `keeps` nothing, each answer is only drawn.
    """

    def __init__(self, home: Home, seq: int, keeps: bool = True) -> None:
        self._home, self._seq, self._keeps = home, seq, keeps and bool(boot())
        self._path = home.jobs / str(seq) / FILE
        self._fd: int | None = None
        self._stored: list[Any] = []
        self._next, self._mac = 0, ""

    def __enter__(self) -> DrawJournal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._let_go()

    def begin(self) -> None:
        """Create the file before the first release. FileExistsError where the job has one that was not read."""
        if self._keeps and self._fd is None:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._open(os.O_CREAT | os.O_EXCL)
            self._write(self._head())

    @classmethod
    def reopen(cls, home: Home, seq: int, done: int) -> DrawJournal:
        """Read the journal of a job whose owner is gone, when the ledger was told of `done` releases.

        Raises:
            FileNotFoundError: none were kept.
            BlockingIOError: a process that plays it is there, or another is about to go on with it.
            CannotResume: they are damaged, fewer than `done`, of other code, or of another start or machine; or the
                job ended while it drew.
        """
        journal = cls(home, seq)
        try:
            journal._open(os.O_NOFOLLOW)
            journal._read(done)
        except BaseException:
            journal._let_go()
            raise
        return journal

    def next(self, draw: Callable[[], Any]) -> Any:
        """Return the answer of the next release: the kept one, else what `draw` gives, kept before it is returned."""
        position, self._next = self._next, self._next + 1
        if not self._keeps:
            return draw()
        if position < len(self._stored):
            return self._stored[position]
        self._write({"draw": position})
        text = _encode(draw())
        self._write({"answer": position, **text})
        return _decode(text)

    @property
    def is_blank(self) -> bool:
        """Tell whether nothing had been drawn before the journal was opened."""
        return not self._stored

    @property
    def is_kept(self) -> bool:
        """Tell whether the answer of the next release is stored, so that no row need be read for it."""
        return self._next < len(self._stored)

    def leave(self) -> bool:
        """Leave a job that its session draws for to whoever goes on with it. Return whether that can be: its answers
        are kept, or nothing was drawn yet.
        """
        if not self._keeps and not self._next and boot():
            self._keeps = True
            self.begin()
        return self._keeps

    def end(self) -> None:
        """Remove the file: the job is over."""
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
        """Return the first line: the job, code, file and machine that the journal belongs to."""
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
        self._mac = self._mac_of(text)
        raw = f"{text} {self._mac}\n".encode()
        while raw:
            raw = raw[os.write(self._file, raw) :]

    def _mac_of(self, text: str) -> str:
        return self._home.keys.commitment([b"answers\0", self._mac.encode(), b"\0", text.encode()])

    def _read(self, done: int) -> None:
        status = os.fstat(self._file)
        if status.st_mtime_ns != status.st_ctime_ns:  # a copy that keeps times may get the file's number
            raise CannotResume("touched since they were written")
        with open(self._file, "rb", closefd=False) as file:
            raw = file.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise CannotResume("too large")
        *lines, rest = raw.split(b"\n")
        if rest or not lines:
            raise CannotResume("cut within a line")
        read = [self._verify_line(line) for line in lines]
        if read[0] != self._head():
            raise CannotResume("of another job, code, file or start of the machine")
        pairs = read[1:]
        for at, line in enumerate(pairs):
            kind = "answer" if at % 2 else "draw"
            if line.get(kind) != at // 2:
                raise CannotResume("not in order")
        if len(pairs) % 2:
            raise CannotResume("one short: the process ended while it drew")
        self._stored = [_decode(line) for line in pairs[1::2]]
        if len(self._stored) < done:
            raise CannotResume("fewer than were told of")

    def _verify_line(self, line: bytes) -> dict[str, Any]:
        text, _, mac = line.decode("ascii", "replace").rpartition(" ")
        self._mac = self._mac_of(text)
        if mac != self._mac:
            raise CannotResume("not as it was written")
        fields: dict[str, Any] = json.loads(text)
        return fields


def _encode(answer: Any) -> dict[str, Any]:
    """Return an index, or integers, as JSON; TypeError for anything else."""
    if isinstance(answer, np.ndarray) and answer.dtype == np.int64:
        return {"integers": b64encode(answer.astype("<i8").tobytes()).decode(), "shape": [*answer.shape]}
    if type(answer) is int:
        return {"index": answer}
    raise TypeError("release: neither an index nor integers")


def _decode(line: dict[str, Any]) -> Any:
    if "index" in line:
        return int(line["index"])
    return np.frombuffer(b64decode(line["integers"]), "<i8").astype(np.int64).reshape(line["shape"])


def boot() -> str:
    """Return the id of this start of the machine; "" where the system has none, and then nothing is kept."""
    try:
        return BOOT.read_text().strip()
    except OSError:
        return ""


@lru_cache(maxsize=1)
def code() -> str:
    """Return the sha256 of what plays a plan: our sources, and the versions of the packages that they compute with."""
    digest = hashlib.sha256()
    for package in ("numpy", "numba"):
        digest.update(f"{package} {version(package)}\n".encode())
    for path in sorted(path for room in ("accountant", "models", "training") for path in (ROOMS / room).rglob("*.py")):
        digest.update(f"{path.relative_to(ROOMS)}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
