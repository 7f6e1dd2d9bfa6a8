"""A service that does not mean well holds no client: a request and the whole of its answer have one limit."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from dpserve import Client, deadlines
from dpserve.errors import Unavailable

pytestmark = pytest.mark.slow
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
BODY = b'{"models": []}'


@contextmanager
def service(*parts: bytes, drop: bytes = b"", pause: float = 0.05) -> Iterator[str]:
    """Answers every connection with `parts`, and then with `drop` again and again, for 100 `pause`s at least."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer(line: socket.socket) -> None:
            with suppress(OSError), line:
                line.recv(9999)
                for part in parts:
                    line.sendall(part)
                for _ in range(100 if drop else 0):
                    line.sendall(drop)
                    time.sleep(pause)

        def serve() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=answer, args=(listening.accept()[0],), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize(
    ("parts", "drop"),
    [((), b"H"), ((HEAD,), b"X: y\r\n"), ((HEAD + b"Content-Length: 2000000\r\n\r\n",), b" "),
     ((HEAD + b"Transfer-Encoding: chunked\r\n\r\n",), b"1\r\n \r\n")],
    ids=["first line", "fields", "body", "chunks"],
)  # fmt: skip
def test_drop_by_drop_is_one_limit_for_the_whole(parts, drop):
    """Each drop comes within the limit of a silence, and there are drops for five seconds."""
    with service(*parts, drop=drop) as url, Client(url, "dps_x", timeout=0.5, retries=0) as client:
        with pytest.raises(Unavailable, match="ReadTimeout"):
            client.models()
        assert not client.ready()


def test_more_than_a_memory_holds_is_given_up(monkeypatch):
    monkeypatch.setattr(deadlines, "MOST", 1 << 20)
    many = HEAD + b"Content-Length: 999999999\r\n\r\n"
    with (
        service(many, drop=b" " * (1 << 20), pause=0) as url,
        Client(url, "dps_x", retries=0) as client,
        pytest.raises(Unavailable, match="ReadError"),
    ):
        client.models()


def test_what_comes_in_time_takes_longer_than_a_silence_may_last(monkeypatch):
    """Of as many bytes as this the limit is five seconds more, and each answer has its own."""
    monkeypatch.setattr(deadlines, "SLOWEST", 4)
    head = HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(BODY)

    parts = [head, *(BODY[at : at + 1] for at in range(len(BODY)))]
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            for _ in range(2):
                line, _ = listening.accept()
                with line:
                    line.recv(9999)
                    for part in parts:
                        line.sendall(part)
                        time.sleep(0.05)

        threading.Thread(target=serve, daemon=True).start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with Client(url, "dps_x", timeout=0.3, retries=0) as client:
            assert [client.models(), client.models()] == [[], []]
