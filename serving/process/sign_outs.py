"""Who signed out at their provider, in one file that all serving processes of a home look at with each request.

No entries: those are permanent, and when people leave work is not the ledger's. The file has hashes, each with the
second of 1970's up to which what the provider made is over, for as long as any of it could be good.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path

from dpserve_verify.system.files import PRIVATE, locked, replace_file
from serving.wire.errors import NotReady

FILE = "signed-out.json"  # in the home


class SignOuts:
    """The file in `folder`. `seconds`: after which what the provider made is over anyway."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self._path, self._seconds = folder / FILE, seconds
        self._seen: tuple[int, ...] = ()
        self._ends: Mapping[str, float] = {}

    def end(self, names: Iterable[str], made: float, once: str) -> None:
        """End what was made up to `made` of all `names`. ValueError where `once`, which nothing else may use, came
        before.
        """
        with locked(self._path.with_suffix(".lock")):
            now, ends = time.time(), self._look()
            if _hashed(once) in ends:
                raise ValueError("jti")
            added = {_hashed(name): max(made, ends.get(_hashed(name), 0.0)) for name in names} | {_hashed(once): made}
            lasting = {name: until for name, until in ends.items() if until + self._seconds > now}
            replace_file(self._path, json.dumps(lasting | added).encode(), PRIVATE)

    def have(self, names: Iterable[str], made: float) -> bool:
        """Return whether what was made at `made` for one of `names` is over. NotReady where that cannot be known."""
        ends = self._look()
        return bool(ends) and any(made <= ends.get(_hashed(name), 0.0) for name in names)

    def _look(self) -> Mapping[str, float]:
        try:
            about = self._path.stat()
            seen = about.st_ino, about.st_mtime_ns, about.st_size
            if seen != self._seen:
                self._ends = json.loads(self._path.read_bytes())
                self._seen = seen
        except FileNotFoundError:
            return {}
        except (OSError, ValueError):
            raise NotReady("it cannot be known who signed out: signed-out.json of the home cannot be read") from None
        return self._ends


def _hashed(name: str) -> str:
    return sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
