"""What a verifier pins: public keys, the entries and tree sizes they may speak for, and certificates that were revoked.

Validity is judged by ledger index, never by a clock: whoever sets a clock back gains nothing.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Literal, TypeAlias

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization as pkix
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from dpserve_verify.errors import InputError, KeyInvalid
from dpserve_verify.formats import canonical
from dpserve_verify.formats.canonical import JSON, CanonicalError, exact_integer, exact_object, exact_text
from dpserve_verify.keys.verifier_keys import check_origin, ed25519_key, verifier_key

Role: TypeAlias = Literal["issuer", "log"]
PublicKey: TypeAlias = Ed25519PublicKey | EllipticCurvePublicKey  # on P-256: what cloud key services sign with

ROLES: tuple[Role, ...] = ("issuer", "log")
_LIMIT = 1_048_576
_FORMAT = "dpserve-trust/v2"


def fingerprint(public_key: PublicKey) -> str:
    """Return the key's OpenSSH fingerprint `SHA256:...`, as `ssh-keygen -lf` prints it. Used as keyid everywhere."""
    line = public_key.public_bytes(pkix.Encoding.OpenSSH, pkix.PublicFormat.OpenSSH)
    digest = hashlib.sha256(base64.b64decode(line.split()[1])).digest()
    return "SHA256:" + canonical.encode_base64(digest).rstrip("=")


def public_pem(public_key: PublicKey) -> str:
    """Return the key as SubjectPublicKeyInfo in PEM, with its final newline."""
    return public_key.public_bytes(pkix.Encoding.PEM, pkix.PublicFormat.SubjectPublicKeyInfo).decode("ascii")


@lru_cache(maxsize=256)
def load_public_pem(pem: str, what: str = "public key") -> PublicKey:
    """Read what `public_pem` wrote; KeyInvalid for any other text or kind of key, or one that anybody can sign by."""
    try:
        key = pkix.load_pem_public_key(pem.encode("ascii"))
    except (ValueError, UnsupportedAlgorithm) as error:
        raise KeyInvalid(f"{what}: must be a public key in PEM") from error
    if isinstance(key, EllipticCurvePublicKey) and not isinstance(key.curve, SECP256R1):
        raise KeyInvalid(f"{what}: curve={key.curve.name}: must be P-256")
    if not isinstance(key, (Ed25519PublicKey, EllipticCurvePublicKey)):
        raise KeyInvalid(f"{what}: must be Ed25519 or ECDSA on P-256")
    if isinstance(key, Ed25519PublicKey):
        ed25519_key(key.public_bytes_raw(), what)
    if public_pem(key) != pem:
        raise KeyInvalid(f"{what}: must be exactly one PEM block as openssl writes it")
    return key


def load_log_pem(pem: str) -> Ed25519PublicKey:
    """Read a log's key as `load_public_pem` does: checkpoints know Ed25519 alone."""
    key = load_public_pem(pem, "log key")
    if not isinstance(key, Ed25519PublicKey):
        raise KeyInvalid("log key: must be Ed25519")
    return key


@dataclass(frozen=True)
class IssuerKey:
    """An issuer key and the ledger indices [from_index, until_index) of the `issued` entries it may speak for."""

    pem: str
    from_index: int = 0
    until_index: int | None = None

    @property
    def public_key(self) -> PublicKey:
        """Read the key from `pem`. KeyInvalid where that holds none."""
        return load_public_pem(self.pem, "issuer key")

    @property
    def keyid(self) -> str:
        """Return the key's fingerprint, by which certificates name it."""
        return fingerprint(self.public_key)

    def valid_at(self, index: int) -> bool:
        """Return whether this key may speak for the entry at `index`."""
        return _holds(self.from_index, index, self.until_index)

    def to_value(self) -> dict[str, JSON]:
        """Return the key's object in the trust file."""
        return {"keyid": self.keyid, **asdict(self)}

    @classmethod
    def from_value(cls, value: JSON) -> IssuerKey:
        """Read what `to_value` wrote."""
        item = exact_object(value, ("keyid", "pem", "from_index", "until_index"), "issuer")
        until = _integer_or_none(item["until_index"], "until_index")
        key = cls(exact_text(item["pem"], "pem"), exact_integer(item["from_index"], "from_index"), until)
        if key.keyid != item["keyid"]:
            raise KeyInvalid(f"keyid={item['keyid']!r:.80}: must be the key's fingerprint {key.keyid}")
        return key


@dataclass(frozen=True)
class LogKey:
    """A log key and the tree sizes [from_size, until_size) of the checkpoints that count by its signature."""

    pem: str
    from_size: int = 0
    until_size: int | None = None

    @property
    def public_key(self) -> Ed25519PublicKey:
        """Read the key from `pem`. KeyInvalid where that holds none."""
        return load_log_pem(self.pem)

    @property
    def keyid(self) -> str:
        """Return the key's fingerprint."""
        return fingerprint(self.public_key)

    def valid_at(self, size: int) -> bool:
        """Return whether a checkpoint of `size` entries counts when this key has signed it."""
        return _holds(self.from_size, size, self.until_size)

    def to_value(self, origin: str) -> dict[str, JSON]:
        """Return the key's object in the trust file. `vkey` repeats the key as tools for C2SP notes take it."""
        return {"vkey": verifier_key(origin, self.public_key), **asdict(self)}

    @classmethod
    def from_value(cls, value: JSON, origin: str) -> LogKey:
        """Read what `to_value` wrote."""
        item = exact_object(value, ("pem", "vkey", "from_size", "until_size"), "log")
        until = _integer_or_none(item["until_size"], "until_size")
        key = cls(exact_text(item["pem"], "pem"), exact_integer(item["from_size"], "from_size"), until)
        _check_vkey(item["vkey"], origin, key.public_key)
        return key


@dataclass(frozen=True)
class PublicKeys:
    """What a verifier pins (`trust.json`): the log's name, its keys by tree size, the issuer keys by ledger index, and
    the indices of `issued` entries whose certificates were revoked.

    `log_pem` is the newest log key, which signs from size `log_from` on; `former` are those before it, oldest first.
    Ranges of log keys must not overlap. They may leave gaps: no checkpoint of such a size counts, since the key that
    signed it was compromised. Checked when made: raises KeyInvalid unless every key loads and none comes twice."""

    origin: str
    issuers: tuple[IssuerKey, ...]
    log_pem: str
    log_from: int = 0
    former: tuple[LogKey, ...] = ()
    revoked: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        try:
            check_origin(self.origin)
        except InputError as error:
            raise KeyInvalid(error.message) from error
        if not self.issuers:
            raise KeyInvalid("issuers: must hold a key")
        if any(k.from_index < 0 or (k.until_index is not None and k.until_index < k.from_index) for k in self.issuers):
            raise KeyInvalid("until_index: must not be below from_index, nor either below 0")
        _check_sizes(self.logs)
        if any(index < 0 for index in self.revoked):
            raise KeyInvalid("revoked: must be indices of entries")
        names = [*(key.keyid for key in self.logs), *(key.keyid for key in self.issuers)]
        if len(set(names)) != len(names):
            raise KeyInvalid("trust: every key must come once, and a log's must not be an issuer's")

    @classmethod
    def of(
        cls, origin: str, issuers: tuple[IssuerKey, ...], logs: tuple[LogKey, ...], revoked: frozenset[int]
    ) -> PublicKeys:
        """Make a trust from log keys in order, oldest first; the newest one is in force, so it must have no
        `until_size`.
        """
        if not logs or logs[-1].until_size is not None:
            raise KeyInvalid("until_size: must be null for the newest log key, and for no other")
        return cls(origin, issuers, logs[-1].pem, logs[-1].from_size, logs[:-1], revoked)

    @property
    def logs(self) -> tuple[LogKey, ...]:
        """Return every log key, oldest first."""
        return (*self.former, LogKey(self.log_pem, self.log_from))

    @property
    def log_key(self) -> Ed25519PublicKey:
        """Return the newest log key."""
        return load_log_pem(self.log_pem)

    def log_key_at(self, size: int) -> Ed25519PublicKey:
        """Return the key that signs the log's checkpoint of `size` entries; KeyInvalid where no pinned key counts
        there.
        """
        for key in reversed(self.logs):
            if key.valid_at(size):
                return key.public_key
        raise KeyInvalid(f"checkpoint: no pinned log key speaks for size {size}")

    def log_signer_at(self, size: int) -> Ed25519PublicKey:
        """Return the key that was the log's at `size`, compromised later or not: for an audit, which holds what it
        signed against the entries.
        """
        return next((key for key in reversed(self.logs) if key.from_size <= size), self.logs[0]).public_key

    def issuer_keys(self, index: int | None = None) -> dict[str, PublicKey]:
        """Return the issuer keys by keyid: those that may speak for the ledger entry at `index`, or all."""
        return {k.keyid: k.public_key for k in self.issuers if index is None or k.valid_at(index)}

    def continues(self, older: PublicKeys) -> bool:
        """Return whether `older` is an earlier state of this: no key that this has not, no range that has grown since,
        nothing revoked that is good again.
        """
        issuers = {(key.pem, key.from_index): key.until_index for key in self.issuers}
        logs = {(key.pem, key.from_size): key.until_size for key in self.logs}
        return (
            self.origin == older.origin
            and all(_shrunk(issuers, (key.pem, key.from_index), key.until_index) for key in older.issuers)
            and all(_shrunk(logs, (key.pem, key.from_size), key.until_size) for key in older.logs)
            and self.revoked >= older.revoked
        )

    def to_json(self) -> bytes:
        """Return the trust file."""
        value: dict[str, JSON] = {
            "format": _FORMAT,
            "origin": self.origin,
            "issuers": [key.to_value() for key in self.issuers],
            "logs": [key.to_value(self.origin) for key in self.logs],
            "revoked": [*sorted(self.revoked)],
        }
        return canonical.encode(value, _LIMIT)

    @classmethod
    def from_json(cls, raw: bytes) -> PublicKeys:
        """Read what `to_json` wrote; free in white space, strict in all else. KeyInvalid."""
        try:
            return cls._from_value(canonical.decode(raw, _LIMIT))
        except CanonicalError as error:
            raise KeyInvalid(f"trust file: {error.message}") from error

    @classmethod
    def _from_value(cls, value: JSON) -> PublicKeys:
        top = exact_object(value, ("format", "origin", "issuers", "logs", "revoked"), "trust")
        if top["format"] != _FORMAT:
            raise KeyInvalid(f"format={top['format']!r:.60}: must be {_FORMAT}")
        origin = exact_text(top["origin"], "origin")
        logs = tuple(LogKey.from_value(item, origin) for item in _items(top, "logs"))
        revoked = [exact_integer(item, "revoked") for item in _items(top, "revoked")]
        if revoked != sorted(set(revoked)):
            raise KeyInvalid("revoked: must be in order, none twice")
        return cls.of(origin, _issuers(top), logs, frozenset(revoked))


def _holds(first: int, number: int, end: int | None) -> bool:
    return first <= number and (end is None or number < end)


def _shrunk(now: Mapping[tuple[str, int], int | None], key: tuple[str, int], before: int | None) -> bool:
    end = now.get(key, -1)
    return end != -1 and (before is None or (end is not None and end <= before))


def _check_sizes(logs: tuple[LogKey, ...]) -> None:
    for earlier, later in pairwise(logs):
        if earlier.until_size is None or not earlier.from_size <= earlier.until_size <= later.from_size:
            raise KeyInvalid("until_size: must lie between a log key's from_size and the next one's")
    if logs[0].from_size < 0:
        raise KeyInvalid("from_size: must not be below 0")


def _check_vkey(vkey: JSON, origin: str, key: Ed25519PublicKey) -> None:
    try:
        expected = verifier_key(origin, key)
    except InputError as error:
        raise KeyInvalid(error.message) from error
    if vkey != expected:
        raise KeyInvalid("vkey: must be that of the origin and the log's key")


def _issuers(top: dict[str, JSON]) -> tuple[IssuerKey, ...]:
    return tuple(IssuerKey.from_value(item) for item in _items(top, "issuers"))


def _items(top: dict[str, JSON], name: str) -> list[JSON]:
    items = top[name]
    if not isinstance(items, list):
        raise KeyInvalid(f"{name}: must be a list")
    return items


def _integer_or_none(value: JSON, what: str) -> int | None:
    return None if value is None else exact_integer(value, what)
