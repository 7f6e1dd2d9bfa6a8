"""From released numbers to a certified bundle: export, sign, issue, store. Post-processing, free, and resumable at
every step.

`jobs/<number>/` holds what is released but not yet in the store: `ensemble.json` before the commit, the signed
envelope before the `issued` entry. Every step gives the same bytes when it is done again.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from accountant.access import key_life
from accountant.certificates import statement
from accountant.errors import JobFailed, RowsUnavailable, UnknownName
from accountant.home import Home
from accountant.ledger import model_names
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.records import Job, request_from_entry
from dpserve_verify.certificates.bundle import Bundle
from dpserve_verify.certificates.certificate import digest, verify
from dpserve_verify.errors import ModelInvalid
from dpserve_verify.keys import dsse
from dpserve_verify.privacy.events import plan_from_json
from dpserve_verify.system.files import PRIVATE, locked, replace_file, sync_directory
from models.forms.ensemble import Ensemble
from models.forms.registry import ensemble_bytes, ensemble_from_bytes
from models.onnx.export import metadata_of, to_onnx
from models.store import placing
from models.store.bundle import ModelStore
from models.store.loading import card_of, domains, stated_range
from training.rows.schema.schema import schema_of

ENSEMBLE, ENVELOPE = "ensemble.json", "model.onnx.dsse.json"


def keep(home: Home, seq: int, ensemble: Ensemble) -> str:
    """Put the released numbers on disk, durably, before they are committed. Returns their sha256."""
    folder = home.jobs / str(seq)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    raw = ensemble_bytes(ensemble)
    replace_file(folder / ENSEMBLE, raw, PRIVATE, alone=True)
    sync_directory(home.jobs)
    return digest(raw)


def finish(home: Home, seq: int) -> Path:
    """Bring a committed job to its end, from wherever it stands. Returns the model's folder."""
    folder = home.jobs / str(seq)
    with lock_job(home, seq):
        job = home.ledger.job(seq)
        if not folder.exists():
            return _find_stored(home, job)
        raw = (folder / ENSEMBLE).read_bytes()
        if digest(raw) != home.ledger.released_digest(seq):
            raise ModelInvalid(f"job {seq}: {ENSEMBLE} is not what was committed")
        ensemble = ensemble_from_bytes(raw)
        target = request_from_entry(home.ledger.reservation(seq).value).target
        onnx = to_onnx(ensemble, metadata_of(job.dataset, job.model, seq, target))
        envelope = _envelope(home, folder, job, ensemble, onnx)
        issued = job.issued
        if issued is None:
            payload = dsse.parse(envelope).payload
            issued = home.ledger.issue(seq, digest(payload), digest(onnx), key_life.signed_by(envelope))
        place = store(home, job.model, bundle_of(home, ensemble, onnx, envelope, issued))
        _place(home, job, issued, int(place.name))
        discard(folder)
        return place


def _place(home: Home, job: Job, issued: int, version: int) -> None:
    """Promote the first version of a name, and one for which that was asked; any other is a candidate."""
    entry = home.ledger.reservation(job.seq).value
    if model_names.is_first(home.ledger, job, issued):
        placing.promote_first(home, job.model, version)
    elif "promote" in entry:
        placing.promote_once(home, job.model, version, issued, f"asked for with job {job.seq}", entry["by"])


def forget(home: Home, seq: int) -> None:
    """Remove what a burned job left behind."""
    with lock_job(home, seq):
        if (home.jobs / str(seq)).exists():
            discard(home.jobs / str(seq))


def discard(folder: Path) -> None:
    """Remove in one step: a folder cut in half would look like a job whose numbers were lost."""
    gone = folder.with_name(f".{folder.name}.gone")
    if gone.exists():  # left by an earlier cut
        shutil.rmtree(gone)
    folder.rename(gone)
    shutil.rmtree(gone)


def _envelope(home: Home, folder: Path, job: Job, ensemble: Ensemble, onnx: bytes) -> bytes:
    """Sign the certificate once, so that every later try reads the same bytes, and return it. Where its key may sign no
    more and it was not issued yet, the same statement is signed anew.
    """
    path = folder / ENVELOPE
    if path.exists():
        envelope = path.read_bytes()
        if job.issued is not None or key_life.may_issue(home.ledger, key_life.signed_by(envelope)):
            return envelope
        return sign(home, path, dsse.parse(envelope).payload)
    entry = home.ledger.reservation(job.seq).value
    request, dataset = request_from_entry(entry), home.ledger.dataset_of(job.seq)
    subject = statement.Subject(
        job.model,
        digest(onnx),
        digest(ensemble_bytes(ensemble)),
        request.learner,
        tuple(feature.name for feature in ensemble.features),
        ensemble.classes or None,  # none: a number
        domains(ensemble.features),
        stated_range(ensemble),
        _format_of(home, dataset, ensemble),
    )
    payload = statement.statement(
        subject,
        dataset,
        request,
        plan_from_json(entry["plan"]),
        home.ledger.log.origin,
        job.seq,
        home.ledger.reservation_hash(job.seq),
    )
    return sign(home, path, payload)


def _format_of(home: Home, dataset: Dataset, ensemble: Ensemble) -> str | None:
    """Return how tables of the dataset are written, as a certificate carries it: "" as usual, None where it cannot be
    said.
    """
    if dataset.registration.unit.remote:  # each owner's records are written as they are
        return ""
    with suppress(RowsUnavailable):
        return schema_of(home, dataset).format.to_text([feature.name for feature in ensemble.features])
    return None


def sign(home: Home, path: Path, payload: bytes) -> bytes:
    """Sign a statement by the key in force, write the envelope and return it."""
    key_life.keep_up(home)  # another process may have put a new key in force
    envelope = statement.sign(payload, home.keys)
    replace_file(path, envelope, PRIVATE, alone=True)
    return envelope


def bundle_of(home: Home, ensemble: Ensemble, onnx: bytes, envelope: bytes, issued: int) -> Bundle:
    """Return what the store keeps of a model, its certificate verified against this home first."""
    proof = home.ledger.log.proof(issued)
    verified = verify(envelope, proof, onnx, home.trust)
    card, sigstore = card_of(ensemble, verified), dsse.to_sigstore_bundle(envelope)
    return Bundle(onnx, envelope, sigstore, proof.encode(), ensemble_bytes(ensemble), card.encode())


def store(home: Home, name: str, bundle: Bundle) -> Path:
    """Add to the store, unless a cut earlier try has done so already."""
    models = ModelStore(home.models)
    earlier = _version_of(models, name, bundle.envelope)
    version = models.add(name, bundle) if earlier is None else earlier
    return models.resolve(f"{name}@{version}")


def _version_of(store: ModelStore, model: str, envelope: bytes) -> int | None:
    with suppress(UnknownName):  # the first of its name
        for version in reversed(store.versions(model)):
            if (store.root / model / str(version) / ENVELOPE).read_bytes() == envelope:
                return version
    return None


def _find_stored(home: Home, job: Job) -> Path:
    if job.issued is None:
        raise JobFailed(f"job {job.seq}: is {job.state.value}, and its released numbers are not in the home")
    wanted = home.ledger.log.entry(job.issued).value["statement"]
    store = ModelStore(home.models)
    for version in reversed(store.versions(job.model)):
        place = store.resolve(f"{job.model}@{version}")
        if digest(dsse.parse((place / ENVELOPE).read_bytes()).payload) == wanted:
            return place
    raise JobFailed(f"job {job.seq}: its model is not in the store any more")


@contextmanager
def lock_job(home: Home, name: int | str, wait: bool = True) -> Iterator[None]:
    """Hold the lock of a job or an edit, so that one process at a time finishes it. Without `wait`, BlockingIOError
    where another is at it.
    """
    home.jobs.mkdir(mode=0o700, exist_ok=True)
    with locked(home.jobs / f".{name}.lock", wait):
        yield
