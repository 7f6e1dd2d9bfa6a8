"""The keys in use. Their public halves, as verifiers pin them, are in `dpserve_verify.keys.trust`.

Two Ed25519 keys: `issuer` signs certificates, `log` signs checkpoints; and `commitment.key`, 32 bytes that key the HMAC
by which a certificate names a dataset without giving its hash away. The issuer's may be kept elsewhere
(`accountant.keys.signers`). A directory of keys comes into being whole or not at all; a key in it gives way to another
in one way alone (`accountant.access.key_life`). What is missing, readable by others or does not fit is refused with
KeyInvalid.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from accountant.keys.key_files import (
    check_owner,
    load_private,
    passphrase_from_environment,
    private_pem,
    read_file,
)
from accountant.system.lazy_import import later
from dpserve_verify.errors import KeyInvalid
from dpserve_verify.keys.trust import (
    ROLES,
    PublicKey,
    Role,
    fingerprint,
    public_pem,
)
from dpserve_verify.system import files
from dpserve_verify.system.files import PRIVATE, sync_directory, write_new

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from securesystemslib import signer as library
    from securesystemslib.signer import Signer
else:
    library = later("securesystemslib.signer")

Passphrase: TypeAlias = Callable[[], bytes | None]

COMMITMENT_FILE = "commitment.key"  # 32 bytes
_INTERRUPTED = "left by an interrupted start, never signed with: remove this directory and start again"


@dataclass(frozen=True)
class SigningKey:
    """A public key and what makes the signer by it. `elsewhere`: the private half is not one of our files."""

    public: PublicKey
    make: Callable[[], Signer] = field(repr=False)
    elsewhere: bool = False

    @cached_property
    def signer(self) -> Signer:
        """Make the signer for the first signature: its library loads slowly, and most commands sign nothing."""
        return self.make()

    @cached_property
    def keyid(self) -> str:
        """Return the public key's fingerprint."""
        return fingerprint(self.public)

    @classmethod
    def of(cls, private: Ed25519PrivateKey) -> SigningKey:
        """Wrap a signer, whose keyid is the fingerprint."""
        public = private.public_key()
        return cls(public, lambda: crypto_signer(private, public))


@dataclass(frozen=True)
class KeyStore:
    """The private keys in use. Made by `create` once, by `open` ever after. `issues`: whether the issuer's is one of
    them; a process without it holds no rows either.
    """

    directory: Path
    _keys: dict[Role, SigningKey] = field(repr=False)  # the one thing that changes: see `take` and `keep_up`
    _commitment_key: bytes = field(repr=False)
    passphrase: Passphrase = field(repr=False)
    issues: bool = True

    @classmethod
    def create(
        cls, directory: Path, passphrase: Passphrase = passphrase_from_environment, issuer: SigningKey | None = None
    ) -> KeyStore:
        """Make new keys and open them. All files are written and synced beside their place, then moved there in one
        step: a crash leaves no keys or all.

        Args:
            directory: absent or empty; its parent must exist.
            passphrase: encrypts the signing keys, None: not; the commitment key relies on its mode alone.
            issuer: a key that is kept elsewhere, of which only the public half is written.

        Raises:
            KeyInvalid: the directory is not empty, is no directory, or an interrupted start has left one beside it.
        """
        partial = _partial(directory)
        if directory.is_symlink() or (directory.exists() and (not directory.is_dir() or any(directory.iterdir()))):
            raise KeyInvalid(f"{directory}: must not exist yet, or be empty: keys are never replaced")
        secret = passphrase()
        try:
            partial.mkdir(mode=0o700)
        except FileExistsError as error:
            raise KeyInvalid(f"{partial}: {_INTERRUPTED}") from error
        try:
            _write_all(partial, secret, issuer)
            partial.rename(directory)
        except BaseException:
            shutil.rmtree(partial)
            raise
        sync_directory(directory.parent)
        return cls.open(directory, passphrase, issuer)

    @classmethod
    def open(
        cls, directory: Path, passphrase: Passphrase = passphrase_from_environment, issuer: SigningKey | None = None
    ) -> KeyStore:
        """Open the keys in `directory`.

        Args:
            directory: ours alone (0700), and no link.
            passphrase: decrypts the signing keys; None: they are not encrypted.
            issuer: the key that is kept elsewhere; `issuer.pub.pem` must be its public half.

        Raises:
            KeyInvalid: unless all keys are there, belong together, and are readable by us alone.
        """
        secret = passphrase()
        fd = open_directory(directory)
        try:
            check_owner(os.fstat(fd), str(directory), 0o077)
            keys = {role: issuer if issuer and role == "issuer" else load_own(fd, role, secret) for role in ROLES}
            for role, key in keys.items():
                if read_file(fd, f"{role}.pub.pem", 0o022) != public_pem(key.public).encode():
                    raise KeyInvalid(f"{role}.pub.pem: must be the public half of the {role} key")
            commitment = read_file(fd, COMMITMENT_FILE, 0o077)
        finally:
            os.close(fd)
        if len(commitment) != 32:
            raise KeyInvalid(f"{COMMITMENT_FILE}: must be 32 bytes")
        if len({key.keyid for key in keys.values()}) != len(ROLES):
            raise KeyInvalid("issuer, log: must be two different keys")
        return cls(directory, keys, commitment, passphrase)

    def key(self, role: Role) -> SigningKey:
        """Raise KeyInvalid where another process has put a key in its place that we cannot load."""
        if role not in self._keys:
            raise KeyInvalid(f"{role}: this process' key gave way to one that is not in {self.directory}: restart")
        return self._keys[role]

    def public_key(self, role: Role) -> PublicKey:
        """Return the public half. KeyInvalid as for `key`."""
        return self.key(role).public

    def signer(self, role: Role) -> Signer:
        """Return a securesystemslib signer whose keyid is the key's fingerprint."""
        return self.key(role).signer

    def take(self, role: Role, key: SigningKey) -> None:
        """Sign with this key from now on."""
        self._keys[role] = key

    def keep_up(self, good: Mapping[Role, Collection[str]], roles: Iterable[Role] = ROLES) -> None:
        """Load anew what another process has replaced. `good`: the keyids that may sign now, by role; `roles`: those
        that are needed.

        KeyInvalid where the log's is not to be had. Without the issuer's, `key` refuses: a ledger needs it for
        certificates alone."""
        for role in roles:
            key = self._keys.get(role)  # other threads keep up, too
            if key is None or key.keyid not in good[role]:
                renewed = self._load_renewed(role, good[role])
                if renewed is None:
                    self._keys.pop(role, None)
                    if role == "log":
                        raise KeyInvalid("log: the ledger is signed by another log key than the one in keys/: restart")
                else:
                    self._keys[role] = renewed

    def _load_renewed(self, role: Role, good: Collection[str]) -> SigningKey | None:
        """Load the key in our files, which another process may be putting in place at this moment."""
        fd = open_directory(self.directory)
        try:
            for name in (f"{role}.pem", staged_file(role), f"{role}.pem"):
                try:
                    key = load_own(fd, role, self.passphrase(), name)
                except KeyInvalid:
                    continue  # not there, at this moment or for good
                if key.keyid in good:
                    return key
        finally:
            os.close(fd)
        return None

    def commitment(self, chunks: Iterable[bytes]) -> str:
        """Compute HMAC-SHA256 in hex over the chunks' concatenation: names data to us, says nothing to others."""
        mac = hmac.new(
            self._commitment_key, digestmod=partial(hashlib.sha256)
        )  # in hashlib other threads run meanwhile
        for chunk in chunks:
            mac.update(chunk)
        return mac.hexdigest()


def crypto_signer(private: Ed25519PrivateKey | EllipticCurvePrivateKey, public: PublicKey) -> Signer:
    """Return securesystemslib's signer by a key in memory; its keyid is the fingerprint."""
    return library.CryptoSigner(private, library.SSlibKey.from_crypto(public, keyid=fingerprint(public)))


def staged_file(role: Role) -> str:
    """Return the file of a key that is about to take the place of `<role>.pem`."""
    return f"{role}.next.pem"


def load_own(directory_fd: int, role: Role, secret: bytes | None, name: str | None = None) -> SigningKey:
    """Load a private key of ours: Ed25519, readable by us alone."""
    return SigningKey.of(load_own_private(directory_fd, name or f"{role}.pem", secret))


def load_own_private(directory_fd: int, name: str, secret: bytes | None) -> Ed25519PrivateKey:
    """Load a private key among our files. KeyInvalid unless it is Ed25519, whole, and readable by us alone."""
    key = load_private(read_file(directory_fd, name, 0o077), secret, name)
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyInvalid(f"{name}: must be an Ed25519 key")
    return key


def _partial(directory: Path) -> Path:
    return directory.with_name(directory.name + ".partial")


def _write_all(directory: Path, secret: bytes | None, issuer: SigningKey | None) -> None:
    for role in ROLES:
        public = issuer.public if issuer and role == "issuer" else write_private(directory / f"{role}.pem", secret)
        write_new(directory / f"{role}.pub.pem", public_pem(public).encode(), 0o644)
    write_new(directory / COMMITMENT_FILE, secrets.token_bytes(32), PRIVATE)
    sync_directory(directory)


def write_private(path: Path, secret: bytes | None) -> PublicKey:
    """Make a key and write it; its public half."""
    key = Ed25519PrivateKey.generate()
    write_new(path, private_pem(key, secret), PRIVATE)
    return key.public_key()


def open_directory(directory: Path) -> int:
    """Open a descriptor of the directory, so that what was checked is what is read."""
    try:
        return files.open_directory(directory, os.O_NOFOLLOW)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and _partial(directory).exists():
            raise KeyInvalid(f"{_partial(directory)}: {_INTERRUPTED}") from error
        raise KeyInvalid(f"{directory}: must be a directory of keys and no link ({error.strerror})") from error
