"""An entry of the ledger: one leaf of the log, and what it says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dpserve_verify.errors import LedgerInvalid
from dpserve_verify.formats import canonical


@dataclass(frozen=True)
class Entry:
    """One leaf: its index, its exact bytes, and what they say."""

    seq: int
    body: bytes
    value: dict[str, Any]


def read_entry(seq: int, body: bytes) -> Entry:
    """Read an entry from its exact bytes; LedgerInvalid where they are not canonical JSON of an object with a type."""
    try:
        value = canonical.decode_canonical(body)
    except canonical.CanonicalError as error:
        raise LedgerInvalid(f"entry {seq}: {error.message}", entry=seq) from error
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise LedgerInvalid(f"entry {seq}: must be an object with a type", entry=seq)
    return Entry(seq, body, value)
