"""C2SP signed notes and tree checkpoints: how the log signs its size and root hash.

Formats: c2sp.org/signed-note@v1.0.0 and c2sp.org/tlog-checkpoint. Ed25519 only. Strict: one spelling, bounded sizes.
The text of a note means nothing before a signature by a pinned key has been verified.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from dpserve_verify.errors import InputError, KeyInvalid, LedgerInvalid
from dpserve_verify.formats.canonical import CanonicalError, decode_base64, encode_base64
from dpserve_verify.formats.merkle import HASH_SIZE, MAX_SIZE
from dpserve_verify.keys.signer import Signer
from dpserve_verify.keys.verifier_keys import check_origin, is_key_name, key_id, key_id_of

NOTE_LIMIT = 262_144  # bytes: room for 16 post-quantum cosignatures and more, which every reader must accept
MAX_SIGNATURES = 64
_DASH = "\u2014 "  # em dash, space
_SIZE = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)


@dataclass(frozen=True)
class NoteSignature:
    """One signature line: who claims to have signed, and the bytes. Not verified by being here."""

    name: str
    key_id: bytes  # 4 bytes
    signature: bytes

    def line(self) -> str:
        """Return the line as it stands in a note, with its newline."""
        return f"{_DASH}{self.name} {encode_base64(self.key_id + self.signature)}\n"


@dataclass(frozen=True)
class Note:
    """A parsed note; `text` ends in a newline and is exactly what was signed."""

    text: str
    signatures: tuple[NoteSignature, ...]


@dataclass(frozen=True)
class Checkpoint:
    """A tree head of the log `origin`. From `parse_checkpoint` it is a claim, from `verify_checkpoint` a signed one."""

    origin: str
    size: int
    root: bytes
    signatures: tuple[NoteSignature, ...]
    extensions: tuple[str, ...] = ()


def sign_note(text: str, name: str, signer: Signer) -> str:
    """Return the note over `text` (ends in a newline) with one Ed25519 signature."""
    key = signer.public_key
    if key.scheme != "ed25519":
        raise KeyInvalid(f"scheme={key.scheme}: the log's key must be Ed25519")
    signature = bytes.fromhex(signer.sign(text.encode()).signature)
    return f"{text}\n{NoteSignature(name, key_id_of(name, bytes.fromhex(key.keyval['public'])), signature).line()}"


def parse_note(note: str) -> Note:
    """Split a note into text and signature lines; LedgerInvalid unless it is well formed. Verifies nothing."""
    try:
        long = len(note) > NOTE_LIMIT or len(note.encode("utf-8")) > NOTE_LIMIT
    except UnicodeEncodeError as error:
        raise LedgerInvalid("note: must be valid UTF-8") from error
    if long:
        raise LedgerInvalid(f"note: must be at most {NOTE_LIMIT} bytes")
    if any(c < " " and c != "\n" for c in note):
        raise LedgerInvalid("note: must not hold control characters other than newline")
    text, blank, tail = note.rpartition("\n\n")  # the last empty line separates, so the text may hold empty lines
    lines = tail.split("\n")
    if not blank or lines.pop() or not lines:
        raise LedgerInvalid("note: must be text, an empty line and signature lines, ending in a newline")
    if len(lines) > MAX_SIGNATURES:
        raise LedgerInvalid(f"note: must have at most {MAX_SIGNATURES} signatures")
    return Note(text + "\n", tuple(_signature(line) for line in lines))


def verify_note(note: str, name: str, public_key: Ed25519PublicKey) -> Note:
    """Return the parsed note. LedgerInvalid unless it is signed by this key.

    Other signers' lines are ignored, as the specification demands. Every line under this name and key id must verify,
    and there must be one.
    """
    parsed = parse_note(note)
    ours = [s for s in parsed.signatures if (s.name, s.key_id) == (name, key_id(name, public_key))]
    if not ours:
        raise LedgerInvalid(f"note: no signature by the pinned key of {name!r}")
    for signature in ours:
        try:
            public_key.verify(signature.signature, parsed.text.encode())
        except InvalidSignature as error:
            raise LedgerInvalid(f"note: a signature in the name of {name!r} does not verify") from error
    return parsed


def sign_checkpoint(origin: str, size: int, root: bytes, signer: Signer) -> str:
    """Return the checkpoint note of the tree (size, root), signed in the name of `origin`.

    A log must never sign a checkpoint inconsistent with one it signed before: the caller holds the high-water mark.
    """
    check_origin(origin)
    if not 0 <= size <= MAX_SIZE or len(root) != HASH_SIZE:
        raise InputError(f"size={size}: must be a tree size, with a root of {HASH_SIZE} bytes")
    return sign_note(f"{origin}\n{size}\n{encode_base64(root)}\n", origin, signer)


def parse_checkpoint(note: str) -> Checkpoint:
    """Return the checkpoint in a note, unverified. Raises LedgerInvalid."""
    return _checkpoint(parse_note(note))


def verify_checkpoint(note: str, origin: str, public_key: Ed25519PublicKey) -> Checkpoint:
    """Return the checkpoint in a note. LedgerInvalid unless it is signed by the pinned key and speaks for `origin`."""
    checkpoint = _checkpoint(verify_note(note, origin, public_key))
    if checkpoint.origin != origin:  # the key's name is signed for, the first line is what the tree is called
        raise LedgerInvalid(f"origin={checkpoint.origin[:80]!r}: must be {origin!r}")
    return checkpoint


def _checkpoint(note: Note) -> Checkpoint:
    lines = note.text[:-1].split("\n")
    if len(lines) < 3 or not all(lines):
        raise LedgerInvalid("checkpoint: must be three or more lines, none empty: origin, size, root")
    origin, size, root, *extensions = lines
    if not _SIZE.fullmatch(size) or int(size) > MAX_SIZE:
        raise LedgerInvalid(f"size={size[:40]!r}: must be a decimal below 2^63 without leading zeros")
    return Checkpoint(origin, int(size), _hash(root), note.signatures, tuple(extensions))


def _hash(text: str) -> bytes:
    try:
        raw = decode_base64(text, "root")
    except CanonicalError as error:
        raise LedgerInvalid(error.message) from error
    if len(raw) != HASH_SIZE:
        raise LedgerInvalid(f"root: must be {HASH_SIZE} bytes")
    return raw


def _signature(line: str) -> NoteSignature:
    name, _, encoded = line.removeprefix(_DASH).partition(" ")
    if not line.startswith(_DASH) or not is_key_name(name):
        raise LedgerInvalid("note: a signature line must be em dash, key name, base64, one space between")
    try:
        raw = decode_base64(encoded, "note signature")
    except CanonicalError as error:
        raise LedgerInvalid(error.message) from error
    if len(raw) < 5:
        raise LedgerInvalid("note signature: must be a 4-byte key id and a signature")
    return NoteSignature(name, raw[:4], raw[4:])
