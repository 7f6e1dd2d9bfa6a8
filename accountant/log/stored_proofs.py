"""Proofs from the stored tree: that an entry is in it, and that a tree is the beginning of a later one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from accountant.errors import WrongState
from accountant.log.collect import newest
from accountant.log.entries import latest_checkpoint
from accountant.store import store
from accountant.store.store import Store
from dpserve_verify.errors import InputError, LedgerInvalid
from dpserve_verify.formats import merkle
from dpserve_verify.formats.canonical import encode_base64
from dpserve_verify.keys.trust import PublicKeys
from dpserve_verify.log import notes, proofs
from dpserve_verify.log.seen_checkpoints import verify_head
from dpserve_verify.log.witnessed import read_witnessed


@dataclass(frozen=True)
class Consistency:
    """The tree (later, later_root) begins with the tree (earlier, earlier_root); `hashes` as in RFC 6962."""

    earlier: int
    later: int
    hashes: tuple[bytes, ...]
    earlier_root: bytes
    later_root: bytes

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON, hashes in base64."""
        return {
            "from": self.earlier,
            "to": self.later,
            "hashes": [encode_base64(digest) for digest in self.hashes],
            "from_root": encode_base64(self.earlier_root),
            "to_root": encode_base64(self.later_root),
        }


def consistency(database: Store, earlier: int, later: int | None = None) -> Consistency:
    """Prove, and verify, that the tree of one size begins a later one. `later`: None means the newest."""
    with database.reading() as connection:
        newest = store.size(connection)
        later = newest if later is None else later
        if not 0 <= earlier <= later <= newest:
            raise InputError(f"from={earlier}, to={later}: must be 0 <= from <= to <= {newest}")
        proof = _prove(connection, earlier, later)
        head = notes.parse_checkpoint(latest_checkpoint(connection))
    if later == head.size and proof.later_root != head.root:
        raise LedgerInvalid(f"ledger: the stored tree of {later} entries is not the one that was signed")
    merkle.verify_consistency(earlier, later, proof.hashes, proof.earlier_root, proof.later_root)
    return proof


def _prove(connection: Connection, earlier: int, later: int) -> Consistency:
    def work(read: merkle.NodeReader) -> Consistency:
        hashes = tuple(merkle.consistency_proof(earlier, later, read))
        return Consistency(earlier, later, hashes, merkle.root(earlier, read), merkle.root(later, read))

    return store.at_once(connection, work)


def newest_proof(
    database: Store, home: Path, leaves: Sequence[int], seen: int, witnessed: bool
) -> tuple[list[str], Consistency | None]:
    """Return, for a remote client, the `.tlog-proof` of each entry, all against one checkpoint, and the proof between
    this one and the tree of the first `seen` entries; None where there are fewer, or `seen` is 0.

    The checkpoint is the newest; where `witnessed`, the newest in the home that witnesses cosigned, if there is one.
    WrongState where that has not all of the entries yet.
    """
    with database.reading() as connection:
        note = (read_witnessed(home) if witnessed else None) or newest(home, connection)
        size = notes.parse_checkpoint(note).size
        if max(leaves) >= size:
            raise WrongState(
                f"ledger: its witnesses have cosigned {size} entries, and this is entry {max(leaves)}; whoever runs it "
                "asks them by dpserve ledger witness"
            )
        proofs_of = [inclusion(connection, leaf, note) for leaf in leaves]
        has_seen = 0 < seen <= store.size(connection)
        return proofs_of, _prove(connection, *sorted((seen, size))) if has_seen else None


def continues(database: Store, trust: PublicKeys, seen: str, later: int | None = None) -> Consistency:
    """Prove that the ledger continues a checkpoint that the caller kept. LedgerInvalid where it does not."""
    before = verify_head(seen, trust)
    with database.reading() as connection:
        size = store.size(connection)
    if before.size > size:
        raise LedgerInvalid(
            f"ledger: has {size} entries, the checkpoint kept from before signs {before.size}: it was rolled back"
        )
    proof = consistency(database, before.size, later)
    merkle.verify_consistency(before.size, proof.later, proof.hashes, before.root, proof.later_root)
    return proof


def path_to(database: Store, leaf: int, size: int) -> dict[str, Any]:
    """Return the inclusion proof of an entry in the tree of `size` entries, as JSON: no checkpoint needs to have that
    size.
    """
    with database.reading() as connection:
        newest = store.size(connection)
        if not 0 <= leaf < size <= newest:
            raise InputError(f"leaf={leaf}, size={size}: must be 0 <= leaf < size <= {newest}")
        path = store.at_once(connection, partial(merkle.inclusion_proof, leaf, size))
    return {"leaf": leaf, "size": size, "hashes": [encode_base64(digest) for digest in path]}


def inclusion(connection: Connection, leaf: int, note: str) -> str:
    """Return the `.tlog-proof` of an entry against the checkpoint `note`, verified, with the entry's bytes in it."""
    head = notes.parse_checkpoint(note)
    if not 0 <= leaf < head.size:
        raise InputError(f"leaf={leaf}: must be below the checkpoint's size {head.size}")
    body = store.body_at(connection, leaf)
    path = store.at_once(connection, partial(merkle.inclusion_proof, leaf, head.size))
    merkle.verify_inclusion(leaf, head.size, merkle.leaf_hash(body), path, head.root)
    return proofs.write_proof(leaf, path, note, body)
