"""The limits of a connection, which no option of uvicorn sets: how long it may wait without a request, and how large a
request's head may be.

uvicorn's option `http` takes the class of a connection; `LimitedProtocol` is its own class for httptools with the
limits added. It overrides what asyncio calls (`connection_made`, `data_received`, `connection_lost`) and what httptools
calls (`on_message_begin`, `on_header`, `on_headers_complete`, `on_message_complete`). h11, whose heads uvicorn limits
by an option, takes half as long again for a prediction of one row, and waits for a head without end.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from serving.process.watch.metrics import count_wait
from serving.wire.request_bodies import ARRIVAL, Arrival

WAIT_SECONDS = 5.0
HEAD_BYTES = 64 << 10
CONNECTION = "dpserve.connection"  # of the scope's state: whose request it is


class LimitedProtocol(HttpToolsProtocol):
    """A connection that ends when no request begins or ends within WAIT_SECONDS to twice as long, or when the head of
    a request is longer than HEAD_BYTES. A field behind a body is dropped: no proxy in front
    has seen it.
    """

    _timer: asyncio.TimerHandle
    _arrival: Arrival
    _is_answering = _is_seen_idle = _is_in_head = _is_coded = False
    _head_bytes = 0

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._state = {**app_state, CONNECTION: self}  # uvicorn copies it into the scope of each request
        super().__init__(config, server_state, self._state, _loop)

    def begin_answer(self) -> None:
        """Note that a request is being answered."""
        self._is_answering, self._is_seen_idle = True, False

    def end_answer(self) -> None:
        """Note that a request is answered; the next one is waited for from now on."""
        self._is_answering = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._transport = transport
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._timer.cancel()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(WAIT_SECONDS, self._look)

    def _look(self) -> None:
        """End the connection if it was idle at the last look and nothing was answered since; else look again later."""
        if self._is_seen_idle:
            self._transport.abort()  # `close` would wait for a client that does not read
            return
        self._is_seen_idle = not self._is_answering
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Parse what came; end the connection where it leaves a head unfinished that is too long."""
        super().data_received(data)
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._transport.abort()

    def on_message_begin(self) -> None:
        """Begin a head."""
        self._is_in_head, self._head_bytes, self._is_coded = True, 0, False
        self._arrival = self._state[ARRIVAL] = Arrival()
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field of a head. ValueError, which is answered by 400, for a coding of the body that is not undone."""
        if not self._is_in_head:
            return
        if name.lower() == b"transfer-encoding":
            if value.strip(b" \t").lower() != b"chunked" or self._is_coded:
                raise ValueError("Transfer-Encoding: must be chunked, and nothing else")
            self._is_coded = True
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """End a head."""
        self._is_in_head, self._arrival.headed = False, time.monotonic()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """End a request."""
        self._arrival.is_whole = True
        super().on_message_complete()


class Connections:
    """ASGI middleware that tells a connection when it is being answered, and counts how long its request waited."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = scope.get("state", {}).get(CONNECTION)
        if connection is None:
            await self.app(scope, receive, send)
            return
        connection.begin_answer()
        count_wait(time.monotonic() - scope["state"][ARRIVAL].headed)
        try:
            await self.app(scope, receive, send)
        finally:
            connection.end_answer()
