"""What is used of BentoML, circus (kantoku is the fork that it brings), tornado and uvicorn beyond what they promise.

`bentoml serve` has no flag for any of it, and every process of it imports the service, which calls `install`. Under
`dpserve serve` there is no supervisor but ours, and its serving processes are forks that run BentoML's worker.
`LIBRARIES` are the versions with which this was seen to work. Where one is raised,
tests/serving/process/test_library_internals.py names what is gone; when it passes again, raise the version here too.
"""

from __future__ import annotations

import asyncio
import socket
import time
from functools import partial
from typing import Any

from _bentoml_impl.worker import service as bentoml_worker  # type: ignore[import-untyped]
from bentoml._internal import log as bentoml_log
from bentoml._internal.utils import circus as bentoml_circus
from tornado.ioloop import IOLoop
from uvicorn.config import HTTP_PROTOCOLS
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from serving.process.logs import set_up

LIBRARIES = {"bentoml": "1.4.39", "kantoku": "0.18.3", "tornado": "6.6.1", "uvicorn": "0.54.0"}

# How often the supervisor looks whether a worker died. BentoML says 10 seconds: for as long a server of two workers
# would answer with one.
CHECK_SECONDS = 0.5

# How long, and for how much, a connection is waited for before there is a request. Uvicorn waits without end and for
# any amount: a thousand connections that send a header each minute, or one that sends headers on and on, would stop it.
HEAD_SECONDS = 5.0
HEAD_BYTES = 64 << 10
# How long a connection that is kept and idle is waited for once the server closes: a request that is on its way to it
# would be answered by a reset.
LAST_SECONDS = 0.5
HEAD_FIELDS = 200


def install() -> None:
    """Have this process's supervisor and servers use all of it. They look the names up when they start.

    The supervisor counts the time between two looks by tornado's clock, which is the machine's: set back by an hour, it
    would let an hour pass before it replaced a worker that died. So tornado is given a clock that nobody sets.
    """
    IOLoop.time = lambda _: time.monotonic()  # type: ignore[method-assign,assignment]
    slow = bentoml_circus.create_standalone_arbiter
    if not isinstance(slow, partial):
        bentoml_circus.create_standalone_arbiter = partial(slow, check_delay=CHECK_SECONDS)
    HTTP_PROTOCOLS["auto"] = HTTP_PROTOCOLS["httptools"] = f"{__name__}:Patient"


def serve(service: str, listener: socket.socket, number: int, options: list[str]) -> None:
    """Be the worker `number` of BentoML's server, until told to stop; its supervisor would start it as a program, which
    sets up logs before the service takes their place.
    """
    bentoml_log.configure_server_logging = set_up
    own = [service, "--fd", str(listener.detach()), "--worker-id", str(number)]
    bentoml_worker.main([*own, *options], standalone_mode=False)


class Patient(HttpToolsProtocol):
    """One connection. It ends when no new request has begun within HEAD_SECONDS to twice as long, or when a request's
    head is longer than HEAD_BYTES, has more fields than HEAD_FIELDS or names no one host (400). Bodies are timed by who
    reads them. What stands behind a body is no head: it says who asks of nobody.
    """

    _timer: asyncio.TimerHandle
    _before: Any = None  # the request that had been answered when it was last looked at
    _in_head = _closing = False
    _bytes = _fields = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to count the seconds."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(HEAD_SECONDS, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting."""
        self._timer.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        waits = self.cycle is None or self.cycle.response_complete
        if waits and self.cycle is self._before:
            self.transport.abort()  # it may not be reading either
            return
        self._before = self.cycle if waits else self._before
        self._timer = self.loop.call_later(HEAD_SECONDS, self._look)

    def data_received(self, data: bytes) -> None:
        """Count the bytes of a head."""
        super().data_received(data)
        self._bytes += len(data)
        if self._in_head and self._bytes > HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The head of the request is too long.")

    def on_message_begin(self) -> None:
        """A head begins."""
        self._in_head, self._bytes, self._fields = True, 0, 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Of a head, or after a body in chunks."""
        self._fields += 1
        if self._fields > HEAD_FIELDS:
            raise ValueError("too many header fields")  # the parser's caller answers 400 and hangs up
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """It is over. One host exactly (RFC 9112, section 3.2), or a proxy in front may have meant another."""
        self._in_head = False
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (hosts == 0 and self.parser.get_http_version() != "1.0"):
            raise ValueError("must name one host")
        super().on_headers_complete()
        if self._closing:
            self.cycle.keep_alive = False  # uvicorn says so in the answer

    def shutdown(self) -> None:
        """The server closes: what is being answered is the last here, and so is what comes in LAST_SECONDS."""
        if self._closing or not (self.cycle is None or self.cycle.response_complete):
            super().shutdown()
        else:
            self._closing = True
            self.loop.call_later(LAST_SECONDS, self.shutdown)
