"""The `.tlog-proof` sidecar: that one entry is in the log, checkable offline (c2sp.org/tlog-proof@v1).

The entry's exact bytes travel in the `extra` line. That line is not authenticated: it is worth something only after
`verify_proof(proof, proof.extra, ...)`, which hashes it into the signed root.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from dpserve_verify.errors import LedgerInvalid
from dpserve_verify.formats.canonical import ENTRY_LIMIT, CanonicalError, decode_base64, encode_base64
from dpserve_verify.formats.merkle import HASH_SIZE, MAX_SIZE, leaf_hash, verify_inclusion
from dpserve_verify.log.notes import NOTE_LIMIT, Checkpoint, parse_checkpoint, verify_checkpoint

PROOF_LIMIT = NOTE_LIMIT + 2 * ENTRY_LIMIT  # characters: note, entry in base64, path
MAX_PATH = 63
_MAGIC = "c2sp.org/tlog-proof@v1"
_INDEX = re.compile(r"index (0|[1-9][0-9]{0,18})", re.ASCII)


@dataclass(frozen=True)
class TlogProof:
    """A proof as read, nothing verified. `path` runs from the leaf's sibling upwards."""

    index: int
    path: tuple[bytes, ...]
    checkpoint_note: str
    extra: bytes | None


def write_proof(index: int, path: Sequence[bytes], checkpoint_note: str, extra: bytes | None) -> str:
    """Return the proof's text; `parse_proof` gives the same values back. LedgerInvalid for what cannot be written."""
    lines = [_MAGIC]
    lines += [] if extra is None else [f"extra {encode_base64(extra)}"]
    lines += [f"index {index}", *map(encode_base64, path)]
    text = "\n".join(lines) + "\n\n" + checkpoint_note
    parse_proof(text)
    return text


def parse_proof(text: str) -> TlogProof:
    """Parse the format strictly; LedgerInvalid names what is wrong. Verifies no hash and no signature."""
    if len(text) > PROOF_LIMIT:
        raise LedgerInvalid(f"proof: must be at most {PROOF_LIMIT} characters")
    head, _, note = text.partition("\n\n")  # the checkpoint follows verbatim
    lines = head.split("\n")
    if lines.pop(0) != _MAGIC:
        raise LedgerInvalid(f"proof: first line must be {_MAGIC}")
    extra = None
    if lines and lines[0].startswith("extra "):
        extra = _bytes(lines.pop(0).removeprefix("extra "), "extra")
        if not 0 < len(extra) <= ENTRY_LIMIT:
            raise LedgerInvalid(f"extra: must be 1 to {ENTRY_LIMIT} bytes")
    index = _INDEX.fullmatch(lines.pop(0) if lines else "")
    if not index or int(index[1]) >= MAX_SIZE:
        raise LedgerInvalid("index: must be a decimal below 2^63 without leading zeros, on its own line")
    if len(lines) > MAX_PATH:
        raise LedgerInvalid(f"proof: must have at most {MAX_PATH} hashes")
    path = tuple(_bytes(line, "proof hash") for line in lines)
    if any(len(h) != HASH_SIZE for h in path):
        raise LedgerInvalid(f"proof hash: must be {HASH_SIZE} bytes")
    parse_checkpoint(note)
    return TlogProof(int(index[1]), path, note, extra)


def verify_proof(proof: TlogProof, leaf: bytes, origin: str, log_public_key: Ed25519PublicKey) -> Checkpoint:
    """Return the checkpoint that vouches for the entry `leaf` (its exact bytes) at `proof.index`. Raises LedgerInvalid.

    Says nothing of what the entry means, nor that the log showed others the same tree (that takes witnesses).
    """
    checkpoint = verify_checkpoint(proof.checkpoint_note, origin, log_public_key)
    verify_inclusion(proof.index, checkpoint.size, leaf_hash(leaf), proof.path, checkpoint.root)
    return checkpoint


def _bytes(text: str, what: str) -> bytes:
    try:
        return decode_base64(text, what)
    except CanonicalError as error:
        raise LedgerInvalid(error.message) from error
