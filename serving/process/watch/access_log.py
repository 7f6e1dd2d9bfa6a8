"""Who asked for what: one line of JSON for every request, in the home's `logs/access.jsonl`.

Time to the second, the token's name, the method, the route as the documentation spells it, the status, and the model or
dataset that was asked for where there is one of that name; of what was refused also the error's code, and whether a
budget or a quota did not admit it. No body, no address, no query, no time that it took. A line is written before the
answer goes out: what cannot be written is not answered.

All workers append to one file; a line is one write, so that none tears another. At its size the file becomes
`access.1.jsonl`, that one `access.2.jsonl`, and the last of them goes.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections import Counter
from collections.abc import Mapping, MutableMapping
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import Any

import orjson

from accountant.home import local
from dpserve_verify.errors import BudgetRefused
from dpserve_verify.system.files import locked
from serving.process.config.settings import ServerSettings
from serving.process.watch.trail_lines import path_of
from serving.wire.errors import NotReady, code_of

LOG = logging.getLogger("dpserve.serving")
BLOCK = 1 << 16
MAX_REFUSED = 20
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


# The request that is being answered: threads that work for it are handed the same scope.
ASKING: ContextVar[MutableMapping[str, Any] | None] = ContextVar("dpserve.asking", default=None)
ABOUT, REFUSAL = "dpserve.about", "dpserve.refusal"


def note_subject(name: str) -> None:
    """Note the model or dataset that the request is about, once it is known that there is one."""
    scope = ASKING.get()
    if scope is not None:
        scope[ABOUT] = name


def note_refusal(error: Exception) -> None:
    """Note why the request is refused: the error's code, which is for programs, and whose room a job did not fit in."""
    scope = ASKING.get()
    if scope is not None:
        scope[REFUSAL] = {"code": code_of(error)}
        if isinstance(error, BudgetRefused):
            scope[REFUSAL]["reason"] = error.details["reason"]


class Trail:
    """The file that this process appends to. `most`: bytes after which it is put aside; `files`: how many are kept."""

    def __init__(self, folder: Path, most: int, files: int) -> None:
        self._folder, self._most, self._files = folder, most, files
        self._second, self._time, self._file = 0, "", -1
        self._refused: Counter[tuple[str | None, int | None]] = Counter()
        self._logged = 0

    def write(
        self,
        token: str | None,
        method: str,
        route: str | None,
        status: int | None,
        about: str | None,
        refusal: Mapping[str, str] | None = None,
    ) -> None:
        """Write one line. `refusal`: as `note_refusal` noted it; of a token's requests the server's log has it too, at
        most MAX_REFUSED times a second. Raises NotReady where the line cannot be written.

        Nobody drives the lines of others out of the trail: what costs a stranger, or a token above its limit, nothing
        to ask is written MAX_REFUSED times a second, and then summed in one line with `times`.
        """
        method = method if method in METHODS else "other"
        try:
            self._tick()
            if token is None or status == 429:
                self._refused[token, status] += 1
                if self._refused[token, status] > MAX_REFUSED:
                    return
            line = {"token": token, "method": method, "route": route, "status": status, "about": about}
            if status is None or status < 400 or refusal is None:
                self._append(line)
                return
            self._append({**line, **refusal})
            self._logged += token is not None
            if token is not None and self._logged <= MAX_REFUSED:
                LOG.info("refused: %s %s of %s: %d %s", method, route, token, status, " ".join(refusal.values()))
        except OSError as error:
            LOG.error("the audit trail cannot be written: %s", errno.errorcode.get(error.errno or 0, "OSError"))
            raise NotReady("the audit trail cannot be written; the server's log says why") from None

    def _append(self, line: Mapping[str, Any]) -> None:
        text = orjson.dumps({"time": self._time, **line}, option=orjson.OPT_APPEND_NEWLINE)
        if os.write(self._file, text) != len(text):
            raise OSError(errno.ENOSPC, "cut")

    def _sum_up(self) -> None:
        """Write the sums of the second that is over."""
        for (token, status), times in self._refused.items():
            if times > MAX_REFUSED:
                line = {"token": token, "method": None, "route": None, "status": status, "about": None}
                self._append({**line, "times": times - MAX_REFUSED})
        self._refused.clear()

    def _tick(self) -> None:
        """Look once a second: the time in words, and whether the file is still the one to write to."""
        now = int(time.time())
        if now == self._second:
            return
        self._logged = 0
        if self._refused:
            self._sum_up()
        self._time = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
        if self._file < 0 or not self._is_current():
            self._reopen()
        if os.fstat(self._file).st_size >= self._most:
            self._rotate()
            self._reopen()
        self._second = now

    def _is_current(self) -> bool:
        try:
            current = os.stat(path_of(self._folder, 0))
        except FileNotFoundError:
            return False
        return current.st_ino == os.fstat(self._file).st_ino

    def _reopen(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        before, self._file = self._file, os.open(path_of(self._folder, 0), flags, 0o600)
        if before >= 0:
            os.close(before)

    def _rotate(self) -> None:
        """Rotate the files under a lock, unless another worker did it meanwhile."""
        with locked(self._folder / "access.lock"):
            if not self._is_current():
                return
            for number in reversed(range(self._files - 1)):
                if path_of(self._folder, number).exists():
                    os.replace(path_of(self._folder, number), path_of(self._folder, number + 1))
            if self._files == 1:
                os.unlink(path_of(self._folder, 0))


@lru_cache(maxsize=1)
def trail(home: Path) -> Trail:
    """Return the trail of this process."""
    settings = ServerSettings()
    return Trail(local(home) / "logs", settings.trail_bytes, settings.trail_files)
