"""A connection goes on where the process that answered was killed: who asked for a prediction sees nothing of it."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import time
from collections import Counter
from contextlib import asynccontextmanager
from threading import Event, Thread

import httpx
import psutil
import pytest
import uvicorn
from small_home import PATIENCE, adult_home, records, serving, until
from uvicorn.server import ServerState

from serving.http.connections import SLOTS, Connections, LimitedProtocol, connection_of
from serving.process.config.slots import ROOM, Slots
from training.jobs import job
from training.requests import JobRequest

HEAD = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n"
WHOLE, ANSWER = HEAD + b"body", b"HTTP/1.1 204 No Content\r\n\r\n"


class App:
    """Answers when it is told to; may be asked again where that is said."""

    def __init__(self, may: bool) -> None:
        self.may, self.go, self.begun, self.started, self.rest = (
            may,
            asyncio.Event(),
            0,
            asyncio.Event(),
            asyncio.Event(),
        )

    async def __call__(self, scope, receive, send):
        connection = connection_of(scope)
        self.begun += 1
        if self.may:
            connection.may_repeat()
        self.started.set()
        await self.go.wait()
        connection.write_answer()
        await send({"type": "http.response.start", "status": 204})
        await self.rest.wait()
        await send({"type": "http.response.body"})


@asynccontextmanager
async def connection(app, asked=b""):
    """A client of a connection over a socket, and what a keeper would send on of it now."""
    ours, theirs = socket.socketpair()
    number, slots = ours.fileno(), Slots()
    config = uvicorn.Config(Connections(app), log_config=None)
    config.load()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_accepted_socket(
        lambda: LimitedProtocol(config, ServerState(), {SLOTS: slots}, loop, asked), ours
    )

    def goes_on():
        found = list(slots.rescue())
        assert all(file == transport.get_extra_info("socket").fileno() for file, _ in found), number
        return [data for _, data in found]

    theirs.setblocking(False)
    yield theirs, goes_on
    transport.abort()
    await asyncio.sleep(0.01)
    assert goes_on() == []
    theirs.close()


async def send(client, data):
    await asyncio.get_running_loop().sock_sendall(client, data)
    await asyncio.sleep(0.02)


@pytest.mark.parametrize("may", [True, False])
def test_what_goes_on_is_what_nothing_was_done_for_or_may_be_done_twice(may):
    async def story():
        app = App(may)
        async with connection(app) as (client, goes_on):
            assert goes_on() == [b""]
            await send(client, HEAD[:20])
            assert goes_on() == [HEAD[:20]]
            await send(client, HEAD[20:] + b"bo")
            assert goes_on() == ([HEAD + b"bo"] if may else [])
            await send(client, b"dy")
            assert goes_on() == ([WHOLE] if may else [])
            app.go.set()
            await asyncio.sleep(0.02)
            assert goes_on() == []  # half an answer
            app.rest.set()
            await asyncio.sleep(0.02)
            assert goes_on() == [b""]

    asyncio.run(story())


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(WHOLE + WHOLE, id="the second begins before the first is answered"),
        pytest.param(WHOLE + b"P", id="a letter of the second"),
        pytest.param(HEAD.replace(b"Content-Length: 4", b"Transfer-Encoding: chunked") + b"4\r\nbody\r\n", id="parts"),
        pytest.param(HEAD.replace(b" 4", b" %d" % ROOM) + bytes(ROOM - len(HEAD)), id="too large"),
    ],
)
def test_what_does_not_go_on(sent):
    async def story():
        async with connection(App(True)) as (client, goes_on):
            await send(client, sent)
            assert goes_on() == []

    asyncio.run(story())


def test_as_much_as_there_is_room_for():
    async def story():
        async with connection(App(True)) as (client, goes_on):
            head = HEAD.replace(b" 4", b" %d" % ROOM)
            await send(client, head)
            await send(client, bytes(ROOM - len(head)))
            assert [len(each) for each in goes_on()] == [ROOM]

    asyncio.run(story())


def test_what_ended_a_process_goes_on_once():
    """It may be what ended it; the next request of that connection is another one."""

    async def story():
        app = App(True)
        app.rest.set()
        async with connection(app, WHOLE) as (client, goes_on):
            await app.started.wait()
            assert goes_on() == []
            app.go.set()
            await asyncio.sleep(0.02)
            assert await asyncio.get_running_loop().sock_recv(client, 1000) == ANSWER
            app.go.clear()
            await send(client, WHOLE)
            assert (app.begun, goes_on()) == (2, [WHOLE])

    asyncio.run(story())


def test_an_answer_before_the_whole_request_is_no_rest():
    """What is left of the body is not the next request."""

    async def story():
        app = App(True)
        app.go.set()
        app.rest.set()
        async with connection(app) as (client, goes_on):
            await send(client, HEAD + b"bo")
            await send(client, b"dy")
            assert (app.begun, goes_on()) == (1, [])

    asyncio.run(story())


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    home = adult_home(tmp_path_factory.mktemp("rescued"), 2)
    job.train(home, JobRequest("adult", "lazybb", "0.5", parameters={"rounds": 5}, model="adult"), by="test")
    with serving(home.path, DPSERVE_JOB_WORKERS="0") as it:
        yield it


def request(server):
    """A prediction as its bytes."""
    body = json.dumps({"model": "adult", "records": records(1)}).encode()
    head = ["POST /predict HTTP/1.1", "Host: here", f"Authorization: Bearer {server.tokens['predict']}"]
    head += ["Content-Type: application/json", f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(head).encode() + body


def status(line):
    """The status of the next answer; the end of the connection is none."""
    with line.makefile("rb") as answer:
        head = list(iter(answer.readline, b"\r\n"))
        length = next(int(each.split(b":")[1]) for each in head if each.lower().startswith(b"content-length:"))
        assert len(answer.read(length)) == length
        return int(head[0].split()[1])


def who_has(server, line):
    """The serving process that has the other end; where it has gone on, no other has."""
    ends = {
        each: [other.raddr.port for other in each.net_connections() if other.raddr]
        for each in server.processes("dpserve-serving")
    }
    (found,) = [each for each, ports in ends.items() if line.getsockname()[1] in ports]
    return found


def rests(process):
    """Whether it waits for what comes: before, an answer that was read here may not be over there."""
    return all(process.status() == psutil.STATUS_SLEEPING and time.sleep(0.01) is None for _ in range(3))


def keepers(process):
    return [each for each in process.children() if each.name() == "dpserve-keeper"]


@pytest.mark.server
def test_a_connection_goes_on_whatever_of_its_request_had_come(server):
    """Nothing, half the head, half the body; and all of it where nobody had read it."""
    whole = request(server)
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as line:
        for sent in (0, 30, whole.index(b"\r\n\r\n") + 20, len(whole)):
            line.sendall(whole)
            assert status(line) == 200
            process = who_has(server, line)
            until(lambda process=process: keepers(process) and rests(process), "it has a keeper, and rests")
            if sent == len(whole):
                process.send_signal(signal.SIGSTOP)
            line.sendall(whole[:sent])
            process.kill()
            psutil.wait_procs([process], timeout=PATIENCE)
            line.sendall(whole[sent:])
            assert status(line) == 200, sent
            assert who_has(server, line) != process


@pytest.mark.server
def test_a_keeper_ends_with_whom_it_keeps_and_who_lost_it_is_replaced(server):
    first, second = server.processes("dpserve-serving")
    kept = [*until(lambda: keepers(first), "it has a keeper"), *until(lambda: keepers(second), "it has a keeper")]
    assert len(kept) == 2
    kept[0].kill()
    second.kill()
    _, alive = psutil.wait_procs([first, second, *kept], timeout=PATIENCE)
    assert alive == []
    until(lambda: len([each for one in server.processes("dpserve-serving") for each in keepers(one)]) == 2, "each has")


@pytest.mark.server
def test_hardly_a_prediction_fails_where_those_who_answer_are_killed(server):
    """Four clients keep their connections, about two to a process: of six that are killed twelve requests are lost
    without keepers, and with them only what was answered in part at that moment. Of 36 that could be, none was (three
    runs): at most one in twelve is lost, by 95 %, and then six of twelve once in 5,000 runs; of nine lost in ten,
    fewer than six are once in 20,000.
    """
    answers, over = Counter(), Event()

    def ask():
        headers = {"Authorization": f"Bearer {server.tokens['predict']}"}
        with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", headers=headers, timeout=PATIENCE) as client:
            while not over.wait(0.005):
                try:
                    answers[client.post("/predict", json={"model": "adult", "records": records(1)}).status_code] += 1
                except httpx.TransportError as error:
                    answers[repr(error)] += 1

    threads = [Thread(target=ask) for _ in range(4)]
    for each in threads:
        each.start()
    for _ in range(6):
        old = server.processes("dpserve-serving")
        least = answers[200] + 60
        until(lambda least=least: answers[200] >= least, "they answer")
        old[0].kill()
        until(lambda old=old: len({*server.processes("dpserve-serving")} - {*old}) == 1, "another is in its place")
    over.set()
    for each in threads:
        each.join()
    assert answers.total() - answers[200] < 6, answers  # without: twelve
