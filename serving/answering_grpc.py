"""The process of `dpserve serve --grpc`: the open inference protocol over gRPC, answered by the doors of REST in it.

A call is one request of `serving.rest.v2` (`serving.rest.v2_grpc`), with the token that its metadata bring. No
connection lies between the two: the doors, and what they know, are here as in a process that serves HTTP.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from dpserve_verify.errors import DpserveError, InputError
from serving.answering import ANSWER_SECONDS, Orphan, beat_unless_lost
from serving.app import make_app
from serving.http.routes import Doors
from serving.process.config.healthy import BEAT_SECONDS, Heartbeat
from serving.process.config.startup import Listening
from serving.process.state import ServingState
from serving.process.tokens import Bearer, bearer
from serving.process.watch.logs import set_up
from serving.rest.models import AT_ONCE, PREDICT_BYTES
from serving.rest.v2_grpc import METHODS, OPEN, DoorReply, DoorRequest, message_of, request_of
from serving.wire.errors import SlowBody, TooManyRequests, error_response, in_protocol
from serving.wire.grpc_messages import SERVICE
from serving.wire.request_bodies import ARRIVAL, BODY_SECONDS, Arrival
from serving.wire.work_time import in_turn

LOG = logging.getLogger("dpserve.serving")
CALLS, STREAMS = 128, 64  # at a time: of the process, and of one connection
ARRIVING = 4  # messages of one caller that are read at a time, each of PREDICT_BYTES at most
IDLE_MILLISECONDS, HANDSHAKE_MILLISECONDS = 300_000, 5_000
OPTIONS = (
    ("grpc.max_receive_message_length", PREDICT_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_concurrent_streams", STREAMS),
    ("grpc.max_connection_idle_ms", IDLE_MILLISECONDS),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_MILLISECONDS),
    ("grpc.so_reuseport", 1),  # the next `dpserve serve` listens before this one ends
)
HEADERS = {"authorization", "traceparent", "tracestate"}  # of the metadata: what a door asks for
CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    415: grpc.StatusCode.INVALID_ARGUMENT,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
Heads = list[tuple[bytes, bytes]]


def answer(listening: Listening, place: Path, heartbeat: Heartbeat) -> None:
    """Answer calls until told to stop (SIGTERM), or nobody is left who would say so. The loop that answers beats."""
    set_up()
    asyncio.run(_answer(listening, place, heartbeat))


async def _answer(listening: Listening, place: Path, heartbeat: Heartbeat) -> None:
    app = make_app()
    serving: ServingState = app.state.serving
    calls = Calls(Doors(app, ours=app), serving)
    server = grpc.aio.server(options=OPTIONS, maximum_concurrent_rpcs=CALLS)
    handlers = {
        name: grpc.stream_unary_rpc_method_handler(partial(calls.answer, name)) for name in METHODS
    }  # on the wire as one of a single message, which waits to be asked for
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    stopping, orphan = asyncio.Event(), Orphan(place)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with serving.watching():
        listen(server, listening)
        await server.start()
        while not stopping.is_set() and not orphan.is_over():
            beat_unless_lost(heartbeat)
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), BEAT_SECONDS)
        await server.stop(ANSWER_SECONDS)


def listen(server: Any, listening: Listening) -> None:
    """Have the server listen where REST does, at a port of its own, under the same certificate."""
    address = f"[{listening.host}]:{listening.grpc}" if ":" in listening.host else f"{listening.host}:{listening.grpc}"
    if listening.tls is None:
        server.add_insecure_port(address)
        return
    pair = listening.tls.key.read_bytes(), listening.tls.certificate.read_bytes()
    server.add_secure_port(address, grpc.ssl_server_credentials([pair]))


class Calls:
    """Answers calls by the doors of REST."""

    def __init__(self, doors: Doors, serving: ServingState) -> None:
        self._doors, self._serving = doors, serving
        self._arriving: dict[str, asyncio.Semaphore] = defaultdict(partial(asyncio.Semaphore, ARRIVING))
        self._waiting = Counter[str]()  # calls of each caller whose message is not there yet
        self._tasks = set[asyncio.Task[DoorReply]]()

    async def answer(self, method: str, messages: AsyncIterator[bytes], context: Any) -> bytes:
        """Answer a call; its message is read once its token is known. What was begun is done to its end, also where the
        caller gives up: its line in the trail is written.
        """
        metadata = context.invocation_metadata() or ()
        heads = [(key.encode(), value.encode()) for key, value in metadata if key in HEADERS]
        try:
            task = asyncio.ensure_future(self._ask(await self._request_of_call(method, messages, heads), heads))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            reply = await asyncio.shield(task)
            message = message_of(method, reply)
        except Exception as error:  # gRPC would tell the caller what it was
            refusal, message = in_protocol(error_response(error)), None
            reply = DoorReply(refusal.status_code, dict(refusal.raw_headers), bytes(refusal.body))
        if message is None:
            await _refuse(context, reply)
        return message or b""

    async def _request_of_call(self, method: str, messages: AsyncIterator[bytes], heads: Heads) -> DoorRequest:
        if method in OPEN:
            return request_of(method, b"")
        known = await self._known(heads)
        if known is None:
            return DoorRequest("GET", "/v2")  # whose door says so, as to everybody without a token
        caller = known.access.principal
        if self._waiting[caller] >= CALLS // 2:
            raise TooManyRequests(f"calls: {CALLS // 2} of yours are being read; ask again in 1 s", retry_after=1)
        self._waiting[caller] += 1
        try:
            async with asyncio.timeout(BODY_SECONDS), self._arriving[caller]:
                raw = await anext(messages)
        except StopAsyncIteration:
            raise InputError("message: none came") from None
        except TimeoutError:
            raise SlowBody(f"message: did not arrive within {BODY_SECONDS:g} seconds") from None
        finally:
            self._waiting[caller] -= 1
        if len(raw) > AT_ONCE:
            return await in_turn(caller, request_of, method, raw)
        return request_of(method, raw)

    async def _known(self, heads: Heads) -> Bearer | None:
        secret = bearer(heads)
        if secret is None or self._serving.problem:
            return None
        try:
            return await self._serving.admit(secret)
        except DpserveError:  # which the door says
            return None

    async def _ask(self, request: DoorRequest, heads: Heads) -> DoorReply:
        """Ask a door of REST, as a server of HTTP does."""
        arrival = Arrival()
        arrival.is_whole = True
        headers = [(b"host", b"grpc"), (b"content-type", b"application/octet-stream"), *request.headers, *heads]
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http", "method": request.verb,
            "path": request.path, "raw_path": b"", "query_string": b"", "root_path": "", "headers": headers,
            "client": None, "server": None, "state": {ARRIVAL: arrival},
        }  # fmt: skip
        begun: dict[str, Any] = {}
        parts: list[bytes] = []

        async def receive() -> dict[str, Any]:
            if isinstance(request.body, DpserveError):
                raise request.body
            return {"type": "http.request", "body": request.body, "more_body": False}

        async def send(message: Mapping[str, Any]) -> None:
            begun.update(message if message["type"] == "http.response.start" else {})
            parts.append(message.get("body", b""))

        await self._doors(scope, receive, send)
        return DoorReply(begun["status"], dict(begun["headers"]), b"".join(parts))


async def _refuse(context: Any, reply: DoorReply) -> None:
    """End a call by the status that stands for REST's; its code, and how long to wait, are trailing metadata."""
    error = reply.json()
    trailing = [("dpserve-code", error["code"])]
    if b"retry-after" in reply.headers:
        trailing.append(("retry-after", reply.headers[b"retry-after"].decode()))
    code = CODES.get(reply.status, grpc.StatusCode.INTERNAL)
    await context.abort(code, error["error"], tuple(trailing))
