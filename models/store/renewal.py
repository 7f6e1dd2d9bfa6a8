"""Proofs made anew: where a log key was compromised, what it signed no longer counts, though the entries stand."""

from __future__ import annotations

from collections.abc import Callable

from dpserve_verify.errors import KeyInvalid
from dpserve_verify.keys.trust import PublicKeys
from dpserve_verify.log.notes import parse_checkpoint
from dpserve_verify.log.proofs import parse_proof
from dpserve_verify.system.files import PUBLIC, replace_file
from models.store.bundle import ModelStore

PROOF = "model.onnx.tlog-proof"


def renew_proofs(store: ModelStore, trust: PublicKeys, prove: Callable[[int], str]) -> list[str]:
    """Replace every proof whose checkpoint no pinned key speaks for any more; the models concerned, as name@version.

    `prove`: a proof of an entry against the newest checkpoint. May be done again after a cut."""
    found = []
    for name in store.names():
        for version in store.versions(name):
            place = store.resolve(f"{name}@{version}") / PROOF
            proof = parse_proof(place.read_text("utf-8"))
            if not _counts(trust, parse_checkpoint(proof.checkpoint_note).size):
                replace_file(place, prove(proof.index).encode(), PUBLIC)
                found.append(f"{name}@{version}")
    return found


def _counts(trust: PublicKeys, size: int) -> bool:
    try:
        trust.log_key_at(size)
    except KeyInvalid:
        return False
    return True
