"""Every version of a home for a list: its files held against what the ledger entered of them.

The entry of a certificate names the statement and the model by their digests, the statement the released numbers; and
the issuer's signature is there. So these are the files that this ledger issued. That the claim follows from the
releases and that the graph is harmless is asked by whoever serves, exports or verifies one: that takes as long for each
as a list of a hundred.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any

from accountant.errors import words_of
from accountant.home import Home
from dpserve_verify.certificates.bundle import read_bundle
from dpserve_verify.errors import CertificateInvalid, CertificateRevoked, ModelInvalid, VerificationError
from dpserve_verify.formats.canonical import decimal_string
from dpserve_verify.keys import dsse
from dpserve_verify.keys.trust import PublicKeys
from dpserve_verify.log import proofs
from models.store.bundle import CHAMPION, ModelStore
from models.store.index import look
from models.store.standing import Standing, standing

NOT_KNOWN: Mapping[str, str | None] = {"dataset": None, "learner": None, "target": None}


@dataclass(frozen=True)
class Looked:
    """What was found in a version's folder: the certificate of a model that is sound, with what it says of dataset,
    learner and target, or what is wrong with it.
    """

    certificate: dict[str, Any] | None = None
    subject: Mapping[str, str | None] = field(default_factory=lambda: NOT_KNOWN)
    error: VerificationError | None = None


def versions_in(home: Home) -> list[tuple[str, int]]:
    """Return the name and number of every version, by name; no file of them is read."""
    shelves = look(ModelStore(home.models)).shelves
    return [(name, version) for name, shelf in shelves.items() for version in shelf.versions]


def lines(home: Home, versions: Iterable[tuple[str, int]]) -> Iterator[dict[str, Any]]:
    """Yield the line of each of these versions; of one that is retired no file is read."""
    trust, shelves = home.trust, look(ModelStore(home.models)).shelves
    for name, version in versions:
        shelf = shelves.get(name)
        if shelf is None or version not in shelf.versions:  # removed this moment
            continue
        retired = version in shelf.retired
        found = None if retired else looked_at(home, home.models / name / str(version), name, trust)
        revoked = found is not None and isinstance(found.error, CertificateRevoked)
        yield line(name, version, standing(version, shelf.champion, retired, revoked), found)


def line(name: str, version: int, state: Standing, found: Looked | None) -> dict[str, Any]:
    """Return a version for programs. `found` None: it was not looked at."""
    return {
        "model": f"{name}@{version}",
        "name": name,
        "version": version,
        CHAMPION: state is Standing.CHAMPION,
        "state": state.value,
        # None: it is retired; at a server also: nobody asked for it yet and the background has not come to it
        "verified": None if found is None else found.error is None,
        **(found.subject if found else NOT_KNOWN),
        "certificate": found.certificate if found else None,
        "problem": words_of(found.error) if found and found.error else None,
    }


def looked_at(home: Home, folder: Path, name: str, trust: PublicKeys) -> Looked:
    """Return a version's files, held against the ledger."""
    try:
        return _sound(home, folder, name, trust)
    except VerificationError as error:
        return Looked(error=error)
    except Exception as error:  # one bundle that cannot be opened must not hide the others
        return Looked(error=ModelInvalid(f"model: cannot be opened ({type(error).__name__})"))


def _sound(home: Home, folder: Path, name: str, trust: PublicKeys) -> Looked:
    bundle = read_bundle(folder)
    entry = proofs.parse_proof(bundle.proof.decode()).index
    payload = dsse.verify(bundle.envelope, trust.issuer_keys(entry))
    predicate = json.loads(payload)["predicate"]
    claim, public = predicate["claim"], predicate["public"]
    digests = {"statement": _digest(payload), "model": _digest(bundle.onnx)}
    entered = home.ledger.log.entry(entry).value
    for what, value in {"name": name, **digests}.items():
        if entered.get(what) != value:
            raise CertificateInvalid(f"entry {entry}: its {what} is not the certificate's")
    if _digest(bundle.ensemble) != public["ensemble"]:
        raise ModelInvalid("ensemble.json: not the released numbers that the certificate names")
    for base in [*(each["entry"] for each in public.get("supersedes") or ()), entry]:
        if base in trust.revoked:
            raise CertificateRevoked(f"certificate: entry {base} was revoked")
    subject = {
        "dataset": predicate["dataset"]["name"],
        "learner": public["learner"],
        "target": json.loads(bundle.ensemble)["target"],
    }
    rows = predicate["dataset"]
    alone, said = (
        {each: decimal_string(Decimal(stated[each])) for each in ("epsilon", "delta")}
        for stated in (claim, rows.get("together") or claim)  # the sum stands first, as `headline` says
    )
    behind = {"alone": alone} if rows.get("madeFrom") else {}
    return Looked({"entry": entry, **digests, **said, "relation": claim["relation"], **behind}, subject)


def _digest(raw: bytes) -> str:
    return sha256(raw).hexdigest()
