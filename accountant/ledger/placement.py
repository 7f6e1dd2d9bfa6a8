"""Which version of a model answers to its name, and which is kept from serving: decisions about what was released, that
cost nothing and that the ledger remembers, with who took them and why.
"""

from __future__ import annotations

from accountant.errors import InputError, WrongState
from accountant.keys import key_rows
from accountant.ledger.ledger import Ledger
from accountant.log.entries import read_entry
from accountant.store.store import body_at

PROMOTED, RETIRED, RESTORED = "model-promoted", "model-retired", "model-restored"
REASON = 1000  # most characters


def record(ledger: Ledger, kind: str, name: str, version: int, issued: int, reason: str, by: str) -> int:
    """Append an entry of this kind about the model certified by entry `issued`; returns its index. InputError where
    that entry certifies another model, WrongState where a promoted one was revoked."""
    if not reason.strip() or len(reason) > REASON:
        raise InputError(f"reason: {len(reason)} characters; must say something, in at most {REASON}")
    with ledger.log.writing() as writer:
        entry = read_entry(issued, body_at(writer.connection, issued)).value
        if entry["type"] not in ("issued", "derived") or entry["name"] != name:
            raise InputError(f"issued={issued}: does not certify {name}")
        if kind == PROMOTED and issued in key_rows.revoked(writer.connection):
            raise WrongState(f"model={name}@{version}: its certificate was revoked")
        return writer.append(kind, name=name, version=version, issued=issued, reason=reason, by=by)
