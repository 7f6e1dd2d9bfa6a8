"""The ledger: its entries, its checkpoints and proofs, for auditors and for who holds a certificate."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from accountant.access.tokens import SCOPES
from accountant.log.stored_proofs import consistency, path_to
from accountant.store.store import page_of_checkpoints
from serving.http.rights import NOTHING
from serving.operations import Caller, operation
from serving.operations.answers import Body, shape

PAGE, AUDIT, LEDGER = 500, "audit", "/v1/ledger"
Index = Annotated[int, Field(ge=0, description="index of the first entry wanted")]
FirstSize = Annotated[int, Field(ge=0, description="size of the first tree wanted")]
Leaf = Annotated[int, Field(ge=0, description="index of the entry")]
TreeSize = Annotated[int | None, Field(ge=0, description="size of the tree; the newest when left out")]
Earlier = Annotated[int, Field(ge=0, description="size of the earlier tree")]
Later = Annotated[int | None, Field(ge=0, description="size of the later one; the newest when left out")]


@operation("GET", LEDGER, AUDIT)
def list_entries(caller: Caller, after: Index = 0) -> Annotated[Body, shape("ENTRIES")]:
    """List entries, each as the exact text that was hashed: 500 at most."""
    log = caller.home.ledger.log
    lines = [{"index": entry.seq, "body": entry.body.decode()} for entry in log.entries(after, PAGE)]
    return {"entries": lines, "size": log.size(), "next": after + len(lines)}


@operation("GET", f"{LEDGER}/checkpoints", AUDIT)
def list_checkpoints(caller: Caller, after: FirstSize = 0) -> Annotated[Body, shape("CHECKPOINTS")]:
    """List signed tree heads, from a size on: 500 at most."""
    with caller.home.ledger.log.database.reading() as connection:
        filed = page_of_checkpoints(connection, after, PAGE)
    return {"checkpoints": [{"size": size, "note": note} for size, note in filed]}


@operation("GET", f"{LEDGER}/proof", AUDIT)
def show_proof(caller: Caller, leaf: Leaf, size: TreeSize = None) -> Annotated[Body, shape("PROOF")]:
    """Show an inclusion proof (RFC 6962): hashes in base64, the sibling first."""
    log = caller.home.ledger.log
    return path_to(log.database, leaf, log.size() if size is None else size)


@operation("GET", f"{LEDGER}/consistency", *SCOPES, on=NOTHING)
def show_consistency(caller: Caller, from_: Earlier, to: Later = None) -> Annotated[Body, shape("GROWTH")]:
    """Show a consistency proof (RFC 6962): the tree of `to` entries begins with that of `from` entries."""
    return consistency(caller.home.ledger.log.database, from_, to).to_json()


OPERATIONS = (list_entries, list_checkpoints, show_proof, show_consistency)
