"""From an edited model to a certified bundle: export, sign, enter, store. No row is read and nothing is spent.

`jobs/edit-<digest>/` holds what is not yet in the store; its name is made from the base and the edits, whenever they
were made. A try that was cut is taken up where it stood when the same edits are asked for again: with the same bytes,
and with the entry that it may have made. A cut that nobody takes up leaves at most an entry that binds a model nobody
has.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from accountant.access import key_life
from accountant.certificates.edited_models import statement_of
from accountant.errors import WrongState
from accountant.home import Home
from accountant.ledger.families.records import Why
from dpserve_verify.certificates import certificate
from dpserve_verify.certificates.bundle import read_bundle
from dpserve_verify.errors import InputError, ModelInvalid
from dpserve_verify.keys import dsse
from dpserve_verify.system.files import PRIVATE, replace_file
from models.edit.curves import Curves, same_but_for_terms, to_curves
from models.forms.registry import ensemble_bytes, ensemble_from_bytes
from models.onnx.export import metadata_of, to_onnx
from models.store import placing
from models.store.bundle import ModelStore
from models.store.lineage import ancestors
from models.store.loading import VerifiedModel
from models.store.standing import entry_of
from training.finish.release import ENSEMBLE, ENVELOPE, bundle_of, discard, lock_job, sign, store

SINCE = "since"  # the file that holds the ledger's size before the entry was made


def derive(home: Home, base: VerifiedModel, edited: Curves, promote: bool = False) -> Path:
    """Sign and store an edited model as the next version of its base's name, and return its folder. It is a candidate,
    unless `promote` makes it champion at once, in the name of the person who edited it.

    `base`: as it was verified against this home. InputError where the edits do not continue those of the base;
    WrongState where the same person has already made a version from it with the same edits."""
    _check_follows(base, edited)
    home.keys.signer("issuer")  # KeyInvalid where this process has none
    issued = base.certificate
    # One folder for the same edits of the same model, whenever they are made.
    change = json.dumps([issued.issued, certificate.digest(ensemble_bytes(_timeless(edited)))])
    folder = home.jobs / f"edit-{certificate.digest(change.encode())[:32]}"
    with lock_job(home, f"edit-{base.certificate.reservation}"):
        if not folder.exists():  # else it was cut, and is gone on with
            _check_new(home, issued.issued, issued.model, edited)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        model = _keep_numbers(folder, edited)
        form = issued.form
        about = metadata_of(form.dataset.name, issued.model, issued.reservation, form.public.target)
        onnx = to_onnx(model, about)
        envelope, index = _sign_and_enter(home, folder, base, model, onnx)
        name = base.certificate.model
        place = store(home, name, bundle_of(home, model, onnx, envelope, index))
        if promote:
            placing.promote_once(home, name, int(place.name), index, model.edits[-1].why, model.edits[-1].by)
        discard(folder)
        return place


def _check_follows(base: VerifiedModel, edited: Curves) -> None:
    """Raise InputError unless the edits are those of the base and more, and only what bins add has changed."""
    before, after = base.ensemble.edits, edited.edits
    if len(after) <= len(before) or after[: len(before)] != before:
        raise InputError("edits: must be those of the model that is edited, and one more at least")
    if not same_but_for_terms(to_curves(base.ensemble), edited):
        raise InputError("model: an edit changes what bins add, and no feature, target, class, unit or count")


def _check_new(home: Home, base: int, name: str, edited: Curves) -> None:
    """Raise WrongState where the same person made this very edit before: `details["model"]` names that version."""
    models, by = ModelStore(home.models), edited.edits[-1].by
    for version in reversed(models.versions(name)):
        folder = home.models / name / str(version)
        entry = entry_of(folder)
        fields = {} if entry is None else home.ledger.log.entry(entry).value
        if (fields.get("type"), fields.get("base"), fields.get("by")) != ("derived", base, by):
            continue
        if entry not in home.trust.revoked and _timeless(
            ensemble_from_bytes(read_bundle(folder).ensemble)
        ) == _timeless(edited):
            raise WrongState(
                f"edits: {name}@{version} has these already, for this reason; dpserve model promote {name}@{version}",
                model=f"{name}@{version}",
            )


def _timeless(model: Any) -> Any:
    """Return the model with one fixed time in all its edits, to compare it whenever they were made."""
    return replace(model, edits=tuple(replace(edit, at="1970-01-01T00:00:00Z") for edit in model.edits))


def _keep_numbers(folder: Path, edited: Curves) -> Curves:
    """Write the edited numbers once, and return them as an earlier try wrote them, or as they are now."""
    path = folder / ENSEMBLE
    if not path.exists():
        replace_file(path, ensemble_bytes(edited), PRIVATE, alone=True)
    released = ensemble_from_bytes(path.read_bytes())
    if type(released) is not type(edited) or replace(released, edits=edited.edits) != edited:
        raise ModelInvalid(f"{path}: is not what was edited; remove that folder")
    return released


def _sign_and_enter(home: Home, folder: Path, base: VerifiedModel, model: Curves, onnx: bytes) -> tuple[bytes, int]:
    """Sign the certificate and enter it, once, and return it with its entry's index. A try that was cut goes on. Where
    its key may sign no more and it was not entered yet, the same statement is signed anew.
    """
    path, since = folder / ENVELOPE, folder / SINCE
    if not path.exists():
        replace_file(since, str(home.ledger.log.size()).encode(), PRIVATE, alone=True)
        sign(home, path, _payload(base, model, onnx))
    envelope = path.read_bytes()
    payload = dsse.parse(envelope).payload
    statement = certificate.digest(payload)
    earlier = home.ledger.find_derived(statement, int(since.read_text()))
    if earlier is not None:
        return envelope, earlier
    if not key_life.may_issue(home.ledger, key_life.signed_by(envelope)):
        envelope = sign(home, path, payload)
    digest, signed_by = certificate.digest(onnx), key_life.signed_by(envelope)
    return envelope, home.ledger.derive(
        base.certificate.issued, statement, digest, Why(model.edits[-1].by, model.edits[-1].why), signed_by
    )


def _payload(base: VerifiedModel, model: Curves, onnx: bytes) -> bytes:
    payload = dsse.parse(base.bundle.envelope).payload
    chain = ancestors(base.certificate, certificate.digest(payload))
    edits = [edit.to_json() for edit in model.edits]
    digests = certificate.digest(onnx), certificate.digest(ensemble_bytes(model))
    return statement_of(payload, chain, edits, *digests)
