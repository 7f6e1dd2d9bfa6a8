"""What an edited model came from: its certificate, its released numbers and the ledger must tell one story."""

from __future__ import annotations

from accountant.certificates.edited_models import Ancestor
from accountant.ledger.ledger import Ledger
from dpserve_verify.certificates.certificate import Certificate
from dpserve_verify.errors import ModelInvalid
from models.parts.released import Released


def check_edits(ensemble: Released, certificate: Certificate) -> None:
    """Raise ModelInvalid unless the edits that the numbers carry are those that the certificate lists."""
    carried = [edit.to_json() for edit in ensemble.edits]
    if bool(carried) != bool(certificate.ancestors):
        raise ModelInvalid("ensemble.json: edits stand in a derived model, and in no other")
    listed = certificate.form.public.edits
    if listed is not None and [edit.to_json() for edit in listed] != carried:
        raise ModelInvalid("ensemble.json: its edits are not those that the certificate lists")


def check_released(ledger: Ledger, certificate: Certificate) -> None:
    """Raise ModelInvalid unless the numbers, as they were before any edit, are what the ledger says was released."""
    chain = certificate.ancestors
    if chain:
        lineage = ledger.lineage(certificate.issued)[:-1]
        if [(entry.seq, entry.value["statement"]) for entry in lineage] != [(a.entry, a.statement) for a in chain]:
            raise ModelInvalid("certificate: supersedes other entries than this ledger holds")
    first = chain[0].ensemble if chain else certificate.form.public.ensemble
    if ledger.released_digest(certificate.reservation) != first:
        raise ModelInvalid("ensemble.json: is not what the ledger says was released")


def ancestors(certificate: Certificate, statement: str) -> list[Ancestor]:
    """Return what a model made from this one came from. `statement`: the sha256 of this one's."""
    before = [Ancestor(each.entry, each.statement, each.ensemble) for each in certificate.ancestors]
    return [*before, Ancestor(certificate.issued, statement, certificate.form.public.ensemble)]
