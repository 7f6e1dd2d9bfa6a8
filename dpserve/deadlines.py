"""One limit for a request and the whole of its answer: httpx begins its limit anew with every byte, so a service that
sends a byte now and then could hold a client without end, and one that sends without end could fill its memory.

httpx reads by its connection pool's network backend; `guard` puts one around it that looks at what is left of the time
before each read. Both together may take the limit of a silence, and a second more for each SLOWEST bytes that passed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import httpcore
import httpx

SLOWEST = 10_000  # bytes a second
MOST = 1 << 30  # bytes of one answer
PART = 1 << 14  # bytes that are sent between two looks


@dataclass
class _Answer:
    """One answer that is awaited: since when, the limit of a silence in seconds, and how many bytes came and passed."""

    silence: float
    began: float = field(default_factory=time.monotonic)
    received: int = 0
    passed: int = 0

    def left(self) -> float:
        """Return the seconds that are left. httpcore's errors of reading where none are, or too much came."""
        if self.received > MOST:
            raise httpcore.ReadError(f"more than {MOST} bytes")
        seconds = self.began + self.silence + self.passed / SLOWEST - time.monotonic()
        if seconds <= 0:
            raise httpcore.ReadTimeout("the answer as a whole")
        return seconds


_AWAITED: ContextVar[_Answer | None] = ContextVar("dpserve-awaited", default=None)


@contextmanager
def whole_answer(silence: float | None) -> Iterator[None]:
    """Bound what is sent and read within the body as one request and its answer; `silence` None: not at all."""
    before = _AWAITED.set(None if silence is None else _Answer(silence))
    try:
        yield
    finally:
        _AWAITED.reset(before)


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        answer = _AWAITED.get()
        if answer is None:
            return self._stream.read(max_bytes, timeout)
        left = answer.left()
        part = self._stream.read(max_bytes, left if timeout is None else min(timeout, left))
        answer.received += len(part)
        answer.passed += len(part)
        return part

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        answer = _AWAITED.get()
        if answer is None:
            self._stream.write(buffer, timeout)
            return
        for start in range(0, len(buffer), PART):
            left, part = answer.left(), buffer[start : start + PART]
            self._stream.write(part, left if timeout is None else min(timeout, left))
            answer.passed += len(part)

    def close(self) -> None:
        self._stream.close()

    def start_tls(self, *how: Any, **more: Any) -> httpcore.NetworkStream:
        return _Stream(self._stream.start_tls(*how, **more))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Backend(httpcore.NetworkBackend):
    def __init__(self, backend: httpcore.NetworkBackend) -> None:
        self._backend = backend

    def connect_tcp(self, *how: Any, **more: Any) -> httpcore.NetworkStream:
        return _Stream(self._backend.connect_tcp(*how, **more))

    def connect_unix_socket(self, *how: Any, **more: Any) -> httpcore.NetworkStream:
        return _Stream(self._backend.connect_unix_socket(*how, **more))

    def sleep(self, seconds: float) -> None:
        self._backend.sleep(seconds)


def guard(transports: Iterable[object]) -> None:
    """Let the connections that these transports of httpx will make be bounded by `whole_answer`; others are left."""
    for transport in transports:
        if isinstance(transport, httpx.HTTPTransport):
            pool = transport._pool
            pool._network_backend = _Backend(pool._network_backend)
