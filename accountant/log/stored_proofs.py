"""Proofs from the stored tree: that an entry is in it, and that a tree is the beginning of a later one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from accountant import merkle
from accountant.canonical import encode_base64
from accountant.errors import InputError, LedgerInvalid
from accountant.keys.trust import PublicKeys
from accountant.log import notes, proofs
from accountant.log.entries import latest_checkpoint
from accountant.store import store
from accountant.store.store import Store


@dataclass(frozen=True)
class Consistency:
    """The tree (later, later_root) begins with the tree (earlier, earlier_root); `hashes` as in RFC 6962."""

    earlier: int
    later: int
    hashes: tuple[bytes, ...]
    earlier_root: bytes
    later_root: bytes

    def to_json(self) -> dict[str, Any]:
        """Hashes in base64, as checkpoints spell them."""
        return {
            "from": self.earlier,
            "to": self.later,
            "hashes": [encode_base64(each) for each in self.hashes],
            "from_root": encode_base64(self.earlier_root),
            "to_root": encode_base64(self.later_root),
        }


def consistency(database: Store, earlier: int, later: int | None = None) -> Consistency:
    """The proof between two sizes of the ledger, verified. `later`: the newest where it is None."""
    with database.reading() as connection:
        newest = store.size(connection)
        later = newest if later is None else later
        if not 0 <= earlier <= later <= newest:
            raise InputError(f"from={earlier}, to={later}: must be 0 <= from <= to <= {newest}")
        read = store.node_reader(connection)
        proof = Consistency(
            earlier,
            later,
            tuple(merkle.consistency_proof(earlier, later, read)),
            merkle.root(earlier, read),
            merkle.root(later, read),
        )
        head = notes.parse_checkpoint(latest_checkpoint(connection))
    if later == head.size and proof.later_root != head.root:
        raise LedgerInvalid(f"ledger: the stored tree of {later} entries is not the one that was signed")
    merkle.verify_consistency(earlier, later, proof.hashes, proof.earlier_root, proof.later_root)
    return proof


def continues(database: Store, trust: PublicKeys, seen: str, later: int | None = None) -> Consistency:
    """The proof from a checkpoint that was kept. LedgerInvalid where the ledger is no continuation of it."""
    size = notes.parse_checkpoint(seen).size
    kept = notes.verify_checkpoint(seen, trust.origin, trust.log_key_at(size))
    with database.reading() as connection:
        newest = store.size(connection)
    if kept.size > newest:
        raise LedgerInvalid(
            f"ledger: has {newest} entries, the checkpoint kept from before signs {kept.size}: it was rolled back"
        )
    proof = consistency(database, kept.size, later)
    merkle.verify_consistency(kept.size, proof.later, proof.hashes, kept.root, proof.later_root)
    return proof


def path_to(database: Store, leaf: int, size: int) -> dict[str, Any]:
    """The inclusion proof of an entry in the tree of `size` entries, as JSON: no checkpoint needs to have that size."""
    with database.reading() as connection:
        newest = store.size(connection)
        if not 0 <= leaf < size <= newest:
            raise InputError(f"leaf={leaf}, size={size}: must be 0 <= leaf < size <= {newest}")
        path = merkle.inclusion_proof(leaf, size, store.node_reader(connection))
    return {"leaf": leaf, "size": size, "hashes": [encode_base64(each) for each in path]}


def inclusion(connection: Connection, leaf: int, note: str) -> str:
    """The `.tlog-proof` of an entry against the checkpoint `note`, verified, with the entry's bytes in it."""
    head = notes.parse_checkpoint(note)
    if not 0 <= leaf < head.size:
        raise InputError(f"leaf={leaf}: must be below the checkpoint's size {head.size}")
    body = store.body_at(connection, leaf)
    path = merkle.inclusion_proof(leaf, head.size, store.node_reader(connection))
    merkle.verify_inclusion(leaf, head.size, merkle.leaf_hash(body), path, head.root)
    return proofs.write_proof(leaf, path, note, body)
