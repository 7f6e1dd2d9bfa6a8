"""Keys on disk, and the trust file that verifiers pin.

Two Ed25519 keys: `issuer` signs certificates, `log` signs checkpoints; and `commitment.key`, 32 bytes that key the HMAC
by which a certificate names a dataset without giving its hash away. A directory of keys comes into being whole or not
at all, and is never written again. What is missing, readable by others or does not fit is refused with KeyInvalid.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization as pkix
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from securesystemslib.signer import CryptoSigner, SSlibKey

from accountant import canonical
from accountant.canonical import JSON, CanonicalError, exact_integer, exact_object, exact_text
from accountant.errors import InputError, KeyInvalid
from accountant.notes import check_origin, verifier_key

Role: TypeAlias = Literal["issuer", "log"]
PublicKey: TypeAlias = Ed25519PublicKey | EllipticCurvePublicKey  # on P-256: what cloud key services sign with
Passphrase: TypeAlias = Callable[[], bytes | None]

ROLES: tuple[Role, ...] = ("issuer", "log")
PASSPHRASE_VARIABLE = "DPSERVE_KEY_PASSPHRASE"
COMMITMENT_FILE = "commitment.key"  # 32 bytes
_FILE_LIMIT = 16_384
_TRUST_LIMIT = 262_144
_TRUST_FORMAT = "dpserve-trust/v1"
_INTERRUPTED = "left by an interrupted start, never signed with: remove this directory and start again"


def passphrase_from_environment() -> bytes | None:
    """The passphrase in DPSERVE_KEY_PASSPHRASE; None where it is not set."""
    value = os.environ.get(PASSPHRASE_VARIABLE)
    if value == "":
        raise KeyInvalid(f"{PASSPHRASE_VARIABLE}: must not be empty; unset it for keys without a passphrase")
    return None if value is None else os.fsencode(value)


def fingerprint(public_key: PublicKey) -> str:
    """The key's OpenSSH fingerprint `SHA256:...`, as `ssh-keygen -lf` prints it. Used as keyid everywhere."""
    line = public_key.public_bytes(pkix.Encoding.OpenSSH, pkix.PublicFormat.OpenSSH)
    digest = hashlib.sha256(base64.b64decode(line.split()[1])).digest()
    return "SHA256:" + canonical.encode_base64(digest).rstrip("=")


def public_pem(public_key: PublicKey) -> str:
    """The key as SubjectPublicKeyInfo in PEM, with its final newline."""
    return public_key.public_bytes(pkix.Encoding.PEM, pkix.PublicFormat.SubjectPublicKeyInfo).decode("ascii")


def load_public_pem(pem: str, what: str = "public key") -> PublicKey:
    """Inverse of `public_pem`; KeyInvalid for any other text or kind of key."""
    try:
        key = pkix.load_pem_public_key(pem.encode("ascii"))
    except (ValueError, UnsupportedAlgorithm) as error:
        raise KeyInvalid(f"{what}: must be a public key in PEM") from error
    if isinstance(key, EllipticCurvePublicKey) and not isinstance(key.curve, SECP256R1):
        raise KeyInvalid(f"{what}: curve={key.curve.name}: must be P-256")
    if not isinstance(key, (Ed25519PublicKey, EllipticCurvePublicKey)):
        raise KeyInvalid(f"{what}: must be Ed25519 or ECDSA on P-256")
    if public_pem(key) != pem:
        raise KeyInvalid(f"{what}: must be exactly one PEM block as openssl writes it")
    return key


@dataclass(frozen=True)
class IssuerKey:
    """An issuer key and the ledger indices [from_index, until_index) of the entries it may speak for.

    Validity is judged by ledger index, never by a clock: whoever sets a clock back gains nothing."""

    pem: str
    from_index: int = 0
    until_index: int | None = None

    @property
    def public_key(self) -> PublicKey:
        return load_public_pem(self.pem, "issuer key")

    @property
    def keyid(self) -> str:
        return fingerprint(self.public_key)

    def valid_at(self, index: int) -> bool:
        """Whether this key may speak for the entry at `index`."""
        return self.from_index <= index and (self.until_index is None or index < self.until_index)

    def to_value(self) -> dict[str, JSON]:
        """Its object in the trust file."""
        return {"keyid": self.keyid, **asdict(self)}

    @classmethod
    def from_value(cls, value: JSON) -> IssuerKey:
        """Inverse of `to_value`."""
        item = exact_object(value, ("keyid", "pem", "from_index", "until_index"), "issuer")
        until = None if item["until_index"] is None else exact_integer(item["until_index"], "until_index")
        key = cls(exact_text(item["pem"], "pem"), exact_integer(item["from_index"], "from_index"), until)
        if key.keyid != item["keyid"]:
            raise KeyInvalid(f"keyid={item['keyid']!r:.80}: must be the key's fingerprint {key.keyid}")
        return key


@dataclass(frozen=True)
class PublicKeys:
    """What a verifier pins (`trust.json`): the log's name and key, and the issuer keys with their ledger indices.

    Checked when made: raises KeyInvalid unless every key loads, none comes twice and the log's is not an issuer's."""

    origin: str
    issuers: tuple[IssuerKey, ...]
    log_pem: str

    def __post_init__(self) -> None:
        try:
            check_origin(self.origin)
        except InputError as error:
            raise KeyInvalid(error.message) from error
        if not self.issuers:
            raise KeyInvalid("issuers: must hold a key")
        if any(k.from_index < 0 or (k.until_index is not None and k.until_index < k.from_index) for k in self.issuers):
            raise KeyInvalid("until_index: must not be below from_index, nor either below 0")
        names = [fingerprint(self.log_key), *(k.keyid for k in self.issuers)]
        if len(set(names)) != len(names):
            raise KeyInvalid("trust: every key must come once, and the log's must not be an issuer's")

    @property
    def log_key(self) -> Ed25519PublicKey:
        key = load_public_pem(self.log_pem, "log key")
        if not isinstance(key, Ed25519PublicKey):  # checkpoints know no other
            raise KeyInvalid("log key: must be Ed25519")
        return key

    def log_key_at(self, size: int) -> Ed25519PublicKey:
        """The key that signs the log's checkpoint of `size` entries."""
        return self.log_key

    def issuer_keys(self, index: int | None = None) -> dict[str, PublicKey]:
        """The issuer keys by keyid: those that may speak for the ledger entry at `index`, or all."""
        return {k.keyid: k.public_key for k in self.issuers if index is None or k.valid_at(index)}

    def to_json(self) -> bytes:
        """The trust file. `vkey` repeats the log's key as tools for C2SP notes take it."""
        log: dict[str, JSON] = {"pem": self.log_pem, "vkey": verifier_key(self.origin, self.log_key)}
        issuers: list[JSON] = [k.to_value() for k in self.issuers]
        value: dict[str, JSON] = {"format": _TRUST_FORMAT, "origin": self.origin, "issuers": issuers, "log": log}
        return canonical.encode(value, _TRUST_LIMIT)

    @classmethod
    def from_json(cls, raw: bytes) -> PublicKeys:
        """Inverse of `to_json`; free in white space, strict in all else. Raises KeyInvalid."""
        try:
            return cls._from_value(canonical.decode(raw, _TRUST_LIMIT))
        except CanonicalError as error:
            raise KeyInvalid(f"trust file: {error.message}") from error

    @classmethod
    def _from_value(cls, value: JSON) -> PublicKeys:
        top = exact_object(value, ("format", "origin", "issuers", "log"), "trust")
        log = exact_object(top["log"], ("pem", "vkey"), "log")
        if top["format"] != _TRUST_FORMAT:
            raise KeyInvalid(f"format={top['format']!r:.60}: must be {_TRUST_FORMAT}")
        if not isinstance(top["issuers"], list):
            raise KeyInvalid("issuers: must be a list")
        issuers = tuple(IssuerKey.from_value(item) for item in top["issuers"])
        keys = cls(exact_text(top["origin"], "origin"), issuers, exact_text(log["pem"], "pem"))
        if log["vkey"] != verifier_key(keys.origin, keys.log_key):
            raise KeyInvalid("vkey: must be that of the origin and the log's key")
        return keys


@dataclass(frozen=True)
class KeyStore:
    """The private keys in use. Made by `create` once, by `open` ever after."""

    directory: Path
    _private: Mapping[Role, Ed25519PrivateKey] = field(repr=False)
    _commitment_key: bytes = field(repr=False)

    @classmethod
    def create(cls, directory: Path, passphrase: Passphrase = passphrase_from_environment) -> KeyStore:
        """Make new keys in `directory`, which must be absent or empty (its parent must exist), and open them.

        All files are written and synced beside it, then moved into place in one step: a crash leaves no keys or all.
        With a passphrase the two signing keys are encrypted; the commitment key relies on its mode alone."""
        partial = _partial(directory)
        if directory.is_symlink() or (directory.exists() and (not directory.is_dir() or any(directory.iterdir()))):
            raise KeyInvalid(f"{directory}: must not exist yet, or be empty: keys are never replaced")
        secret = passphrase()
        try:
            partial.mkdir(mode=0o700)
        except FileExistsError as error:
            raise KeyInvalid(f"{partial}: {_INTERRUPTED}") from error
        try:
            _write_all(partial, secret)
            partial.rename(directory)
        except BaseException:
            shutil.rmtree(partial)
            raise
        sync_directory(directory.parent)
        return cls.open(directory, passphrase)

    @classmethod
    def open(cls, directory: Path, passphrase: Passphrase = passphrase_from_environment) -> KeyStore:
        """The keys in `directory`. KeyInvalid unless all are there, belong together, and are readable by us alone."""
        secret = passphrase()
        fd = _open_directory(directory)
        try:
            _check_owner(os.fstat(fd), str(directory), 0o077)
            private = {role: _load_pair(fd, role, secret) for role in ROLES}
            commitment = _read(fd, COMMITMENT_FILE, 0o077)
        finally:
            os.close(fd)
        if len(commitment) != 32:
            raise KeyInvalid(f"{COMMITMENT_FILE}: must be 32 bytes")
        if len({fingerprint(key.public_key()) for key in private.values()}) != len(ROLES):
            raise KeyInvalid("issuer, log: must be two different keys")
        return cls(directory, private, commitment)

    def public_key(self, role: Role) -> Ed25519PublicKey:
        return self._private[role].public_key()

    def signer(self, role: Role) -> CryptoSigner:
        """A securesystemslib signer whose keyid is the key's fingerprint."""
        public = self.public_key(role)
        return CryptoSigner(self._private[role], SSlibKey.from_crypto(public, keyid=fingerprint(public)))

    def public_keys(self, origin: str) -> PublicKeys:
        """The trust file's content for these keys, the issuer's valid from the first entry on."""
        issuer, log = (public_pem(self.public_key(role)) for role in ROLES)
        return PublicKeys(origin, (IssuerKey(issuer),), log)

    def commitment(self, chunks: Iterable[bytes]) -> str:
        """HMAC-SHA256 in hex over the chunks' concatenation: names data to us, and says nothing to others."""
        mac = hmac.new(self._commitment_key, digestmod=hashlib.sha256)
        for chunk in chunks:
            mac.update(chunk)
        return mac.hexdigest()


def _partial(directory: Path) -> Path:
    return directory.with_name(directory.name + ".partial")


def _write_all(directory: Path, secret: bytes | None) -> None:
    encryption = pkix.BestAvailableEncryption(secret) if secret is not None else pkix.NoEncryption()
    for role in ROLES:
        key = Ed25519PrivateKey.generate()
        pem = key.private_bytes(pkix.Encoding.PEM, pkix.PrivateFormat.PKCS8, encryption)
        write_new(directory / f"{role}.pem", pem, 0o600)
        write_new(directory / f"{role}.pub.pem", public_pem(key.public_key()).encode(), 0o644)
    write_new(directory / COMMITMENT_FILE, secrets.token_bytes(32), 0o600)
    sync_directory(directory)


def write_new(path: Path, content: bytes, mode: int) -> None:
    """A new file, synced. Fails where anything has that name. The umask may take rights away, never add any."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _open_directory(directory: Path) -> int:
    """A descriptor of the directory, so that what was checked is what is read."""
    try:
        return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and _partial(directory).exists():
            raise KeyInvalid(f"{_partial(directory)}: {_INTERRUPTED}") from error
        raise KeyInvalid(f"{directory}: must be a directory of keys and no link ({error.strerror})") from error


def _check_owner(status: os.stat_result, name: str, forbidden: int) -> None:
    if status.st_uid != os.geteuid():
        raise KeyInvalid(f"{name}: must belong to the user who runs this (uid {os.geteuid()}, is {status.st_uid})")
    if status.st_mode & forbidden:
        raise KeyInvalid(f"{name}: mode={status.st_mode & 0o7777:04o}: must have none of the bits {forbidden:04o}")


def _read(directory_fd: int, name: str, forbidden: int) -> bytes:
    """A small regular file of ours, never through a link; `forbidden` are the mode bits it must not have."""
    try:  # O_NONBLOCK: opening a FIFO must not wait for a writer
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory_fd)
    except OSError as error:
        raise KeyInvalid(f"{name}: must be a readable file and no link ({error.strerror})") from error
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _FILE_LIMIT:
            raise KeyInvalid(f"{name}: must be a regular file of at most {_FILE_LIMIT} bytes")
        _check_owner(status, name, forbidden)
        return file.read(_FILE_LIMIT)


def _load_pair(directory_fd: int, role: Role, secret: bytes | None) -> Ed25519PrivateKey:
    name = f"{role}.pem"
    try:
        key = pkix.load_pem_private_key(_read(directory_fd, name, 0o077), secret)
    except (TypeError, ValueError, UnsupportedAlgorithm) as error:  # TypeError: passphrase missing or not needed
        raise KeyInvalid(f"{name}: must be PKCS8 in PEM, {PASSPHRASE_VARIABLE} set iff encrypted: {error}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyInvalid(f"{name}: must be an Ed25519 key")
    if _read(directory_fd, f"{role}.pub.pem", 0o022) != public_pem(key.public_key()).encode():
        raise KeyInvalid(f"{role}.pub.pem: must be the public half of {name}")
    return key
