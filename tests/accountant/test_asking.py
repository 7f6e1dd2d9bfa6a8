"""Asking a server that does not mean well: what it costs in time and bytes, and what is refused."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

import pytest
from https import certificate

from accountant.system.bounded_http import exchange
from dpserve_verify.errors import LedgerUnavailable

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: Text/Plain; charset=x\r\n"


@contextmanager
def server(first: bytes, drop: bytes, pause: float = 0.02, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Answers `first`, then `drop` again and again."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            with suppress(OSError):
                line, _ = listening.accept()
                with tls.wrap_socket(line, server_side=True) if tls else line as talk:
                    talk.recv(9999)
                    talk.sendall(first)
                    while drop:
                        talk.sendall(drop)
                        time.sleep(pause)

        threading.Thread(target=answer, daemon=True).start()
        yield f"http{'s' if tls else ''}://127.0.0.1:{listening.getsockname()[1]}"


def ask(url: str, seconds: float = 0.6, most: int = 1000, trust: ssl.SSLContext | None = None):
    return exchange(urlsplit(url), "GET", "/x", None, {"Connection": "close"}, seconds, most, trust)


@pytest.mark.parametrize(
    ("first", "drop"),
    [
        (HEAD + b"Content-Length: 2000000\r\n\r\n", b"x"),
        (HEAD + b"\r\n", b"x"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (HEAD + b"X: ", b"a"),
        (b"HTTP/1", b"1"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
)
def test_drop_by_drop_is_one_limit_for_the_whole(first, drop):
    """On a socket whose limit is for each byte alone, none of these would ever end."""
    with server(first, drop) as url, pytest.raises(LedgerUnavailable, match="in time"):
        ask(url, most=1 << 21)


def test_the_limit_holds_over_tls(tmp_path):
    key, pem = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, key)
    trust = ssl.create_default_context(cafile=str(pem))
    with server(HEAD + b"Content-Length: 3\r\n\r\nyes", b"", tls=context) as url:
        reply = ask(url, 20.0, trust=trust)
        assert (reply.status, reply.kind, reply.body) == (200, "text/plain", b"yes")
    slow = server(HEAD + b"Content-Length: 2000000\r\n\r\n", b"x", tls=context)
    with slow as url, pytest.raises(LedgerUnavailable, match="in time"):
        ask(url, trust=trust, most=1 << 21)
    with server(HEAD, b"", tls=context) as url, pytest.raises(LedgerUnavailable, match="no answer"):
        ask(url, 20.0)  # a certificate of nobody that is trusted


def test_bytes_are_bounded_and_refusals_hold_none_of_the_servers_words():
    large = server(HEAD + b"Content-Length: 1001\r\n\r\n" + b"x" * 1001, b"")
    with large as url, pytest.raises(LedgerUnavailable, match="more than 1000 bytes"):
        ask(url, 20.0)
    for words in (b"SSH-2.0 \x1b[2J\r\n", b"HTTP/1.1 abc \x1b[2J\r\n\r\n", HEAD + b"Content-Length: 9\r\n\r\nhalf"):
        with server(words, b"") as url, pytest.raises(LedgerUnavailable, match=r"^no answer \(\w+\)$"):
            ask(url, 20.0)
    with pytest.raises(LedgerUnavailable, match="no answer"):
        ask("http://127.0.0.1:1")
    with pytest.raises(LedgerUnavailable, match="no answer"):
        ask("http://" + "x" * 300 + ".example")
