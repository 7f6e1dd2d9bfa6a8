"""What the ledger says came after a certificate: the signed one is never rewritten, so whoever shows it says this."""

from __future__ import annotations

from accountant.errors import UnknownName
from accountant.ledger.families.families import Dataset
from accountant.ledger.ledger import Ledger
from dpserve_verify.certificates.certificate import Certificate


def growth_since(ledger: Ledger, certificate: Certificate) -> tuple[str, ...]:
    """Say how the certificate's dataset grew since, and what bounds one unit now; nothing where it did not grow."""
    stated = certificate.form.dataset
    try:
        now = ledger.dataset(stated.name)
    except UnknownName:
        return ()
    before, last = (1 if stated.blocks is None else stated.blocks.of), now.last or 1
    if now.uuid != stated.uuid or last <= before:
        return ()
    first = f"The dataset has grown from {before} {'block' if before == 1 else 'blocks'} to {last} since."
    if stated.blocks is None:
        first += " This model was learnt from block 1, and its certificate speaks of that block alone."
    return first, bound_now(now)


def bound_now(now: Dataset) -> str:
    """Say what bounds one unit of a dataset that grew, over all of its blocks."""
    unit, total = now.registration.unit, now.own[0]
    if unit.column is None:
        return f"Each record stands in one block, and keeps that block's total, epsilon {total.largest:f}."
    if now.person is not None:
        most = now.person
        return (
            f"All that is ever released from it keeps, for any one {unit.name} in however many blocks, the total of "
            f"epsilon {most.largest:f} at delta {most.budget.delta:f}."
        )
    blocks = now.last or 1
    return (
        f"No total for one {unit.name} over all blocks is in force: each block promises epsilon {total.largest:f} for "
        f"itself, and for one who stands in all {blocks} that comes to epsilon {(blocks * total.largest):f}."
    )
