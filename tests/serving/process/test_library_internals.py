"""What is used of libraries beyond what they promise is there, and does what it is used for.

A failure names the library, the version and what is gone. How the limits hold against real connections is in
test_abuse.py, and that a killed worker is replaced in test_service.py.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import socket
import time
from importlib.metadata import version

import pytest
from bentoml._internal.utils import circus as bentoml_circus
from circus.watcher import Watcher
from tornado.ioloop import IOLoop, PeriodicCallback
from uvicorn.config import HTTP_PROTOCOLS, Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from serving.process.workers import launch, library_internals
from serving.process.workers.library_internals import CHECK_SECONDS, LIBRARIES, Patient

# Name -> why it is needed.
FUNCTIONS = {
    "bentoml._internal.utils.circus:create_standalone_arbiter": "the supervisor is made by it",
    "_bentoml_impl.worker.service:main": "is what a serving process runs",
    "bentoml._internal.log:configure_server_logging": "would take the place of our logs",
    "tornado.ioloop:IOLoop.time": "is the clock by which the supervisor looks",
    "uvicorn.config:HTTP_PROTOCOLS": "names the protocol that a server uses",
    "uvicorn.protocols.http.httptools_impl:HttpToolsProtocol": "is subclassed",
    "uvicorn.protocols.http.httptools_impl:RequestResponseCycle.run_asgi": "is told of whole bodies",
    "uvicorn.protocols.http.httptools_impl:RequestResponseCycle.send": "sends what is not sent at once",
    "uvicorn.protocols.http.httptools_impl:STATUS_LINE": "begins an answer",
    "uvicorn.protocols.http.httptools_impl:HEADER_RE": "tells a field's name",
    "uvicorn.protocols.http.httptools_impl:HEADER_VALUE_RE": "tells a field's value",
    "uvicorn.middleware.proxy_headers:ProxyHeadersMiddleware": "stands around the application",
    **{
        f"uvicorn.protocols.http.httptools_impl:HttpToolsProtocol.{name}": why
        for name, why in {
            "connection_made": "begins to count the seconds",
            "connection_lost": "stops counting them",
            "data_received": "counts the bytes of a head",
            "on_message_begin": "says where a head begins",
            "on_header": "counts its fields",
            "on_headers_complete": "says where it ends",
            "shutdown": "says that the server closes",
            "send_400_response": "answers what is too long",
        }.items()
    },
}
ATTRIBUTES = ("loop", "transport", "cycle", "headers", "parser")  # of a connection, set by uvicorn


@pytest.mark.parametrize("library", LIBRARIES)
def test_version_is_the_one_that_was_tried(library):
    found = version(library)
    assert found == LIBRARIES[library], (
        f"{library} is {found}, tried with {LIBRARIES[library]}: where the other tests of this file, test_abuse.py and "
        f"test_service.py pass, say {found} in serving/process/workers/library_internals.py"
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", launch.OTHERS)
def test_what_a_server_loads_before_it_forks_is_there(name):
    importlib.import_module(name)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_used_is_there(name):
    module, _, path = name.partition(":")
    found = importlib.import_module(module)
    for part in path.split("."):
        assert hasattr(found, part), f"{name} is gone ({FUNCTIONS[name]}); the versions tried are {LIBRARIES}"
        found = getattr(found, part)


@pytest.fixture
def arbiter(monkeypatch):
    """A supervisor's, as `bentoml serve` makes one, also where install ran twice."""
    monkeypatch.setattr(IOLoop, "time", clock := IOLoop.time)  # is put back
    library_internals.install()
    library_internals.install()
    assert IOLoop.time is clock  # who is no supervisor keeps tornado's: Dask's client would wait for ever
    found = bentoml_circus.create_standalone_arbiter([Watcher("none", "true")])
    yield found
    found.ctrl.sys_hdl.stop()  # it took this process's signals
    found.context.destroy(0)


def test_supervisor_looks_as_often_as_it_is_told(arbiter):
    assert arbiter.check_delay == CHECK_SECONDS, "BentoML no longer hands check_delay on to circus's Arbiter"


def test_supervisor_makes_its_arbiter_after_the_service_was_imported():
    """`bentoml serve` loads the service first, and looks create_standalone_arbiter up when it starts the server."""
    import bentoml_cli.serve
    from _bentoml_impl.server.serving import serve_http

    source = inspect.getsource(bentoml_cli.serve)
    assert source.index("svc = load(") < source.index("serve_http(\n"), "the service is loaded too late"
    assert "import create_standalone_arbiter" in inspect.getsource(serve_http), "it is looked up at another time"


def test_servers_use_our_protocol():
    library_internals.install()
    assert HTTP_PROTOCOLS["auto"] == HTTP_PROTOCOLS["httptools"] == f"{library_internals.__name__}:Patient"
    config = Config(lambda: None)
    config.load()
    assert config.http_protocol_class is Patient, (
        "uvicorn takes its protocol from elsewhere than HTTP_PROTOCOLS['auto']"
    )


def test_connection_has_what_the_limits_look_at():
    async def connect():
        ours, theirs = socket.socketpair()
        config = Config(answer, http="httptools", lifespan="off")
        config.load()
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.connect_accepted_socket(
            lambda: HttpToolsProtocol(config, ServerState(), {}), ours
        )
        with theirs:
            for name in ATTRIBUTES:
                assert hasattr(protocol, name), f"HttpToolsProtocol.{name} is gone"
            assert protocol.cycle is None, "HttpToolsProtocol.cycle is not None before the first request"
            theirs.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            while protocol.cycle is None or not protocol.cycle.response_complete:
                await asyncio.sleep(0.01)
        transport.abort()

    async def answer(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    asyncio.run(asyncio.wait_for(connect(), 10))


def test_the_supervisor_looks_again_whatever_the_clock_is_set_to(arbiter, monkeypatch):
    """By the clock of the machine, set back by an hour, the next look would come an hour later."""
    looks, real = [], time.time

    async def watching():
        callback = PeriodicCallback(lambda: looks.append(1), 10)
        callback.start()
        for hours in (1, -1, 0):
            count = len(looks)
            monkeypatch.setattr(time, "time", lambda hours=hours: real() + 3600 * hours)
            for _ in range(500):
                await asyncio.sleep(0.01)
                if len(looks) > count + 1:
                    break
            assert len(looks) > count + 1, hours
        callback.stop()

    asyncio.run(watching())


@pytest.mark.slow
def test_request_on_its_way_when_the_server_closes_is_answered():
    """A connection that is kept is not reset under it; its answer says that it is the last."""

    async def closing():
        ours, theirs = socket.socketpair()
        config = Config(answer, http="httptools", lifespan="off")
        config.load()
        loop = asyncio.get_running_loop()
        _, protocol = await loop.connect_accepted_socket(lambda: Patient(config, ServerState(), {}), ours)
        theirs.setblocking(False)
        with theirs:
            await loop.sock_sendall(theirs, REQUEST)
            first = await loop.sock_recv(theirs, 1000)
            protocol.shutdown()
            await loop.sock_sendall(theirs, REQUEST)
            said = b"".join([part async for part in parts(loop, theirs)])
        assert (first[:12], b"connection: close" in first) == (b"HTTP/1.1 200", False)
        assert (said[:12], b"connection: close" in said) == (b"HTTP/1.1 200", True)

    async def idle():
        ours, theirs = socket.socketpair()
        config = Config(answer, http="httptools", lifespan="off")
        config.load()
        loop = asyncio.get_running_loop()
        _, protocol = await loop.connect_accepted_socket(lambda: Patient(config, ServerState(), {}), ours)
        theirs.setblocking(False)
        with theirs:
            protocol.shutdown()
            assert [part async for part in parts(loop, theirs)] == []

    asyncio.run(asyncio.wait_for(closing(), 10))
    asyncio.run(asyncio.wait_for(idle(), 10))


REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def answer(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


async def parts(loop, connection):
    while part := await loop.sock_recv(connection, 1000):
        yield part


def told(sent, app, front=None):
    """What a server of `app` writes to one connection, after each of `sent`, until it hangs up or there is no more."""

    async def connect():
        library_internals.install(front)
        ours, theirs = socket.socketpair()
        config = Config(app, http="auto", lifespan="off", proxy_headers=False)
        config.load()
        loop = asyncio.get_running_loop()
        _, protocol = await loop.connect_accepted_socket(lambda: Patient(config, ServerState(), {}), ours)
        reader, writer = await asyncio.open_connection(sock=theirs)
        found = []
        for part in sent:
            writer.write(part)
            await asyncio.sleep(0.02)
            if part is sent[-1]:
                while not ((protocol.cycle and protocol.cycle.response_complete) or protocol.transport.is_closing()):
                    await asyncio.sleep(0.01)
        protocol.transport.close()
        found = await reader.read()
        writer.close()
        return found

    try:
        return asyncio.run(asyncio.wait_for(connect(), 10))
    finally:
        library_internals.install()


def answering(name, headers=(), body=b"yes"):
    async def answer(scope, receive, send):
        message = await receive()
        while message.get("more_body"):
            message = await receive()
        length = (b"content-length", b"%d" % len(body))
        await send({"type": "http.response.start", "status": 200, "headers": [length, (b"x-by", name), *headers]})
        await send({"type": "http.response.body", "body": body})

    return answer


HEAD = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n"


def test_what_is_whole_and_quick_goes_to_the_front_alone():
    """Whole and of a quick path; one whose body comes later, and one of another path, go the long way; all answers
    are the same bytes."""
    app, front = answering(b"app"), answering(b"front")
    quick = told([HEAD % b"/predict" + b"{}"], app, front)
    assert quick == b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\nx-by: front\r\n\r\nyes"
    for slow in ([HEAD % b"/predict", b"{}"], [HEAD % b"/other" + b"{}"]):
        assert told(slow, app, front) == quick.replace(b"front", b"app")
    assert told([HEAD % b"/predict" + b"{}"], app) == quick.replace(b"front", b"app")


def test_no_field_of_an_answer_ends_its_head():
    """As uvicorn: such an answer is none."""
    found = told([HEAD % b"/predict" + b"{}"], answering(b"app", [(b"x-evil", b"a\r\nset-cookie: b")]))
    assert b"set-cookie" not in found
    assert b"yes" not in found


def test_long_answers_go_out_as_they_come():
    found = told([HEAD % b"/predict" + b"{}"], answering(b"app", body=b"z" * 100_000))
    assert found.endswith(b"\r\n\r\n" + b"z" * 100_000)
