"""The keys of a home brought to what its ledger says of them, and what the ledger says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from accountant.keys import key_exchange, key_rows
from accountant.keys.key_files import in_keys, is_absent
from accountant.keys.key_files import passphrase_from_environment as passphrase
from accountant.keys.key_rows import KeyRow
from accountant.keys.private_keys import KeyStore, SigningKey
from accountant.store.store import Store
from accountant.system.lazy_import import later
from dpserve_verify.errors import KeyInvalid
from dpserve_verify.keys.trust import ROLES, load_public_pem

if TYPE_CHECKING:
    from accountant.keys import signers
else:
    signers = later("accountant.keys.signers")


def open_keys(directory: Path, database: Store, issuer_key: str) -> KeyStore:
    """Open the keys in use, brought to what the ledger says. `issuer_key`: the issuer's URI
    (`accountant.keys.signers`); "none": its public half alone is opened, and what asks
    for its signature is refused.
    """
    with key_exchange.alone(directory):
        with database.reading() as connection:
            rows = [row for row in key_rows.rows(connection) if row.until is None]
        for role in ROLES if rows else ():
            key_exchange.settle(directory, role, passphrase, {row.keyid for row in rows if row.role == role})
        if is_absent(issuer_key):
            public = load_public_pem(key_exchange.public_half(directory, "issuer"), "issuer.pub.pem")
            keys = KeyStore.open(directory, issuer=SigningKey(public, _refuse, elsewhere=True))
            return replace(keys, issues=False)
        if in_keys(issuer_key):
            if not (directory / "issuer.pem").exists() and (directory / "issuer.pub.pem").exists():
                raise KeyInvalid("issuer.pem: is gone; restore it, or say in DPSERVE_ISSUER_KEY where that key is kept")
            return KeyStore.open(directory)
        pems = [row.pem for row in reversed(rows) if row.role == "issuer"]
        issuer = _first(issuer_key, pems or [key_exchange.public_half(directory, "issuer")])
        key_exchange.settle_elsewhere(directory, issuer)
        return KeyStore.open(directory, issuer=issuer)


def _refuse() -> NoReturn:
    raise KeyInvalid(
        "issuer: this process has no key to sign certificates with (DPSERVE_ISSUER_KEY=none); do this where it is, for "
        "instance by `dpserve` beside a worker"
    )


def _first(uri: str, pems: list[str]) -> SigningKey:
    """Return the first of these keys that the URI's signer signs by."""
    for pem in pems[:-1]:
        try:
            return signers.open_key(uri, load_public_pem(pem))
        except KeyInvalid:
            continue  # several issuers are good: this signer is another one's
    return signers.open_key(uri, load_public_pem(pems[-1]))


def check_issuer(database: Store, keys: KeyStore) -> None:
    """Raise KeyInvalid unless the issuer's key at hand is one that the ledger knows as good."""
    with database.reading() as connection:
        key_rows.require_issuer(connection, keys.key("issuer").keyid)


def keys_of(database: Store) -> list[KeyRow]:
    """Return every key there ever was, oldest first."""
    with database.reading() as connection:
        return key_rows.rows(connection)


def revoked_certificates(database: Store) -> frozenset[int]:
    """Return the indices of `issued` entries whose certificates were revoked."""
    with database.reading() as connection:
        return key_rows.revoked_certificates(connection)
