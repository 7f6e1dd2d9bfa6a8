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
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, cast

from _bentoml_impl.worker import service as bentoml_worker  # type: ignore[import-untyped]
from bentoml._internal import log as bentoml_log
from bentoml._internal.utils import circus as bentoml_circus
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from tornado.ioloop import IOLoop
from uvicorn.config import HTTP_PROTOCOLS, Config
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from serving.process.watch.logs import set_up
from serving.wire.request_bodies import WHOLE

LIBRARIES = {"bentoml": "1.4.40", "kantoku": "0.18.3", "tornado": "6.6.1", "uvicorn": "0.54.0"}

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

QUICK_BYTES = 64 << 10  # of a body that came with its head: it is handed over as it is, under WHOLE of the scope
QUICK_PATHS = frozenset({"/predict"})


_on_header = HttpToolsProtocol.on_header
_FRONT: list[ASGIApp] = []  # what answers quick requests in this process


def install(front: ASGIApp | None = None) -> None:
    """Have this process's supervisor and servers use all of it. They look the names up when they start. `front` answers
    what is whole, small and asked of QUICK_PATHS, without BentoML's layers: its tracing, though off, a task and a timer
    for each request cost more than a prediction, which has time limits of its own.

    Whoever imports the service is no supervisor yet, and may be a worker that asks a cluster: what it takes to be one
    is done by `supervisor`.
    """
    slow = bentoml_circus.create_standalone_arbiter
    if not isinstance(slow, partial):
        bentoml_circus.create_standalone_arbiter = partial(supervisor, slow)
    HTTP_PROTOCOLS["auto"] = HTTP_PROTOCOLS["httptools"] = f"{__name__}:Patient"
    httptools_impl.RequestResponseCycle = Exchange  # type: ignore[misc]
    _FRONT[:] = [] if front is None else [front]


def supervisor(made: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """Of this process, as circus makes one. It counts the time between two looks by tornado's clock, which is the
    machine's: set back by an hour, it would let an hour pass before it replaced a worker that died. So tornado is given
    a clock that nobody sets, and here alone: Dask counts by the machine's, and would wait for ever by this one.
    """
    IOLoop.time = lambda _: time.monotonic()  # type: ignore[method-assign,assignment]
    return made(*given, check_delay=CHECK_SECONDS, **named)


def serve(service: str, listener: socket.socket, number: int, options: list[str]) -> None:
    """Be the worker `number` of BentoML's server, until told to stop; its supervisor would start it as a program, which
    sets up logs before the service takes their place.
    """
    bentoml_log.configure_server_logging = set_up
    own = [service, "--fd", str(listener.detach()), "--worker-id", str(number)]
    bentoml_worker.main([*own, *options], standalone_mode=False)


class Quick:
    """Before a server's application: what is quick goes to the one in front."""

    def __init__(self, app: ASGIApp, front: ASGIApp) -> None:
        self.app, self.front = app, front

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        quick = WHOLE in scope and scope["path"] in QUICK_PATHS
        await (self.front if quick else self.app)(scope, receive, send)


@lru_cache(maxsize=4096)
def _line(name: bytes, value: bytes) -> bytes:
    """A field of an answer's head. RuntimeError where it could end it."""
    if httptools_impl.HEADER_RE.search(name) or httptools_impl.HEADER_VALUE_RE.search(value):
        raise RuntimeError("Invalid HTTP header")
    return b"%b: %b\r\n" % (name.lower(), value)


class Exchange(RequestResponseCycle):
    """One request and its answer, as uvicorn has them; but a short answer that comes whole goes out in one write."""

    _head: Message | None = None  # of an answer, until its body comes

    async def run_asgi(self, app: ASGIApp) -> None:  # type: ignore[override]
        """Hand the body over where all of it is there."""
        if not self.more_body and len(self.body) <= QUICK_BYTES:
            cast(Scope, self.scope)[WHOLE] = bytes(self.body)
        await super().run_asgi(app)  # type: ignore[arg-type]

    async def send(self, message: Message) -> None:  # type: ignore[override]
        """Keep a head back until its body is there."""
        if self._head is None:
            if (
                not self.response_started
                and message["type"] == "http.response.start"
                and self.scope["method"] == "POST"
            ):
                self._head, self.response_started = message, True
            else:
                await super().send(message)  # type: ignore[arg-type]
            return
        head, self._head = self._head, None
        if not self._sent(head, message):
            self.response_started = False
            await super().send(head)  # type: ignore[arg-type]
            await super().send(message)  # type: ignore[arg-type]

    def _sent(self, head: Message, message: Message) -> bool:
        """Both at once, where that is possible: a body that is all there is, and as long as the head says."""
        body, length = message.get("body", b""), b"%d" % len(message.get("body", b""))
        fields = [*self.default_headers, *head["headers"]]
        plain = (b"content-length", length) in fields and all(name != b"connection" for name, _ in fields)
        waits = self.flow.write_paused or self.disconnected or not self.keep_alive
        if waits or not plain or message.get("more_body") or len(body) > QUICK_BYTES:
            return False
        lines = [_line(name, value) for name, value in fields]
        self.transport.write(b"".join((STATUS_LINE[head["status"]], *lines, b"\r\n", body)))
        self.response_complete, self.waiting_for_100_continue = True, False
        self.message_event.set()
        self.on_response()
        return True


class Patient(HttpToolsProtocol):
    """One connection. It ends when no new request has begun within HEAD_SECONDS to twice as long, or when a request's
    head is longer than HEAD_BYTES, has more fields than HEAD_FIELDS or names no one host (400). Bodies are timed by who
    reads them. What stands behind a body is no head: it says who asks of nobody.
    """

    _timer: asyncio.TimerHandle
    _before: Any = None  # the request that had been answered when it was last looked at
    _in_head = _closing = False
    _bytes = _fields = 0

    def __init__(self, config: Config, *more: Any, **named: Any) -> None:
        """Put what is quick in front of the server's application, once: behind what reads a proxy's headers."""
        super().__init__(config, *more, **named)
        around = cast(Any, self.app)
        proxied = isinstance(around, ProxyHeadersMiddleware)
        app = around.app if proxied else around
        if not _FRONT or isinstance(app, Quick):
            return
        quick = Quick(app, _FRONT[0])
        if proxied:
            around.app = quick
        else:
            config.loaded_app = self.app = cast(Any, quick)

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
            _on_header(self, name, value)

    def on_headers_complete(self) -> None:
        """It is over. One host exactly (RFC 9112, section 3.2), or a proxy in front may have meant another."""
        self._in_head = False
        hosts = [name for name, _ in self.headers].count(b"host")
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
