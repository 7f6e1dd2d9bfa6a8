"""Asking somebody who need not mean well: one request, one answer, bounded in time as a whole and in bytes.

The limit of a socket starts anew with every byte, so what is left of the time is set again before each wait. Names are
looked up by the system, with its own limit. Redirections are not followed, and no proxy is asked.
"""

from __future__ import annotations

import io
import socket
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from ipaddress import ip_address
from typing import Any
from urllib.parse import SplitResult

from dpserve_verify.errors import LedgerUnavailable

SCHEMES = ("http", "https")


@dataclass(frozen=True)
class Reply:
    """What an HTTP server answered. `kind`: its media type, without parameters."""

    status: int
    kind: str
    body: bytes


class _Timed(io.RawIOBase):
    """Reads from a connected socket until a moment of the monotonic clock. TimeoutError after it."""

    def __init__(self, line: socket.socket, until: float) -> None:
        self._line, self._until = line, until
        self._file = line.makefile("rb", buffering=0)  # keeps the socket open when the connection lets go of it

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return the file that `HTTPResponse` asks a socket for."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        """Return True: it is for reading alone."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Return bytes read; 0 where the other side has closed."""
        self._line.settimeout(_remaining(self._until))
        return self._file.readinto(buffer)

    def close(self) -> None:
        """Let go of the socket as well."""
        self._file.close()
        super().close()


def is_this_machine(host: str | None) -> bool:
    """Return whether a URL's host is this machine: localhost, or an address of the loopback."""
    with suppress(ValueError):
        return ip_address(host or "").is_loopback
    return host == "localhost"


def exchange(
    place: SplitResult, method: str, target: str, body: bytes | None, headers: dict[str, str], seconds: float,
    most: int, authority: ssl.SSLContext | None = None,
) -> Reply:  # fmt: skip
    """Ask for `target` at `place`, of whose parts scheme, host and port count: within `seconds` in all, connecting
    included, and at most `most` bytes of answer. `authority`: who vouches for the server; None for the system's.

    LedgerUnavailable, with the reason and nothing of the other side's words, where no such answer came.
    """
    until = time.monotonic() + seconds
    connection: HTTPConnection
    if place.scheme == "https":
        connection = HTTPSConnection(place.hostname or "", place.port, timeout=seconds, context=authority)
    else:
        connection = HTTPConnection(place.hostname or "", place.port, timeout=seconds)
    try:
        connection.connect()  # TLS ends its handshake within the limit, however its bytes come
        line = connection.sock
        line.settimeout(_remaining(until))
        timed = _Timed(line, until)
        connection.response_class = lambda sock, **more: HTTPResponse(timed, **more)  # type: ignore[assignment, arg-type]
        connection.request(method, target, body, headers)
        response = connection.getresponse()
        raw = response.read(most + 1)
        if len(raw) <= most and response.length:
            raise IncompleteRead(raw, response.length)
    except TimeoutError as error:
        raise LedgerUnavailable("did not answer in time") from error
    except (OSError, HTTPException, ValueError) as error:  # ValueError: a host name that is none
        reason = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        raise LedgerUnavailable(f"no answer ({reason})") from error
    finally:
        connection.close()
    if len(raw) > most:
        raise LedgerUnavailable(f"answered more than {most} bytes")
    return Reply(response.status, (response.getheader("Content-Type") or "").split(";")[0].strip().lower(), raw)


def _remaining(until: float) -> float:
    seconds = until - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds
