"""A serving process of `dpserve serve`: it answers until it is told to stop, also where who started it was killed."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn

from serving.http.connections import SLOTS, LimitedProtocol
from serving.http.headers import LAST
from serving.process.config.healthy import BEAT_SECONDS, Heartbeat
from serving.process.config.startup import CERTIFICATE_END, Listening, certificate_end
from serving.process.watch.logs import set_up
from serving.process.workers.forks import is_orphan
from serving.process.workers.handover import BACKLOG, DOOR, ORPHAN_SECONDS, Sockets, Visitor, is_relieved
from serving.process.workers.rescue import Keeper
from serving.wire.work_time import OVERDUE, Overdue

LOG = logging.getLogger("dpserve.serving")
SERVER_APP, CONNECTION = "serving.app:make_server_app", "serving.http.connections:LimitedProtocol"
ANSWER_SECONDS = 10  # for requests that are being answered when the server is told to stop
LEAVE_SECONDS = 3.0  # from the last new connection to the end: who keeps one is told so with its next answer
# Of TLS 1.2, whose default here would be CBC with SHA-1 alone; those of TLS 1.3 are all as good.
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"


def answer(sockets: Sockets, listening: Listening, place: Path, heartbeat: Heartbeat) -> None:
    """Answer requests until told to stop (SIGTERM), or nobody is left who would say so. The loop that answers beats."""
    set_up()
    tls = listening.tls
    keeper = Keeper(place / DOOR) if tls is None else None  # the keys of a connection are no other process's
    if tls is not None:
        os.environ[CERTIFICATE_END] = str(certificate_end(tls))

    async def beat() -> None:
        beat_unless_lost(heartbeat)
        server.look(orphan)

    config = uvicorn.Config(
        SERVER_APP, factory=True, http=CONNECTION, ws="none", log_config=None, access_log=False, server_header=False,
        backlog=BACKLOG, timeout_graceful_shutdown=ANSWER_SECONDS, ssl_ciphers=CIPHERS,
        callback_notify=beat, timeout_notify=round(BEAT_SECONDS),
        ssl_certfile=None if tls is None else tls.certificate, ssl_keyfile=None if tls is None else tls.key,
    )  # fmt: skip
    server, orphan = _Server(config, sockets, keeper), Orphan(place)
    server.run(sockets=[sockets[0]])


def beat_unless_lost(heartbeat: Heartbeat, overdue: Overdue = OVERDUE) -> None:
    """Beat, unless threads are lost to work that nothing ends: another process then answers in place of this one."""
    if not overdue.is_lost:
        heartbeat.beat()


class Orphan:
    """A process that may live on where the `dpserve serve` that started it is gone. `place`: of the server."""

    def __init__(self, place: Path) -> None:
        self._place, self._alone_since = place, 0.0

    def is_over(self) -> bool:
        """Return whether it is to end: another `dpserve serve` has taken over, none can, or none has for
        ORPHAN_SECONDS.
        """
        if not is_orphan():
            return False
        if not self._alone_since:
            self._alone_since = time.monotonic()
            LOG.error("dpserve serve is gone; answering for %.0f s unless another one comes", ORPHAN_SECONDS)
        return is_relieved(self._place) or time.monotonic() > self._alone_since + ORPHAN_SECONDS


class _Server(uvicorn.Server):
    """A server that gives its sockets away, goes on where another process ended, and ends some time after who started
    it.
    """

    def __init__(self, config: uvicorn.Config, sockets: Sockets, keeper: Keeper | None) -> None:
        super().__init__(config)
        self._sockets, self._door, self._keeper = sockets, sockets[1], keeper
        self._is_leaving = False
        self._taken = set[asyncio.Task[Any]]()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer, and to give the sockets away."""
        if self._keeper is not None:
            self.lifespan.state[SLOTS] = self._keeper.slots
        await super().startup(sockets)
        self._door.setblocking(False)
        asyncio.get_running_loop().add_reader(self._door.fileno(), self._open_door)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what was asked for, and end."""
        await super().shutdown(sockets)
        if self._keeper is not None:
            self._keeper.end()

    def _open_door(self) -> None:
        with suppress(OSError):
            visitor, loop = Visitor(self._sockets, self._go_on), asyncio.get_running_loop()

            def hear() -> None:
                if visitor.hear():
                    loop.remove_reader(line)

            line = visitor.line.fileno()
            loop.add_reader(line, hear)

    def _go_on(self, connection: socket.socket, asked: bytes) -> None:
        """Go on at a connection of a process that ended. `asked`: what came of a request that nothing was answered
        to.
        """
        protocol = partial(LimitedProtocol, self.config, self.server_state, self.lifespan.state, asked=asked)
        loop = asyncio.get_running_loop()
        task = loop.create_task(loop.connect_accepted_socket(protocol, connection))
        self._taken.add(task)
        task.add_done_callback(self._taken.discard)

    def look(self, orphan: Orphan) -> None:
        """Begin to end where nobody needs this process any more, or the keeper is gone: one with a keeper comes in its
        place.
        """
        if self._is_leaving:
            return
        self._is_leaving = orphan.is_over() or (self._keeper is not None and self._keeper.is_gone and not is_orphan())
        if self._is_leaving:
            self._leave()

    def _leave(self) -> None:
        LOG.info("taking no more connections; stopping")
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._door.fileno())
        for each in self.servers:
            each.close()
        self.config.encoded_headers.append(LAST)
        loop.call_later(LEAVE_SECONDS, os.kill, os.getpid(), signal.SIGTERM)
