"""A witness over HTTP for tests: small, but with all that c2sp.org/tlog-witness asks of `add-checkpoint`.

It knows logs by origin and verifier key, remembers in a file the newest checkpoint that it signed of each, and answers
400, 403, 404, 409 and 422 as the specification says. `Stub` is for witnesses that misbehave.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from dpserve_verify.errors import DpserveError
from dpserve_verify.formats import merkle
from dpserve_verify.formats.canonical import decode_base64, encode_base64
from dpserve_verify.keys import verifier_keys
from dpserve_verify.log import notes

Answer = tuple[int, str, bytes]
LINES = "text/plain; charset=utf-8"
REQUEST = re.compile(r"old (0|[1-9][0-9]{0,18})\n((?:[A-Za-z0-9+/=]+\n){0,63})\n(.*)", re.ASCII | re.DOTALL)
LIMIT = 1_000_000


def cosignature_line(key: Ed25519PrivateKey, name: str, text: str, now: int) -> str:
    """Written from the specification, without the code under test."""
    public = key.public_key().public_bytes_raw()
    key_id = hashlib.sha256(name.encode() + b"\n\x04" + public).digest()[:4]
    signature = key.sign(f"cosignature/v1\ntime {now}\n{text}".encode())
    return f"\u2014 {name} {encode_base64(key_id + now.to_bytes(8, 'big') + signature)}\n"


def vkey(key: Ed25519PrivateKey, name: str) -> str:
    material = b"\x04" + key.public_key().public_bytes_raw()
    return f"{name}+{hashlib.sha256(name.encode() + bytes([10]) + material).hexdigest()[:8]}+{encode_base64(material)}"


class Server:
    """An HTTP server on the loopback interface, in threads. Give it to `with`."""

    def __init__(self, respond: Callable[[BaseHTTPRequestHandler], None]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                with contextlib.suppress(ConnectionError):  # the client hung up, as it may
                    respond(self)

            def do_GET(self) -> None:
                self.do_POST()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Any:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class Witness(Server):
    """`twist` may change an answer before it is sent."""

    def __init__(
        self, name: str, folder: Path, logs: list[str], twist: Callable[[Answer], Answer] | None = None
    ) -> None:
        super().__init__(self._respond)
        self.name, self.key = name, Ed25519PrivateKey.generate()
        self.asked: list[int] = []  # statuses, in order
        self._logs = dict(map(verifier_keys.parse_verifier_key, logs))
        self._state, self._lock, self._twist = folder / f"{name.replace('/', '_')}.json", threading.Lock(), twist

    @property
    def vkey(self) -> str:
        return vkey(self.key, self.name)

    def line(self, url: str | None = None) -> str:
        """Its line of a policy."""
        return f"witness {self.name} {self.vkey} {url or self.url}\n"

    def seen(self, origin: str) -> dict[str, Any]:
        """The newest checkpoint that it signed: size, root, note."""
        known = json.loads(self._state.read_text()) if self._state.exists() else {}
        return known.get(origin, {"size": 0, "root": encode_base64(merkle.EMPTY_ROOT), "note": ""})

    def _respond(self, handler: BaseHTTPRequestHandler) -> None:
        length = int(handler.headers.get("Content-Length", 0))
        body = handler.rfile.read(min(length, LIMIT))
        status, kind, answer = self._get(handler.path) if handler.command == "GET" else self._post(handler.path, body)
        if self._twist:
            status, kind, answer = self._twist((status, kind, answer))
        self.asked.append(status)
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(answer)))
        handler.end_headers()
        handler.wfile.write(answer)

    def _get(self, path: str) -> Answer:
        for origin in self._logs:
            if path == f"/{hashlib.sha256(origin.encode()).hexdigest()}/checkpoint" and self.seen(origin)["note"]:
                return 200, LINES, self.seen(origin)["note"].encode()
        return 404, LINES, b""

    def _post(self, path: str, body: bytes) -> Answer:
        found = REQUEST.fullmatch(body.decode())
        if path != "/add-checkpoint" or not found:
            return 400, LINES, b""
        old, proof, note = int(found[1]), [decode_base64(each) for each in found[2].split()], found[3]
        head = notes.parse_checkpoint(note)
        if head.origin not in self._logs:
            return 404, LINES, b""
        try:
            notes.verify_checkpoint(note, head.origin, self._logs[head.origin])
        except DpserveError:
            return 403, LINES, b""
        with self._lock:  # compare and remember in one step
            return self._consider(old, proof, note, head)

    def _consider(self, old: int, proof: list[bytes], note: str, head: notes.Checkpoint) -> Answer:
        known = self.seen(head.origin)
        if old > head.size:
            return 400, LINES, b""
        if old != known["size"]:
            return 409, "text/x.tlog.size", f"{known['size']}\n".encode()
        if old == head.size and known["root"] != encode_base64(head.root):
            return 409, LINES, b""
        try:
            merkle.verify_consistency(old, head.size, proof, decode_base64(known["root"]), head.root)
        except DpserveError:
            return 422, LINES, b""
        text = notes.parse_note(note).text
        line = cosignature_line(self.key, self.name, text, int(time.time()))
        self._remember(head, f"{note}{line}")
        return 200, LINES, line.encode()

    def _remember(self, head: notes.Checkpoint, note: str) -> None:
        known = json.loads(self._state.read_text()) if self._state.exists() else {}
        known[head.origin] = {"size": head.size, "root": encode_base64(head.root), "note": note}
        new = self._state.with_suffix(".new")
        new.write_text(json.dumps(known))
        new.replace(self._state)
