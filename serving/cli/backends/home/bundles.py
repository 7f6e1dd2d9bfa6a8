"""Released models of a home, opened one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from accountant.certificates.attack import ATTACK
from accountant.certificates.worth import WORTH
from accountant.home import Home
from accountant.log.stored_proofs import inclusion
from dpserve_verify.certificates.bundle import Bundle, read_bundle
from dpserve_verify.certificates.certificate import verify
from dpserve_verify.errors import InputError
from dpserve_verify.log.witnessed import read_witnessed
from models.store.bundle import ModelStore
from models.store.loading import OpenedModel
from models.store.placing import open_in
from models.store.since import growth_since
from models.worth.attacks import attack_of
from models.worth.statements import worths
from serving.cli.backends.abstract import Body, Bundles


class HomeBundles(Bundles):
    """As `Bundles` says, with the files of the home."""

    def open(self, name: str) -> OpenedModel:
        """Return a verified model."""
        return open_in(Home.open(), name)

    def read(self, name: str) -> Bundle:
        """Return the files of a model, not verified."""
        return read_bundle(ModelStore(Home.open().models).resolve(name))

    def with_witnessed_proof(self, model: OpenedModel) -> Bundle:
        """Return its files with a newer proof, which is verified as well."""
        home, verified = Home.open(), model.verified
        checkpoint = read_witnessed(home.path)
        if checkpoint is None:
            raise InputError("witnessed: no checkpoint was cosigned yet; run dpserve ledger witness")
        with home.ledger.log.database.reading() as connection:
            proof = inclusion(connection, verified.certificate.issued, checkpoint)
        verify(verified.bundle.envelope, proof, verified.bundle.onnx, home.trust)
        return replace(verified.travelling, proof=proof.encode())

    def growth_since(self, model: OpenedModel) -> Sequence[str]:
        """Return sentences on how its dataset grew."""
        return growth_since(Home.open().ledger, model.verified.certificate)

    def statements(self, model: OpenedModel) -> list[Body]:
        """Return what it was measured to be worth."""
        return worths(Home.open(), model.verified.certificate.issued)

    def signed_statements(self, model: OpenedModel) -> list[tuple[int, bytes, bytes]]:
        """Return the same as it was signed."""
        home = Home.open()
        return [(body["job"], *WORTH.open(home, body["job"])[:2]) for body in self.statements(model)]

    def attack(self, model: OpenedModel) -> Body | None:
        """Return how the attack stands that was registered with its training, by the ledger."""
        return attack_of(Home.open(), model.verified.certificate.reservation)

    def signed_attacks(self, model: OpenedModel) -> list[tuple[int, bytes, bytes]]:
        """Return the same as it was signed."""
        place = ATTACK.place(Home.open(), job := model.verified.certificate.reservation)
        names = (ATTACK.envelope_file, ATTACK.proof_file)
        return [(job, *((place / name).read_bytes() for name in names))] if place.is_dir() else []  # type: ignore[list-item]
