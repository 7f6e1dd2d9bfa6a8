"""What of a service is there to be checked: entries, checkpoints, proofs, keys, and the files of models."""

from __future__ import annotations

import time
from collections.abc import Iterator

from dpserve.errors import Unavailable, UnknownName
from dpserve.transport import AGAIN_SECONDS, Asking, segment
from dpserve.types import Entry, Json


class Audited(Asking):
    """The ledger: scope audit. Keys and the files of a model: any scope, on the model."""

    def ledger(self, after: int = 0) -> Iterator[Entry]:
        """Every entry from this index on."""
        while page := self._get("/v1/ledger", after=after)["entries"]:
            yield from (Entry(each["index"], each["body"]) for each in page)
            after = page[-1]["index"] + 1

    def checkpoint(self, witnessed: bool = False) -> str:
        """The newest signed tree head, a C2SP note. Keep it: it shows any rewriting of what came before. `witnessed`:
        the newest that witnesses cosigned, where there is one. Any scope, as `consistency`.
        """
        return self._transport.answer("GET", "/v1/ledger/checkpoint", query={"witnessed": 1} if witnessed else {}).text

    def consistency(self, earlier: int, later: int | None = None) -> Json:
        """The proof (RFC 6962) that the tree of `later` entries, or the newest, begins with that of `earlier`."""
        body: Json = self._get("/v1/ledger/consistency", **{"from": earlier, "to": later})
        return body

    def proof(self, leaf: int, size: int | None = None) -> Json:
        """That entry `leaf` is in the ledger: against the newest checkpoint, or in the tree of `size` entries."""
        body: Json = self._get("/v1/ledger/proof", leaf=leaf, size=size)
        return body

    def audit(self, seconds: float = 600.0) -> Json:
        """Ask for an audit of everything and wait for its result: `ok`, `entries`, `root`, `problems`.

        Raises:
            Unavailable: None was made within `seconds`.
        """
        asked = self._transport.ask("POST", "/v1/audits", again=True)["asked"]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            audit = self.last_audit()
            if audit is not None and audit["at"] >= asked:
                return audit
            time.sleep(AGAIN_SECONDS)
        raise Unavailable(0, "timeout", f"no audit was made within {seconds:g} seconds; the server's log says why")

    def last_audit(self) -> Json | None:
        """The newest audit's result; None before the first."""
        try:
            audit: Json = self._get("/v1/audits/last")
        except UnknownName:
            return None
        return audit

    def checkpoints(self) -> Iterator[tuple[int, str]]:
        """Every checkpoint that was ever signed: the size of its tree, and the note."""
        after = 0
        while page := self._get("/v1/ledger/checkpoints", after=after)["checkpoints"]:
            yield from ((each["size"], each["note"]) for each in page)
            after = page[-1]["size"] + 1

    def trust(self) -> bytes:
        """The service's own `trust.json`: the keys that it signs with. Pin it once, and compare what comes later."""
        return self._transport.answer("GET", "/v1/trust").content

    def bundle(self, reference: str) -> bytes:
        """All files of a model as a zip file, the exact bytes that the service has verified."""
        return self._transport.answer("GET", f"/v1/models/{segment('model', reference)}/bundle").content
