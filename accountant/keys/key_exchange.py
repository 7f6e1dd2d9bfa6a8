"""One private key in the place of another, on disk, so that a cut at any point leaves the old one in force or the new.

The new key is `<role>.next.pem`, whole and synced, before the ledger knows of it. The ledger's entry decides. After it,
and again at every start, the newest key that the ledger knows is put in its place; a key that it never heard of is
discarded. The old private key is destroyed: it could only do harm.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from accountant.keys.key_files import private_pem, read_file
from accountant.keys.private_keys import (
    Passphrase,
    SigningKey,
    load_own,
    load_own_private,
    open_directory,
    staged_file,
    write_private,
)
from dpserve_verify.errors import KeyInvalid
from dpserve_verify.keys.trust import ROLES, Role, public_pem
from dpserve_verify.system.files import PRIVATE, holding, replace_file, sync_directory, write_new


@contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Exclude every other process that opens these keys or changes them, within the block. Not re-entrant."""
    with holding(open_directory(directory)):
        yield


def stage(directory: Path, role: Role, passphrase: Passphrase) -> SigningKey:
    """Make the key that is to be next. Only after `settle`: what stood there before is nobody's."""
    path = directory / staged_file(role)
    path.unlink(missing_ok=True)
    write_private(path, passphrase())
    sync_directory(directory)
    return _load(directory, role, passphrase, staged_file(role))


def put_in_place(directory: Path, role: Role, key: SigningKey) -> None:
    """Put a key in place. The ledger has this key as its newest of the role: make the files say so. May be done
    twice.
    """
    # First: as long as the private half is not in its place, it is still known to be next.
    public = public_pem(key.public).encode()
    replace_file(directory / f"{role}.pub.pem", public, 0o644, alone=True, sync_folder=False)
    if key.elsewhere:
        for name in (f"{role}.pem", staged_file(role)):
            (directory / name).unlink(missing_ok=True)
    else:
        (directory / staged_file(role)).replace(directory / f"{role}.pem")
    sync_directory(directory)


def settle(directory: Path, role: Role, passphrase: Passphrase, good: Collection[str]) -> None:
    """Bring the files to what the ledger says, after a cut. `good`: the keyids that may sign now."""
    if not (directory / staged_file(role)).exists():
        return
    next_one = _read_staged(directory, role, passphrase, staged_file(role))
    if next_one is not None and next_one.keyid in good:
        put_in_place(directory, role, next_one)
        return
    for any_role in ROLES:  # not by a passphrase that opens a part of them: see `encrypt`
        if (directory / f"{any_role}.pem").exists():
            current = _load(directory, any_role, passphrase, f"{any_role}.pem")
            if any_role == role and current.keyid not in good:
                raise KeyInvalid(f"{role}: neither {role}.pem nor {staged_file(role)} is the ledger's, {sorted(good)}")
    (directory / staged_file(role)).unlink()  # the ledger never heard of it
    sync_directory(directory)


def settle_elsewhere(directory: Path, key: SigningKey) -> None:
    """Settle, as `settle` does, the issuer's key that is configured, and kept elsewhere."""
    if (directory / "issuer.pem").exists() or public_half(directory, "issuer") != public_pem(key.public):
        put_in_place(directory, "issuer", key)


def encrypt(directory: Path, passphrase: Passphrase, new: bytes | None) -> None:
    """Encrypt the same keys under another passphrase (None: under none). All are staged before the first is in its
    place, so after a cut one of the two passphrases opens them all. Only after `settle`.
    """
    secret = passphrase()
    fd = open_directory(directory)
    try:
        roles = [role for role in ROLES if (directory / f"{role}.pem").exists()]
        pems = {role: private_pem(load_own_private(fd, f"{role}.pem", secret), new) for role in roles}
    finally:
        os.close(fd)
    for role, pem in pems.items():
        (directory / staged_file(role)).unlink(missing_ok=True)
        write_new(directory / staged_file(role), pem, PRIVATE)
    sync_directory(directory)
    for role in pems:
        (directory / staged_file(role)).replace(directory / f"{role}.pem")
    sync_directory(directory)


def public_half(directory: Path, role: Role) -> str:
    """Return what `<role>.pub.pem` says."""
    fd = open_directory(directory)
    try:
        return read_file(fd, f"{role}.pub.pem", 0o022).decode("ascii", "replace")
    finally:
        os.close(fd)


def _load(directory: Path, role: Role, passphrase: Passphrase, name: str) -> SigningKey:
    fd = open_directory(directory)
    try:
        return load_own(fd, role, passphrase(), name)
    finally:
        os.close(fd)


def _read_staged(directory: Path, role: Role, passphrase: Passphrase, name: str) -> SigningKey | None:
    """Load a staged key; None where it is missing or was cut while it was written: only the ledger's word counts
    here.
    """
    try:
        return _load(directory, role, passphrase, name)
    except KeyInvalid:
        return None
