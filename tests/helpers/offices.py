"""An accountant's office in memory: keys, a log and certificates without a home, so that every part can be forged.

The tree is that of RFC 6962's definitions, by recursion, and shares no code with the accountant's.
"""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from ledgers import TOTAL, hexes, plan, request
from securesystemslib.signer import CryptoSigner, SSlibKey

from accountant.certificates.statement import Subject, statement
from accountant.ledger.families.families import Dataset, Family
from accountant.ledger.families.records import Registration, Unit
from accountant.privacy.claims import price
from dpserve_verify.certificates.certificate import digest
from dpserve_verify.formats import canonical
from dpserve_verify.keys import dsse, verifier_keys
from dpserve_verify.keys.trust import IssuerKey, PublicKeys, fingerprint, public_pem
from dpserve_verify.log import cosignature, notes, proofs
from dpserve_verify.log import witness_policy as quorum
from dpserve_verify.privacy.budget import Budget, Relation
from dpserve_verify.privacy.events import Plan
from dpserve_verify.privacy.filter import Filter

ORIGIN = "example.org/ledger"
TIME = "2025-01-31T12:00:00Z"


def signer(number: int) -> CryptoSigner:
    """The same key for the same number."""
    private = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"key %d" % number).digest())
    return CryptoSigner(private, SSlibKey.from_crypto(private.public_key(), keyid=fingerprint(private.public_key())))


def public_of(number: int) -> str:
    return public_pem(Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"key %d" % number).digest()).public_key())


def root(leaves: list[bytes]) -> bytes:
    if len(leaves) == 1:
        return hashlib.sha256(b"\0" + leaves[0]).digest()
    half = _half(leaves)
    return hashlib.sha256(b"\1" + root(leaves[:half]) + root(leaves[half:])).digest()


def path(index: int, leaves: list[bytes]) -> list[bytes]:
    if len(leaves) == 1:
        return []
    half = _half(leaves)
    if index < half:
        return [*path(index, leaves[:half]), root(leaves[half:])]
    return [*path(index - half, leaves[half:]), root(leaves[:half])]


def _half(leaves: list[bytes]) -> int:
    return 1 << (len(leaves) - 1).bit_length() - 1


@dataclass(frozen=True)
class Filed:
    """What lies beside a model."""

    payload: bytes
    envelope: bytes
    index: int
    proof: str
    onnx: bytes


def dataset(
    relation: Relation = Relation.ADD_REMOVE, unit: Unit | None = None, budget: Budget = TOTAL, **more: Any
) -> Dataset:
    """A dataset as the ledger gives it, with 25 releases of 0.02 already spent; `families`: how many it belongs to."""
    unit, count = unit or Unit(), more.pop("families", 1)
    design = Filter.design(budget)
    used = price(plan(), design.orders)
    families = tuple(
        Family(str(uuid.UUID(int=n)), n, relation, unit, design, used, design.nothing()) for n in range(1, count + 1)
    )
    registration = Registration("adult", relation, budget, unit, 1000, hexes("schema"), hexes("rows"))
    return Dataset(registration, str(uuid.UUID(int=99)), 1, more.pop("version", 1), families)


class Office:
    """Issuer key `issuer`, log key `log`, and the log's leaves."""

    def __init__(self, issuer: int = 1, log: int = 2, origin: str = ORIGIN) -> None:
        self.issuer, self.log, self.origin = issuer, log, origin
        self.leaves: list[bytes] = []
        self.append("genesis", origin=origin)

    @property
    def trust(self) -> PublicKeys:
        return PublicKeys(self.origin, (IssuerKey(public_of(self.issuer)),), public_of(self.log))

    def append(self, kind: str, **fields: Any) -> int:
        self.leaves.append(canonical.encode({"type": kind, "time": TIME, **fields}))
        return len(self.leaves) - 1

    def checkpoint(self, size: int | None = None, log: int | None = None) -> str:
        leaves = self.leaves[: size or len(self.leaves)]
        return notes.sign_checkpoint(self.origin, len(leaves), root(leaves), signer(log or self.log))

    def proof(self, index: int, size: int | None = None, log: int | None = None) -> str:
        leaves = self.leaves[: size or len(self.leaves)]
        return proofs.write_proof(index, path(index, leaves), self.checkpoint(size, log), leaves[index])

    def statement(
        self, onnx: bytes, what: Plan | None = None, about: Dataset | None = None, delta: str = "0.000001"
    ) -> bytes:
        """Reserve, and say what was made of it."""
        seq = self.append("reserved", plan=(what or plan()).to_json())
        leaf = hashlib.sha256(b"\0" + self.leaves[seq]).hexdigest()
        domains = (
            {"name": "age", "type": "numeric", "low": "17", "high": "90", "cuts": 32},
            {"name": "work", "type": "categorical", "count": 2, "values": ["private", "state"]},
            {"name": "member", "type": "boolean"},
        )
        inputs = ("age", "work", "member")
        subject = Subject("adult", digest(onnx), hexes("ensemble"), "lazybb", inputs, ("<=50K", ">50K"), domains)
        asked = request(delta=delta)
        return statement(subject, about or dataset(), asked, what or plan(), self.origin, seq, leaf)

    def sign(self, payload: bytes, key: int | None = None) -> bytes:
        return dsse.sign(payload, signer(key or self.issuer))

    def enter(self, payload: bytes, onnx: bytes, **changes: Any) -> int:
        """The `issued` entry of a statement, true or not; its index."""
        body = canonical.decode(payload, 1 << 20)
        reservation = body["predicate"]["ledger"]["reservation"]  # type: ignore[index, call-overload]
        fields = {"reservation": reservation, "statement": digest(payload), "model": digest(onnx), "name": "adult"}
        return self.append("issued", **{**fields, **changes})

    def issue(
        self, onnx: bytes = b"a model", what: Plan | None = None, about: Dataset | None = None, **more: Any
    ) -> Filed:
        payload = self.statement(onnx, what, about, **more)
        index = self.enter(payload, onnx)
        return Filed(payload, self.sign(payload), index, self.proof(index), onnx)


@lru_cache
def office() -> tuple[Office, Filed]:
    """An office with one certificate and entries around it. Not to be added to: make another for that."""
    made = Office()
    filed = made.issue()
    for number in range(3):
        made.append("token-revoked", name=f"token {number}")
    return made, filed


def witness_policy(*numbers: int) -> quorum.WitnessPolicy:
    keys = [cosigner(number) for number in numbers]
    lines = [f"witness w{n} {vkey}" for n, vkey in zip(numbers, keys, strict=True)]
    lines += [f"group all-of-them all {' '.join(f'w{n}' for n in numbers)}", "quorum all-of-them"]
    return quorum.parse_policy("\n".join(lines).encode())


def cosigner(number: int) -> str:
    key = dsse.Ed25519PublicKey.from_public_bytes(bytes.fromhex(signer(number).public_key.keyval["public"]))
    return verifier_keys.verifier_key(f"witness-{number}", key, verifier_keys.COSIGNATURE)


def cosigned(checkpoint: str, number: int) -> str:
    """The checkpoint with a witness's line: 8 bytes of time and the signature over it and the text."""
    text, time = notes.parse_note(checkpoint).text, 1_790_000_000
    name, key = verifier_keys.parse_verifier_key(cosigner(number), verifier_keys.COSIGNATURE)
    raw = time.to_bytes(8, "big") + bytes.fromhex(signer(number).sign(cosignature.signed_message(text, time)).signature)
    line = notes.NoteSignature(name, verifier_keys.key_id(name, key, verifier_keys.COSIGNATURE), raw)
    return cosignature.with_cosignatures(checkpoint, [line])
