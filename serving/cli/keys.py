"""Commands of the operator: keys."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import Annotated, Any

import typer

from accountant.access import key_life
from accountant.home import TRUST, Home
from accountant.keys import opening
from accountant.keys.key_files import in_keys
from accountant.keys.key_rows import KeyRow
from dpserve_verify.certificates.bundle import read_bundle
from dpserve_verify.errors import InputError
from dpserve_verify.log.proofs import parse_proof
from models.store.bundle import ModelStore
from models.store.placing import answering
from models.store.renewal import renew_proofs
from models.store.standing import way_out
from serving.cli.backend import open_home
from serving.cli.backends.user import this_user
from serving.cli.placing import nothing_served
from serving.cli.terminal import Json, align_columns, note, show

NEW_PASSPHRASE = "DPSERVE_NEW_KEY_PASSPHRASE"


Reason = Annotated[str, typer.Option(help="Why. It stays in the ledger permanently.")]
IssuerUri = Annotated[
    str | None,
    typer.Option("--issuer-key", help="Where the new issuer key is kept: a signer URI, see docs/reference/home.md."),
]


class Role(StrEnum):
    """Who signs with a key: the issuer certificates and entries, the log checkpoints."""

    issuer = "issuer"
    log = "log"


def list_keys(json: Json = False) -> None:
    """List every key there was: what it may speak for, and how it ended.

    An issuer speaks for entries FROM <= index < UNTIL, a log for checkpoints FROM <= size < UNTIL.

    \b
    dpserve key list
    """
    home = Home.open()
    rows = sorted(opening.keys_of(home.ledger.log.database), key=lambda row: row.role, reverse=True)
    described = [_key_to_json(home, row) for row in rows]
    columns = ("role", "keyid", "from", "until", "state")
    lines = [tuple(name.upper() for name in columns)]
    lines += [tuple("" if line[name] is None else line[name] for name in columns) for line in described]
    revoked = sorted(opening.revoked_certificates(home.ledger.log.database))
    show(json, {"origin": home.ledger.log.origin, "keys": described, "revoked": revoked}, align_columns(lines))


def _key_to_json(home: Home, row: KeyRow) -> dict[str, Any]:
    span = {"from": row.first, "until": row.until, "added": row.added}
    return {"role": row.role, "keyid": row.keyid, **span, "state": row.ended or "good", "pem": row.pem}


def rotate(
    role: Annotated[Role, typer.Option(help="Whose key.")],
    reason: Reason,
    issuer_key: IssuerUri = None,
    overlap: Annotated[
        bool, typer.Option("--overlap", help="Leave the old issuer key good, until `key retire`.")
    ] = False,
    json: Json = False,
) -> None:
    """Put a new key in force. What the old one signed stays good; its private half is destroyed.

    \b
    dpserve key rotate --role log --reason "yearly"
    dpserve key rotate --role issuer --issuer-key "hsm:2?label=dpserve" --reason "moved to the HSM"
    """
    home = open_home("admin")
    row = key_life.rotate(home, role.value, this_user(), reason, issuer_key=issuer_key, overlap=overlap)
    show(json, _key_to_json(home, row), f"{row.role} {row.keyid} in force from entry {row.added}")
    _after(home, issuer_key)


def retire(
    keyid: Annotated[str, typer.Argument(help="SHA256:..., see `key list`.")], reason: Reason, json: Json = False
) -> None:
    """End an issuer key, where another one is good.

    \b
    dpserve key retire SHA256:... --reason "the last host has the new key"
    """
    home = open_home("admin")
    key_life.retire(home, keyid, this_user(), reason)
    row = next(row for row in opening.keys_of(home.ledger.log.database) if row.keyid == keyid)
    show(json, _key_to_json(home, row), f"{row.role} {keyid} retired at entry {row.until}")
    _after(home, None)


def mark_compromised(
    keyid: Annotated[str, typer.Argument(help="SHA256:..., see `key list`.")],
    after: Annotated[
        int, typer.Option(help="The last entry known to be from before. 0: nothing that it signed counts.")
    ],
    reason: Reason,
    issuer_key: IssuerUri = None,
    json: Json = False,
) -> None:
    """Say that others have a key. Nothing that it signed after an entry counts; a new key takes its place.

    \b
    dpserve key mark-compromised SHA256:... --after 1200 --reason "laptop stolen"
    """
    home = open_home("admin")
    row = key_life.mark_compromised(home, keyid, after, this_user(), reason, issuer_key=issuer_key)
    renewed = _renew(home)
    body = {"keyid": keyid, "after": after, "successor": row and _key_to_json(home, row), "renewed": renewed}
    show(json, body, f"{keyid}: nothing counts that it signed after entry {after}")
    if row:
        note(f"{row.role} {row.keyid} took its place, from entry {row.added}")
    _after(home, issuer_key)


def renew(json: Json = False) -> None:
    """Make proofs anew that a compromised log key had signed. `mark-compromised` does so; this is for after a cut.

    \b
    dpserve key renew-proofs
    """
    renewed = _renew(Home.open())
    show(json, {"renewed": renewed}, "\n".join(renewed))


def _renew(home: Home) -> list[str]:
    renewed = renew_proofs(ModelStore(home.models), home.trust, home.ledger.log.proof)
    if renewed:
        note(f"Proofs made anew, send them to who has copies: {', '.join(renewed)}")
    return renewed


def passphrase(
    remove: Annotated[bool, typer.Option("--remove", help="Leave the keys without one.")] = False, json: Json = False
) -> None:
    """Encrypt the private keys by the passphrase in DPSERVE_NEW_KEY_PASSPHRASE instead of DPSERVE_KEY_PASSPHRASE.

    \b
    DPSERVE_NEW_KEY_PASSPHRASE=... dpserve key passphrase
    """
    new = os.environ.get(NEW_PASSPHRASE)
    if (new is None) != remove:
        raise InputError(f"{NEW_PASSPHRASE}: must be set, or left out with --remove")
    key_life.change_passphrase(Home.open(), None if new is None else os.fsencode(new))
    show(
        json,
        {"encrypted": not remove},
        "the keys have no passphrase now" if remove else "the keys have a new passphrase",
    )
    note(f"From now on DPSERVE_KEY_PASSPHRASE must be {'unset' if remove else 'the new one'}.")


def revoke(
    reason: Reason,
    model: Annotated[str | None, typer.Argument(help="MODEL or MODEL@VERSION.")] = None,
    entry: Annotated[int | None, typer.Option(help="Instead of a model: the index of its `issued` entry.")] = None,
    json: Json = False,
) -> None:
    """Revoke a model's certificate permanently. Verifiers refuse it once they have the new trust file.

    \b
    dpserve key revoke adult@2 --reason "trained on the wrong file"
    """
    home = open_home("admin")
    if (model is None) == (entry is None):
        raise InputError("model, entry: give one of them")
    if entry is None:
        proof = read_bundle(ModelStore(home.models).resolve(model or "")).proof
        issued = parse_proof(proof.decode("utf-8", "replace")).index
    else:
        issued = entry
    index = key_life.revoke(home, issued, this_user(), reason)
    name = str(home.ledger.log.entry(issued).value["name"])
    serves, offer = answering(home, name)
    out = {"name": name, "serves": serves, **way_out(name, offer)}
    text = f"the certificate of entry {issued} is revoked, by entry {index}"
    show(json, {"issued": issued, "entry": index, **out}, text)
    if serves is None:
        note(nothing_served(name, out["command"]))
    _after(home, None)


def _after(home: Home, issuer_key: str | None) -> None:
    note(f"Give verifiers the new {home.path / TRUST}.")
    if issuer_key is not None:
        value = "unset" if in_keys(issuer_key) else issuer_key
        note(f"From now on DPSERVE_ISSUER_KEY must be {value}.")
