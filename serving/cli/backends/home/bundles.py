"""Released models of a home, opened one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from accountant.home import Home
from accountant.ledger.model_names import require_edit
from accountant.log.stored_proofs import inclusion
from accountant.system.lazy_import import later
from dpserve_verify.certificates.bundle import Bundle, read_bundle
from dpserve_verify.certificates.certificate import verify
from dpserve_verify.errors import CertificateRevoked, InputError
from dpserve_verify.log.witnessed import read_witnessed
from models.store.bundle import ModelStore
from models.store.loading import load_of_home
from models.store.placing import answering
from models.store.since import growth_since
from models.store.standing import way_out
from models.worth.statements import statement_of, worths
from serving.cli.backends.abstract import Body, Bundles, OpenedModel
from serving.cli.backends.user import require_access, this_user

if TYPE_CHECKING:
    from models.edit import curves, edit_list, editing
    from training.finish import derive
else:  # a model that is only shown does without
    curves, edit_list = later("models.edit.curves"), later("models.edit.edit_list")
    editing, derive = later("models.edit.editing"), later("training.finish.derive")


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
        return [(body["job"], *statement_of(home, body["job"])[:2]) for body in self.statements(model)]

    def edit(self, base: OpenedModel, edits: Sequence[Any], reason: str, by: str | None, promote: bool) -> Body:
        """Apply edits to a model, certify the result, and store it as a version."""
        home, before = Home.open(), curves.to_curves(base.verified.ensemble)
        name, dataset = base.reference.partition("@")[0], base.verified.certificate.form.dataset.name
        require_edit(home.ledger, require_access(home), name, dataset, promote)
        after = edit_list.edit_all(before, edits, editing.EditNote(by or this_user(), reason))
        folder = derive.derive(home, base.verified, after, promote)
        new_edits = after.edits[len(before.edits) :]
        return {"model": f"{folder.parent.name}@{folder.name}", "edits": [edit.to_json() for edit in new_edits]}


def open_in(home: Home, name: str) -> OpenedModel:
    """Return a verified model of a home. Raises UnknownName; CertificateRevoked with the version to use instead."""
    folder = ModelStore(home.models).resolve(name)
    model = folder.parent.name
    try:
        return OpenedModel(f"{model}@{folder.name}", str(folder), load_of_home(home, folder, model, runs=False))
    except CertificateRevoked as error:
        _, offer = answering(home, model)
        instead = way_out(model, offer)
        message = f"{error.message}; {instead['command'] or 'no other version verifies'}"
        raise CertificateRevoked(message, **instead) from None
