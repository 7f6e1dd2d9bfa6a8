"""A job's progress as server-sent events (WHATWG HTML, 9.2): the whole job at each change of state or progress.

Streams end by themselves: at the job's end, when the server stops or is not ready, when the token is good no more, and
after STREAM_SECONDS at the latest. A browser then comes back by itself, naming the event that it saw last.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from accountant.home import local
from accountant.ledger.families.records import PUBLIC_STATES
from dpserve_verify.errors import DpserveError
from serving.http.routes import in_thread, state
from serving.process.config.places import Place, take_place

LOOK_SECONDS = 0.25
QUIET_SECONDS = 10.0  # without an event for so long, a comment: whoever hung up is noticed, and no proxy gives up
STREAM_SECONDS = 300.0
RETRY_MILLISECONDS = 1000
MAX_STREAMS = 64  # of a home on this machine; each looks at the ledger's index four times a second
MAX_STREAMS_OF_CALLER = 16  # of one caller, so that nobody keeps all others out
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # nginx would keep it back


@dataclass(frozen=True)
class Event:
    """An event of a job's stream.

    name: its id, for Last-Event-ID.
    job: as GET /v1/jobs/{job} has it.
    placing: it is issued, and what it released is not stored yet.
    """

    name: str
    job: Mapping[str, Any]
    placing: bool = False

    @property
    def last(self) -> bool:
        """Return whether the job is over, and what it released is stored."""
        return not PUBLIC_STATES[self.job["state"]].open and not self.placing

    def encode(self) -> bytes:
        """Return the event's bytes on the wire."""
        kind = b"end" if self.last else b"job"
        return b"id: %b\nevent: %b\ndata: %b\n\n" % (self.name.encode(), kind, orjson.dumps(self.job))


Look = Callable[[str | None], Awaitable[Event | None]]  # what is new to one who saw the event of that name


class _Streams:
    """Watch of the signals that stop this worker."""

    def __init__(self) -> None:
        self.stopping, self._listens = False, False

    def listen(self) -> None:
        """Handle the signals that stop the server, which would otherwise wait for open streams until it is killed.
        Earlier handlers are called too.
        """
        if self._listens or threading.current_thread() is not threading.main_thread():
            return
        self._listens = True
        for number in (signal.SIGTERM, signal.SIGINT):
            before = signal.getsignal(number)
            if callable(before):
                signal.signal(number, self._also(before))

    def _also(self, before: Callable[[int, FrameType | None], Any]) -> Callable[[int, FrameType | None], Any]:
        def heard(number: int, frame: FrameType | None) -> Any:
            self.stopping = True
            return before(number, frame)

        return heard


STREAMS = _Streams()


async def events(request: Request, who: str, look: Look, is_good: Callable[[], bool]) -> Response:
    """Stream events to `who`, as long as `is_good()`. 204, which tells a browser not to reconnect, where it saw the
    last one. TooManyRequests where `who`, or all callers together, have as many streams as they may.
    """
    first, seen = await look(None), request.headers.get("last-event-id")
    if first is not None and first.last and first.name == seen:
        return Response(status_code=204)
    if request.method == "HEAD":
        return Response(media_type="text/event-stream", headers=HEADERS)
    folder = local(state(request).home.path) / "run" / "streams"
    place = await in_thread(take_place, folder, who, "streams of events", MAX_STREAMS_OF_CALLER, MAX_STREAMS)
    STREAMS.listen()
    return StreamingResponse(_stream(seen, place, look, is_good), media_type="text/event-stream", headers=HEADERS)


async def _stream(seen: str | None, place: Place, look: Look, is_good: Callable[[], bool]) -> AsyncIterator[bytes]:
    try:
        yield b"retry: %d\n\n" % RETRY_MILLISECONDS
        end = last_sent = time.monotonic()
        end += STREAM_SECONDS
        while not STREAMS.stopping and is_good() and time.monotonic() < end:
            event = await look(seen)
            if event is not None:
                yield event.encode()
                seen, last_sent = event.name, time.monotonic()
                if event.last:
                    return
            elif time.monotonic() - last_sent > QUIET_SECONDS:
                yield b": still here\n\n"
                last_sent = time.monotonic()
            await asyncio.sleep(LOOK_SECONDS)
    except DpserveError:
        return  # what is wrong is said to whoever comes back
    finally:
        place.close()
