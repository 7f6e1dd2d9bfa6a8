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

from serving.process.config.slots import Slot, Slots
from serving.process.watch.metrics import count_wait
from serving.wire.request_bodies import ARRIVAL, Arrival

WAIT_SECONDS = 5.0
HEAD_BYTES = 64 << 10
SLOTS = "dpserve.slots"  # of the server's state: for connections that outlive this process
CONNECTION = "dpserve.connection"  # of the scope's state: whose request it is


class LimitedProtocol(HttpToolsProtocol):
    """A connection that ends when no request begins or ends within WAIT_SECONDS to twice as long, or when the head of
    a request is longer than HEAD_BYTES. A field behind a body is dropped: no proxy in front
    has seen it. Where it has a slot, it outlives its process (`rescue`).
    """

    _timer: asyncio.TimerHandle
    _arrival: Arrival
    _is_answering = _is_seen_idle = _is_in_head = _is_coded = False
    _head_bytes = 0
    _slot: Slot | None = None
    _unanswered = 0  # requests that were begun

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        asked: bytes = b"",
    ) -> None:
        """Make a connection. `asked`: what came of a request where another process ended, which may end this one as
        well, and no third.
        """
        self._slots: Slots | None = app_state.get(SLOTS)
        self._asked = asked
        self._state = {**app_state, CONNECTION: self}  # uvicorn copies it into the scope of each request
        super().__init__(config, server_state, self._state, _loop)

    def begin_answer(self) -> None:
        """Note that a request is being answered."""
        self._is_answering, self._is_seen_idle = True, False

    def may_repeat(self) -> None:
        """Note that the request changes nothing: where this process ends, another one may answer it."""
        if self._slot is not None and self._unanswered == 1 and not self._asked:
            self._slot.may_repeat(True)

    def write_answer(self) -> None:
        """Note that some of an answer may have been sent from now on."""
        if self._slot is not None:
            self._slot.lose()

    def end_answer(self) -> None:
        """Note that a request is answered; the next one is waited for from now on."""
        self._is_answering, self._asked = False, b""
        self._unanswered -= 1
        if self._slot is not None:
            is_sent = not self._transport.get_write_buffer_size()
            rests = self._arrival.is_whole and is_sent and not self._unanswered
            self._slot.rest() if rests else self._slot.lose()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._transport = transport
        self._wait()
        if self._slots is not None:
            self._slot = self._slots.take(transport.get_extra_info("socket").fileno())
        if self._asked:
            self.data_received(self._asked)
            self.write_answer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._timer.cancel()
        if self._slots is not None and self._slot is not None:
            self._slots.give_back(self._slot)
            self._slot = None
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
        if self._slot is not None:
            self._slot.add(data)
        super().data_received(data)
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._transport.abort()

    def on_message_begin(self) -> None:
        """Begin a head."""
        self._unanswered += 1
        if self._slot is not None and self._unanswered > 1:
            self._slot.lose()
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
            self.write_answer()  # a part that was read as this process ended would not be missed
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """End a head. What it asks for may be done from now on."""
        self._is_in_head, self._arrival.headed = False, time.monotonic()
        if self._slot is not None:
            self._slot.may_repeat(False)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """End a request."""
        self._arrival.is_whole = True
        super().on_message_complete()


def connection_of(scope: Scope) -> LimitedProtocol | None:
    """Return whose request it is; None under another server than `dpserve serve`."""
    connection: LimitedProtocol | None = scope.get("state", {}).get(CONNECTION)
    return connection


class Connections:
    """ASGI middleware that tells a connection when it is being answered, and counts how long its request waited."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = connection_of(scope)
        if connection is None:
            await self.app(scope, receive, send)
            return
        connection.begin_answer()
        count_wait(time.monotonic() - scope["state"][ARRIVAL].headed)
        try:
            await self.app(scope, receive, send)
        finally:
            connection.end_answer()
