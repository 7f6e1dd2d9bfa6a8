"""The signatures of many checkpoints, verified ahead of who reads them, by helper processes where that pays.

What comes out is what went in, in the same order, each with whether its signature is known to be good. What is not
known to be good is for the reader to judge: a helper that dies, or meets a note of another form, costs time alone.
"""

from __future__ import annotations

import fcntl
import marshal
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from accountant.system import signature_worker
from accountant.system.machine import processors
from dpserve_verify.audit.checkpoints import Checked, KeyAt
from dpserve_verify.errors import DpserveError
from dpserve_verify.keys.verifier_keys import key_id

CHUNK = 1000
FEW = 4  # chunks that are verified faster than a process starts
AHEAD = 48  # chunks under way: what helpers work on while the reader is busy elsewhere, as with a new kind of plan
PIPE = 1 << 20  # bytes
MAX_HELPERS = 2  # reading an entry takes about as long as half a signature


class Signatures:
    """`with Signatures(...) as signatures`: helpers end with the block, however it ends."""

    def __init__(self, origin: str, key_at: KeyAt, helpers: int | None = None) -> None:
        self._origin, self._key_at = origin, key_at
        # Two helpers beside the reader share even two cores best; with one core there is nothing to share.
        spare = (
            MAX_HELPERS if processors() > 1 and sys.executable else 0
        )  # inside another program there is no interpreter
        self._wanted = spare if helpers is None else helpers
        self._helpers: list[_Helper] = []
        self._sent = 0
        self._failed: Exception | None = None

    def __enter__(self) -> Signatures:
        return self

    def __exit__(self, *error: Any) -> None:
        for helper in self._helpers:
            helper.end()

    def check(self, filed: Iterable[tuple[int, str]]) -> Iterator[Checked]:
        """Check every (size, note), in order. An error of `filed` itself waits for its turn."""
        source = iter(filed)
        window = deque(_Part(chunk, None, None) for chunk in self._chunks(source, FEW))
        if len(window) == FEW and len(window[-1].filed) == CHUNK and self._wanted:
            self._helpers = [_Helper() for _ in range(self._wanted)]
            window = deque(self._send(part.filed) for part in window)
        while window:
            window += [self._send(chunk) for chunk in self._chunks(source, AHEAD - len(window))]
            yield from self._answer(window.popleft())
        if self._failed is not None:
            raise self._failed

    def _chunks(self, source: Iterator[tuple[int, str]], most: int) -> Iterator[list[tuple[int, str]]]:
        for _ in range(most if self._failed is None else 0):
            chunk: list[tuple[int, str]] = []
            try:
                for item in islice(source, CHUNK):
                    chunk.append(item)  # one by one: what came before an error must not be lost
            except Exception as error:
                self._failed = error
            if chunk:
                yield chunk
            if len(chunk) < CHUNK:
                return

    def _send(self, filed: list[tuple[int, str]]) -> _Part:
        key = self._key(filed)
        if not self._helpers or key is None:
            return _Part(filed, key, None)
        self._sent += 1
        helper = self._helpers[self._sent % len(self._helpers)]
        return _Part(filed, key, helper if helper.ask(self._question(filed, key)) else None)

    def _answer(self, part: _Part) -> Iterator[Checked]:
        key = part.key if part.helper else self._key(part.filed)
        good = b""
        if key is not None:
            verdicts = part.helper.answer(len(part.filed)) if part.helper else None
            good = signature_worker.verdicts(self._question(part.filed, key)) if verdicts is None else verdicts
        for (size, note), is_valid in zip(part.filed, good or bytes(len(part.filed)), strict=True):
            yield Checked(size, note, key if is_valid else None)

    def _question(self, filed: list[tuple[int, str]], key: Ed25519PublicKey) -> signature_worker.Chunk:
        return self._origin, key_id(self._origin, key), key.public_bytes_raw(), [note for _, note in filed]

    def _key(self, filed: list[tuple[int, str]]) -> Ed25519PublicKey | None:
        """Return the one key for all of them; None where there are several, or none."""
        sizes = [size for size, _ in filed]
        if any(type(size) is not int for size in sizes):
            return None
        try:
            first, last = self._key_at(min(sizes)), self._key_at(max(sizes))
        except DpserveError:
            return None
        return first if first == last else None


@dataclass(frozen=True)
class _Part:
    filed: list[tuple[int, str]]
    key: Ed25519PublicKey | None
    helper: _Helper | None


class _Helper:
    """A process that answers questions in the order they were asked; it ends when its input does."""

    def __init__(self) -> None:
        command = [sys.executable, "-P", str(Path(signature_worker.__file__))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if self._process.stdin is not None and hasattr(fcntl, "F_SETPIPE_SZ"):
            with suppress(OSError):  # a pipe that holds a chunk spares us waiting; a smaller one will do
                fcntl.fcntl(self._process.stdin, fcntl.F_SETPIPE_SZ, PIPE)

    def ask(self, chunk: signature_worker.Chunk) -> bool:
        assert self._process.stdin is not None
        raw = marshal.dumps(chunk)
        try:
            self._process.stdin.write(len(raw).to_bytes(signature_worker.LENGTH) + raw)
            self._process.stdin.flush()
        except BrokenPipeError:
            return False
        return True

    def answer(self, count: int) -> bytes | None:
        """Read the helper's verdicts; None where it is gone."""
        assert self._process.stdout is not None
        answer = self._process.stdout.read(count)
        return answer if len(answer) == count else None

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()
