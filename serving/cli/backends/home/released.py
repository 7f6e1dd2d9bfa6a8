"""Released models of a home, opened one at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from accountant.certificates.certificate import verify
from accountant.errors import CertificateRevoked, InputError
from accountant.home import Home
from accountant.log import collect
from accountant.log.stored_proofs import inclusion
from models.store.bundle import Bundle, ModelStore, read_bundle
from models.store.loading import load_of_home
from models.store.placing import answering
from models.store.since import growth_since
from models.store.standing import way_out
from models.worth import statements as stated
from serving.cli.released.opened import Opened


def opened(name: str) -> Opened:
    """A model, verified, its graph not opened yet. Raises UnknownName, or VerificationError; never warns."""
    home = Home.open()
    folder = ModelStore(home.models).resolve(name)
    model = folder.parent.name
    try:
        return Opened(f"{model}@{folder.name}", str(folder), load_of_home(home, folder, model, runs=False))
    except CertificateRevoked as error:
        _, offer = answering(home, model)
        out = way_out(model, offer)
        raise CertificateRevoked(f"{error.message}; {out['command'] or 'no other version verifies'}", **out) from None


def grown_since(model: Opened) -> tuple[str, ...]:
    """Say how its dataset grew since its certificate was issued."""
    return growth_since(Home.open().ledger, model.verified.certificate)


def worths_of(model: Opened) -> list[dict[str, Any]]:
    """What it was measured to be worth, the newest first."""
    return stated.worths(Home.open(), model.verified.certificate.issued)


def statements(model: Opened) -> list[tuple[int, bytes, bytes]]:
    """The same as it was signed: the job's number, envelope and proof."""
    home = Home.open()
    return [(each["job"], *stated.statement_of(home, each["job"])[:2]) for each in worths_of(model)]


def witnessed(model: Opened) -> Bundle:
    """Its files with a newer proof, against the checkpoint that witnesses cosigned; verified as well."""
    home, verified = Home.open(), model.verified
    note = collect.kept(home.path)
    if note is None:
        raise InputError("witnessed: no checkpoint was cosigned yet; run dpserve ledger witness")
    with home.ledger.log.database.reading() as connection:
        proof = inclusion(connection, verified.certificate.issued, note)
    verify(verified.bundle.envelope, proof, verified.bundle.onnx, home.trust)
    return replace(verified.travelling, proof=proof.encode())


def files(name: str) -> Bundle:
    """The files of a model as they lie there: to be verified."""
    return read_bundle(ModelStore(Home.open().models).resolve(name))
