"""The doors to the ledger: entries, checkpoints and proofs."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from accountant.access.tokens import SCOPES
from accountant.log.stored_proofs import consistency, path_to
from accountant.store.store import checkpoints
from dpserve_verify.log.witnessed import read_witnessed
from serving.http.rights import NOTHING
from serving.http.routes import TEXT, Door, Query, in_thread, state
from serving.rest import json_schemas
from serving.wire.errors import json_response
from serving.wire.request_bodies import known_query, query_int

PAGE = 500


async def list_entries(request: Request) -> Response:
    """Return up to PAGE entries from index `after` on, each as the exact text that was hashed."""
    known_query(request, "after")
    home, after = state(request).home, query_int(request, "after", 0)

    def look() -> dict[str, Any]:
        lines = [{"index": entry.seq, "body": entry.body.decode()} for entry in home.ledger.log.entries(after, PAGE)]
        return {"entries": lines, "size": home.ledger.log.size(), "next": after + len(lines)}

    return json_response(await in_thread(look))


async def show_checkpoint(request: Request) -> Response:
    """Return the newest signed tree head, a C2SP note; where `witnessed`, the newest that witnesses cosigned, if there
    is one. Open to any token, as the consistency proof: they say nothing of entries.
    """
    known_query(request, "witnessed")
    home, witnessed = state(request).home, query_int(request, "witnessed", 0) > 0

    def look() -> str:
        return (read_witnessed(home.path) if witnessed else None) or home.ledger.log.checkpoint()

    return Response(await in_thread(look), media_type="text/plain; charset=utf-8")


async def list_checkpoints(request: Request) -> Response:
    """Return up to PAGE of the signed checkpoints, from tree size `after` on."""
    known_query(request, "after")
    database, after = state(request).home.ledger.log.database, query_int(request, "after", 0)

    def look() -> list[dict[str, Any]]:
        with database.reading() as connection:
            return [{"size": size, "note": note} for size, note in checkpoints(connection, after, PAGE)]

    return json_response({"checkpoints": await in_thread(look)})


async def show_proof(request: Request) -> Response:
    """Return the inclusion proof (RFC 6962) of entry `leaf` in the tree of `size` entries; hashes in base64, the
    sibling first.
    """
    known_query(request, "leaf", "size")
    home, leaf = state(request).home, query_int(request, "leaf", None)
    size = query_int(request, "size", -1)
    log = home.ledger.log
    return json_response(await in_thread(lambda: path_to(log.database, leaf, log.size() if size == -1 else size)))


async def show_consistency(request: Request) -> Response:
    """Return the consistency proof (RFC 6962): that the tree of `to` entries begins with the tree of `from` entries."""
    known_query(request, "from", "to")
    home, earlier, later = state(request).home, query_int(request, "from", None), query_int(request, "to", -1)
    consistency_proof = await in_thread(consistency, home.ledger.log.database, earlier, None if later == -1 else later)
    return json_response(consistency_proof.to_json())


AFTER = {"after": "index of the first entry wanted"}
SIZE = {"after": "size of the first tree wanted"}
GROWTH: Query = {
    "from": {**json_schemas.COUNT, "description": "size of the earlier tree", "required": True},
    "to": "size of the later one; the newest when left out",
}
LEAF: Query = {
    "leaf": {**json_schemas.COUNT, "description": "index of the entry", "required": True},
    "size": "size of the tree; the newest when left out",
}

DOORS = (
    Door(
        "GET",
        "/v1/ledger",
        ("audit",),
        list_entries,
        "Entries, as the exact text hashed",
        gives=json_schemas.ENTRIES,
        query=AFTER,
    ),
    Door(
        "GET",
        "/v1/ledger/checkpoint",
        SCOPES,
        show_checkpoint,
        "The newest signed tree head",
        gives=TEXT,
        media="text/plain",
        query={"witnessed": "1: the newest that witnesses cosigned"},
        on=NOTHING,
    ),
    Door(
        "GET",
        "/v1/ledger/checkpoints",
        ("audit",),
        list_checkpoints,
        "Signed tree heads, from a size on",
        gives=json_schemas.CHECKPOINTS,
        query=SIZE,
    ),
    Door("GET", "/v1/ledger/proof", ("audit",), show_proof, "An inclusion proof", gives=json_schemas.PROOF, query=LEAF),
    Door(
        "GET",
        "/v1/ledger/consistency",
        SCOPES,
        show_consistency,
        "A consistency proof",
        gives=json_schemas.GROWTH,
        query=GROWTH,
        on=NOTHING,
    ),
)
