"""Ask the price desk from a serving process. It blocks until it is the caller's turn, or the request is given up."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from serving.process.watch.access_log import ASKING
from serving.process.workers.desk_wire import Wire, name_of
from serving.process.workers.price_desk import BUSY, FAILED, SOCKET, socket_address
from serving.wire.errors import ClientGone, NotReady, TooManyRequests

LOOK_SECONDS = 0.05
LOCAL_PRICE = threading.Lock()  # where no desk answers: one at a time, or all threads of this process would be at it
MAX_LOCAL_PRICES = 8  # who wait for that
LOCAL_PRICES = threading.Semaphore(MAX_LOCAL_PRICES)
SEND_SECONDS = 1.0
REQUEST = "dpserve.prices"  # of the scope of a request that needs prices: its `PriceRequest`


def run_for_request(function: Callable[..., Any], *arguments: Any) -> Any:
    """Work a price out in the turn of the request that this thread answers; in this process, where there is none."""
    run = (ASKING.get() or {}).get(REQUEST)
    return function(*arguments) if run is None else run(function, *arguments)


class PriceRequest:
    """One request's turn at the price desk."""

    def __init__(self, caller: str, given_up: threading.Event, run_while_wanted: Callable[..., Any]) -> None:
        """Make the request of one caller.

        Args:
            caller: Who asks; callers take turns.
            given_up: Set when nobody waits for the price any more.
            run_while_wanted: Where no desk answers, calls its second argument with those that follow, as long as its
                first does not raise.
        """
        self._caller, self._given_up = hashlib.sha256(caller.encode()).digest(), given_up
        self._run_while_wanted = run_while_wanted

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return or raise what the function does.

        Raises:
            ClientGone: The request was given up meanwhile.
            TooManyRequests: The caller, or all callers together, wait for too many prices.
            NotReady: The process that worked it out was ended.
        """
        wire = _connect(self._caller)
        if wire is None:
            return self._run_here(function, arguments)
        with closing(Wire(wire)) as connection:
            try:
                kind, result = self._next(connection)
            except (EOFError, OSError):  # the desk was ended before it was our turn
                return self._run_here(function, arguments)
            if kind == BUSY:
                raise _busy(result)
            try:
                connection.send((name_of(function), arguments))
                kind, result = self._next(connection)
            except (EOFError, OSError):
                raise NotReady("the price could not be worked out; ask again") from None
        if kind == FAILED:
            raise result
        return result

    def _next(self, connection: Wire) -> tuple[str, Any]:
        while not connection.is_ready(LOOK_SECONDS):
            self._check()
        message: tuple[str, Any] = connection.receive()
        return message

    def _check(self) -> None:
        if self._given_up.is_set():
            raise ClientGone

    def _run_here(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if not LOCAL_PRICES.acquire(blocking=False):
            raise _busy(MAX_LOCAL_PRICES)
        try:
            while not LOCAL_PRICE.acquire(timeout=LOOK_SECONDS):
                self._check()
            try:
                self._check()
                return self._run_while_wanted(self._check, function, *arguments)
            finally:
                LOCAL_PRICE.release()
        finally:
            LOCAL_PRICES.release()


def _busy(most: int) -> TooManyRequests:
    return TooManyRequests(
        f"{most} prices are being worked out or waited for; ask again in 1 s", limit=most, per="moment", retry_after=1
    )


def _connect(caller: bytes) -> socket.socket | None:
    """Connect to the price desk; None where there is no desk, or it does not listen."""
    place = os.environ.get(SOCKET, "")
    if not place:
        return None
    wire = socket.socket(socket.AF_UNIX)
    wire.settimeout(SEND_SECONDS)
    try:
        with socket_address(Path(place)) as path:
            wire.connect(path)
        wire.sendall(caller)
    except OSError:
        wire.close()
        return None
    wire.settimeout(None)
    return wire
