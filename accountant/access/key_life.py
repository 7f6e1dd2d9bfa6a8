"""Keys over a ledger's life: rotated, retired, marked compromised; certificates revoked. Each entry says who and why.

What follows from an entry is in the index (`accountant.keys.key_rows`), the trust file and, for a new key, the files of
`accountant.keys.key_exchange`; a cut after the entry is made good when the home is next opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Connection

from accountant.errors import UnknownName
from accountant.keys import key_exchange, key_rows
from accountant.keys.key_files import in_keys
from accountant.keys.key_rows import KeyRow
from accountant.keys.private_keys import SigningKey
from accountant.ledger.families.records import Why
from accountant.log.entries import Writer
from accountant.system.lazy_import import later
from dpserve_verify.errors import InputError
from dpserve_verify.keys import dsse
from dpserve_verify.keys.trust import ROLES, Role, public_pem

if TYPE_CHECKING:
    from accountant.keys import signers
else:
    signers = later("accountant.keys.signers")

if TYPE_CHECKING:
    from accountant.home import Home
    from accountant.ledger.ledger import Ledger


def rotate(
    home: Home, role: Role, by: str, reason: str, *, issuer_key: str | None = None, overlap: bool = False
) -> KeyRow:
    """Put a new key in force; the old one is retired at that entry, or with `overlap` (issuers alone) stays good.

    `issuer_key`: a URI of `accountant.keys.signers`; None: a new file, where the old one was a file."""
    why = Why(by, reason)
    if overlap and role == "log":
        raise InputError("overlap: a log has one key at a time")
    with key_exchange.alone(home.keys.directory):
        key = _successor(home, role, issuer_key)
        with home.ledger.log.writing() as writer:
            rows = key_rows.rows(writer.connection)
            before = [key for key in rows if key.role == role and key.until is None][-1]
            row = _add(writer, key, role, why)
            if not overlap:
                _retire(writer, before, why, row)
        _put_in_place(home, role, key)
    home.write_trust()
    return row


def retire(home: Home, keyid: str, by: str, reason: str) -> None:
    """End an issuer key: it speaks for no entry from here on. WrongState where no other one is good."""
    why = Why(by, reason)
    with home.ledger.log.writing() as writer:
        _retire(writer, _known_key(writer.connection, keyid), why)
    home.write_trust()


def mark_compromised(
    home: Home, keyid: str, after: int, by: str, reason: str, *, issuer_key: str | None = None
) -> KeyRow | None:
    """Mark a key as compromised: nothing that it signed after the entry at `after` counts. A new key takes its place
    where no other is good; return that one. `issuer_key`: as for `rotate`.
    """
    why = Why(by, reason)
    with key_exchange.alone(home.keys.directory):
        with home.ledger.log.database.reading() as connection:
            role = _known_key(connection, keyid).role
            is_only = key_rows.good(connection)[role] == {keyid}
        key = _successor(home, role, issuer_key) if is_only else None
        with home.ledger.log.writing() as writer:
            row = _known_key(writer.connection, keyid)
            if not 0 <= after < writer.tree.size:  # what is entered with it is none that was asked about
                raise InputError(f"after={after}: must be the index of an entry, 0 to {writer.tree.size - 1}")
            added = _add(writer, key, role, why) if key else None
            writer.append("key-compromised", role=role, keyid=keyid, after=after, reason=why.reason, by=why.by)
            key_rows.finish(writer.connection, row, row.end(after), "compromised")
        if key:
            _put_in_place(home, role, key)
    home.write_trust()
    return added


def revoke(home: Home, issued: int, by: str, reason: str) -> int:
    """Revoke the certificate that the `issued` or `derived` entry at this index bound; the index of the entry that says
    so. What was derived from it falls with it: its verifiers refuse both."""
    why = Why(by, reason)
    with home.ledger.log.writing() as writer:
        seq = writer.append("revoked", issued=issued, reason=why.reason, by=why.by)
        key_rows.revoke(writer.connection, issued, seq)
    home.write_trust()
    return seq


def signed_by(envelope: bytes) -> str:
    """Return the keyid that a certificate of ours says it is signed by."""
    return dsse.parse(envelope).signatures[0][0]


def may_issue(ledger: Ledger, keyid: str) -> bool:
    """Return whether a certificate that this key signed may be issued now."""
    with ledger.log.database.reading() as connection:
        return keyid in key_rows.good(connection)["issuer"]


def keep_up(home: Home) -> None:
    """Sign from here on by the keys that the ledger has now; a process that writes does so by itself."""
    with home.ledger.log.database.reading() as connection:
        home.keys.keep_up(key_rows.good(connection))


def change_passphrase(home: Home, new: bytes | None) -> None:
    """Encrypt our private keys anew; None: not at all. Nothing of it concerns the ledger."""
    if new is not None and not new:
        raise InputError("passphrase: must not be empty")
    directory, secret = home.keys.directory, home.keys.passphrase
    with key_exchange.alone(directory):
        with home.ledger.log.database.reading() as connection:
            good = key_rows.good(connection)
        for role in ROLES:
            key_exchange.settle(directory, role, secret, good[role])
        key_exchange.encrypt(directory, secret, new)


def _successor(home: Home, role: Role, issuer_key: str | None) -> SigningKey:
    """Prepare the next key: stage it among our files, or import it from where it is kept. It is not in force yet."""
    if issuer_key is not None and role == "log":
        raise InputError("issuer_key: the log's key is a file among our own")
    if issuer_key is not None and not in_keys(issuer_key):
        return signers.import_key(issuer_key)
    with home.ledger.log.database.reading() as connection:
        good = key_rows.good(connection)[role]
    if issuer_key is None and role == "issuer" and home.keys.key(role).elsewhere:
        raise InputError("issuer_key: must name the key to come (`file:` makes one among our own files)")
    directory, secret = home.keys.directory, home.keys.passphrase
    key_exchange.settle(directory, role, secret, good)  # what an earlier cut left may be the key in force
    return key_exchange.stage(directory, role, secret)


def _known_key(connection: Connection, keyid: str) -> KeyRow:
    for row in key_rows.rows(connection):
        if row.keyid == keyid:
            return row
    raise UnknownName(f"keyid={keyid:.80}: no key of this ledger; see `dpserve key list`")


def _add(writer: Writer, key: SigningKey, role: Role, why: Why) -> KeyRow:
    pem = public_pem(key.public)
    seq = writer.append("key-added", role=role, keyid=key.keyid, pem=pem, reason=why.reason, by=why.by)
    if role == "log":
        writer.successor = key.signer
    return key_rows.add(writer.connection, role, pem, seq)


def _retire(writer: Writer, row: KeyRow, why: Why, successor: KeyRow | None = None) -> None:
    seq = writer.append("key-retired", role=row.role, keyid=row.keyid, reason=why.reason, by=why.by)
    until = successor.first if successor and row.role == "log" else seq
    key_rows.finish(writer.connection, row, until, "retired")


def _put_in_place(home: Home, role: Role, key: SigningKey) -> None:
    key_exchange.put_in_place(home.keys.directory, role, key)
    home.keys.take(role, key)
