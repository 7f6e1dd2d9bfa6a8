"""The limits of a connection, on uvicorn's own class. How they hold against real clients is in test_abuse.py."""

from __future__ import annotations

import asyncio
import json
import socket
import time

import pytest
from starlette.requests import Request
from uvicorn.config import Config
from uvicorn.server import ServerState

from dpserve_verify.errors import DpserveError
from serving.http import connections
from serving.http.connections import HEAD_BYTES, Connections, LimitedProtocol
from serving.process.watch.metrics import WAITS
from serving.wire import request_bodies
from serving.wire.errors import error_response
from serving.wire.request_bodies import ARRIVAL
from serving.wire.work_time import Lateness


def answers(*sent: bytes, wait: bool = False) -> tuple[list[tuple[list, bool]], bytes]:
    """What one connection is sent, part by part -> (of each request its headers and whether it had come whole, all that
    the server wrote). `wait`: for the server to hang up.
    """
    seen = []

    async def app(scope, receive, send):
        seen.append((scope["headers"], scope["state"][ARRIVAL].is_whole))
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async def connect():
        ours, theirs = socket.socketpair()
        config = Config(Connections(app), http=LimitedProtocol, ws="none", lifespan="off", log_config=None)
        config.load()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_accepted_socket(lambda: LimitedProtocol(config, ServerState(), {}), ours)
        reader, writer = await asyncio.open_connection(sock=theirs)
        for part in sent:
            writer.write(part)
            await asyncio.sleep(0.05)
        if not wait:
            transport.close()
        found = await reader.read()
        writer.close()
        return found

    said = asyncio.run(asyncio.wait_for(connect(), 60))
    return seen, said


HEAD = b"POST / HTTP/1.1\r\nHost: x\r\n"


def test_a_request_says_whether_its_body_came_with_its_head():
    length = HEAD + b"Content-Length: 2\r\n\r\n"
    ((_, whole),), said = answers(length + b"{}")
    assert (whole, said[:12]) == (True, b"HTTP/1.1 200")
    ((_, whole),), said = answers(length, b"{}")
    assert (whole, said[:12]) == (False, b"HTTP/1.1 200")


def test_a_request_in_two_parts_does_not_pass_for_the_one_before_it():
    length = HEAD + b"Content-Length: 2\r\n\r\n"
    seen, _ = answers(length + b"{}", length, b"{}")
    assert [whole for _, whole in seen] == [True, False]


def test_a_field_behind_a_body_is_dropped():
    ((headers, _),), _ = answers(HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\nAuthorization: Bearer x\r\n\r\n")
    assert [name for name, _ in headers] == [b"host", b"transfer-encoding"]


def test_a_body_in_a_coding_that_nobody_undoes_is_refused():
    """As what it says, it would be read otherwise by a proxy in front. A blank behind a length is none of it."""
    for fields in (b"gzip, chunked", b"gzip,chunked", b"identity, chunked", b"gzip\r\nTransfer-Encoding: chunked"):
        seen, said = answers(HEAD + b"Transfer-Encoding: " + fields + b"\r\n\r\n2\r\n{}\r\n0\r\n\r\n", wait=True)
        assert (seen, said[:12]) == ([], b"HTTP/1.1 400"), fields
    for fields in (b"chunked", b"Chunked ", b"\tchunked"):
        _, said = answers(HEAD + b"Transfer-Encoding: " + fields + b"\r\n\r\n2\r\n{}\r\n0\r\n\r\n")
        assert said[:12] == b"HTTP/1.1 200"


def test_a_head_that_is_too_long_is_given_up():
    field = b"X: " + b"a" * 1000 + b"\r\n"
    seen, said = answers(HEAD, *[field * (HEAD_BYTES // 4 // len(field))] * 5, wait=True)
    assert (seen, said) == ([], b"")


@pytest.mark.parametrize("sent", [b"", HEAD, b"\r\n", HEAD + b"\r\n" + HEAD])
def test_a_connection_without_a_request_ends(monkeypatch, sent):
    monkeypatch.setattr(connections, "WAIT_SECONDS", 0.1)
    seen, said = answers(sent, wait=True)
    assert (len(seen), said[:12]) == ((1, b"HTTP/1.1 200") if b"\r\n\r\n" in sent else (0, b""))


def test_how_long_a_request_waits_before_it_is_begun_with_is_counted():
    """Two come at once, and the first keeps the event loop."""

    async def app(_scope, _receive, send):
        time.sleep(0.3)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async def both():
        config = Config(Connections(app), http=LimitedProtocol, ws="none", lifespan="off", log_config=None)
        config.load()
        loop, pairs = asyncio.get_running_loop(), [socket.socketpair() for _ in range(2)]
        for ours, _ in pairs:
            await loop.connect_accepted_socket(lambda: LimitedProtocol(config, ServerState(), {}), ours)
        readers = [await asyncio.open_connection(sock=theirs) for _, theirs in pairs]
        for _, writer in readers:
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        for reader, writer in readers:
            assert (await reader.read(12)) == b"HTTP/1.1 200"
            writer.close()

    before = counts()
    asyncio.run(asyncio.wait_for(both(), 60))
    found = {bound: count - before[bound] for bound, count in counts().items()}
    assert found["+Inf"] == 2
    assert found["0.25"] < 2


def counts() -> dict[str, float]:
    """Requests that waited at most so many seconds."""
    (family,) = WAITS.collect()
    return {line.labels["le"]: line.value for line in family.samples if line.name.endswith("_bucket")}


def test_a_server_that_was_late_blames_no_body(monkeypatch):
    """The body may have come while the event loop stood still."""
    monkeypatch.setattr(request_bodies, "FIRST_SECONDS", 0.2)

    async def ask(late: Lateness, stands: float):
        monkeypatch.setattr(request_bodies, "LATE", late)
        watching = asyncio.create_task(late.watch(noted.append))
        await asyncio.sleep(0)

        async def receive():
            time.sleep(stands)
            await asyncio.sleep(60)

        with pytest.raises(DpserveError) as refused:
            await request_bodies.read_body(Request({"type": "http", "headers": []}, receive), 100)
        await asyncio.sleep(0.05)
        watching.cancel()
        return error_response(refused.value)

    noted: list[float] = []
    on_time = asyncio.run(ask(Lateness(lambda: 0.0), 0.0))
    assert (on_time.status_code, json.loads(on_time.body)["error"]["code"]) == (408, "request_timeout")
    noted.clear()
    answer = asyncio.run(ask(Lateness(), request_bodies.LATE_SECONDS + 0.3))
    assert (answer.status_code, json.loads(answer.body)["error"]["code"]) == (503, "overloaded")
    assert answer.headers["Retry-After"] == "1"
    assert max(noted) > 1
