"""What a client reads of a service's ledger: scope audit; checkpoint, consistency and trust with any."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from dpserve.errors import Unavailable, UnknownName
from dpserve.transport import AGAIN_SECONDS, Transport
from dpserve.types import Entry, Json


class LedgerReader:
    """A service that is asked over `_transport`, and its ledger."""

    _transport: Transport

    def ledger(self, after: int = 0) -> Iterator[Entry]:
        """Yield every entry from this index on."""
        while page := self._get("/v1/ledger", after=after)["entries"]:
            yield from (Entry(entry["index"], entry["body"]) for entry in page)
            after = page[-1]["index"] + 1

    def checkpoint(self, witnessed: bool = False) -> str:
        """Return the newest signed tree head, a C2SP note, or the newest that witnesses cosigned. Keep it."""
        return self._transport.answer("GET", "/v1/ledger/checkpoint", query={"witnessed": 1} if witnessed else {}).text

    def checkpoints(self) -> Iterator[tuple[int, str]]:
        """Yield every checkpoint that was ever signed: the size of its tree, and the note."""
        after = 0
        while page := self._get("/v1/ledger/checkpoints", after=after)["checkpoints"]:
            yield from ((head["size"], head["note"]) for head in page)
            after = page[-1]["size"] + 1

    def consistency(self, earlier: int, later: int | None = None) -> Json:
        """Return the proof (RFC 6962) that the tree of `later` entries, or the newest, begins with `earlier`."""
        return self._get("/v1/ledger/consistency", **{"from": earlier, "to": later})

    def proof(self, leaf: int, size: int | None = None) -> Json:
        """Return the proof that entry `leaf` is in the ledger: by the newest checkpoint, or in the tree of `size`."""
        return self._get("/v1/ledger/proof", leaf=leaf, size=size)

    def audit(self, seconds: float = 600.0) -> Json:
        """Ask for an audit of everything and wait for its result: `ok`, `entries`, `root`, `problems`. Raises
        Unavailable where none was made within `seconds`.
        """
        since, end = self._change("POST", "/v1/audits", again=True)["asked"], time.monotonic() + seconds
        while time.monotonic() < end:
            audit = self.last_audit()
            if audit is not None and audit["at"] >= since:
                return audit
            time.sleep(AGAIN_SECONDS)
        raise Unavailable(0, "timeout", f"no audit was made within {seconds:g} seconds; the server's log says why")

    def last_audit(self) -> Json | None:
        """Return the newest audit's result; None before the first."""
        try:
            return self._get("/v1/audits/last")
        except UnknownName:
            return None

    def trust(self) -> bytes:
        """Return the service's own `trust.json`: the keys that it signs with. Pin it once, and compare it later."""
        return self._transport.answer("GET", "/v1/trust").content

    def ask(self, method: str, path: str, body: Any = None, query: Json | None = None, again: bool = False) -> Json:
        """Ask a door by its method and path (/docs.json has them), and return its answer as it came.

        Args:
            method: GET, POST, PUT or DELETE.
            path: With the names in it.
            body: Its JSON; None where it takes none.
            query: Its fields; None stands for one that is left out.
            again: Whether it may be sent twice; a GET or a PUT may always.
        """
        again = again or method in ("GET", "PUT")
        return dict(self._transport.ask(method, path, again=again, body=body, query=query))

    def _get(self, path: str, **query: Any) -> Json:
        return dict(self._transport.ask("GET", path, again=True, query=query))

    def _post(self, path: str, body: Json) -> Json:
        """Send what may be sent twice: a submission has its key."""
        return self._change("POST", path, body, again=True)

    def _change(self, method: str, path: str, body: Json | None = None, again: bool = False) -> Json:
        return dict(self._transport.ask(method, path, again=again, body=body))
