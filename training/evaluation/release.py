"""From noisy counts to a signed statement of worth: free, and resumable at every step.

`jobs/<number>/counts.json` holds what was released, before it is committed; the signed envelope is written there before
its entry. Every step gives the same bytes when it is done again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.certificates import worth
from accountant.certificates.certificate import digest
from accountant.certificates.worth import Measured, Worth
from accountant.errors import JobFailed, LedgerInvalid, UnknownName
from accountant.files import PRIVATE, replace_file, sync_directory
from accountant.home import Home
from accountant.keys import dsse
from accountant.ledger import evaluations, key_life
from accountant.ledger.records import Job, Request, request_from_entry
from accountant.privacy.events import Plan, PureDp, plan_from_json
from models.worth.metrics import beats_constant
from models.worth.stated import LEVEL, check, figures, histogram_form, layout_of, model_form
from training.evaluation.evaluate import certified, learnt_from, part_of
from training.release import alone, discard, sign

COUNTS, ENVELOPE, PROOF = "counts.json", "worth.dsse.json", "worth.tlog-proof"


def keep_counts(home: Home, seq: int, counts: NDArray[np.int64]) -> str:
    """Put the released counts on disk, durably, before they are committed. Returns their sha256."""
    folder = home.jobs / str(seq)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    raw = json.dumps(counts.tolist()).encode()
    replace_file(folder / COUNTS, raw, PRIVATE, alone=True)
    sync_directory(home.jobs)
    return digest(raw)


def finish_evaluation(home: Home, seq: int) -> Path:
    """Bring a committed evaluation to its end, from wherever it stands. The folder of its statement."""
    folder, place = home.jobs / str(seq), home.evaluations / str(seq)
    with alone(home, seq):
        job = home.ledger.job(seq)
        if not folder.exists():
            if not (place / ENVELOPE).exists():
                raise JobFailed(f"job {seq}: is {job.state.value}, and its counts are not in the home", job=seq)
            return place
        envelope, issued = _envelope(home, folder, job), job.issued
        if issued is None:
            payload = dsse.parse(envelope).payload
            issued = evaluations.enter(home.ledger.log, seq, digest(payload), key_life.signed_by(envelope))
        proof = home.ledger.log.proof(issued)
        check(worth.verify(envelope, proof, home.trust))
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(place / PROOF, proof.encode(), PRIVATE, alone=True)
        replace_file(place / ENVELOPE, envelope, PRIVATE, alone=True)
        discard(folder)
        return place


def _envelope(home: Home, folder: Path, job: Job) -> bytes:
    """The signed statement, written once, so that every later try speaks of the same bytes; signed anew only where its
    key may sign no more and it was not entered yet.
    """
    path = folder / ENVELOPE
    if path.exists():
        envelope = path.read_bytes()
        if job.issued is not None or key_life.may_issue(home.ledger, key_life.signed_by(envelope)):
            return envelope
        return sign(home, path, dsse.parse(envelope).payload)
    raw = (folder / COUNTS).read_bytes()
    if digest(raw) != home.ledger.released_digest(job.seq):
        raise LedgerInvalid(f"job {job.seq}: {COUNTS} is not what was committed")
    entry = home.ledger.reservation(job.seq).value
    return sign(
        home, path, _payload(home, job, request_from_entry(entry), plan_from_json(entry["plan"]), json.loads(raw))
    )


def _payload(home: Home, job: Job, request: Request, plan: Plan, counts: list[int]) -> bytes:
    assert request.evaluates is not None
    verified = certified(home, request.model, request.evaluates)
    dataset = home.ledger.dataset(request.dataset, part=request.part)
    layout, part = layout_of(verified.ensemble), part_of(dataset)
    variance = variance_of(plan)
    found = figures(layout, counts, variance, dataset.registration.unit.contributions)
    measured = Measured(
        model_form(verified.ensemble, request.model, request.evaluates),
        verified.certificate.sha256,
        part,
        request.part is None and learnt_from(verified.certificate, dataset),
        histogram_form(layout, counts, variance),
        LEVEL,
        found,
        beats_constant(layout.kind, found),
    )
    leaf = home.ledger.reservation_hash(job.seq)
    return worth.statement(measured, dataset, request, plan, home.ledger.log.origin, job.seq, leaf)


def variance_of(plan: Plan) -> float:
    """Of the discrete Laplace noise of the one release of this plan."""
    ((release, _),) = plan.runs
    assert isinstance(release.event, PureDp)
    ratio = float(np.exp(-float(release.event.epsilon) / release.sensitivity))
    return 2 * ratio / (1 - ratio) ** 2


def statement_of(home: Home, seq: int) -> tuple[bytes, bytes, Worth]:
    """The envelope and the proof of a finished evaluation, verified against this home; that its figures follow from its
    counts was checked before it was put here. UnknownName where there is none.
    """
    place = home.evaluations / str(seq)
    try:
        envelope, proof = (place / ENVELOPE).read_bytes(), (place / PROOF).read_bytes()
    except OSError:
        raise UnknownName(f"job={seq}: no statement of worth of it is in this home", job=seq) from None
    return envelope, proof, worth.verify(envelope, proof.decode("utf-8", "replace"), home.trust)


def worths(home: Home, issued: int) -> list[dict[str, Any]]:
    """What is known of the worth of the model that this entry certifies, the newest first: for pages and programs."""
    found = []
    for seq in evaluations.of_model(home.ledger.log.database, issued):
        try:
            found.append(worth_to_json(seq, statement_of(home, seq)[2]))
        except UnknownName:  # in another home of the same ledger
            continue
    return found


def worth_to_json(seq: int, found: Worth) -> dict[str, Any]:
    """A verified statement for programs."""
    form = found.form
    return {
        "job": seq,
        "entry": found.entry,
        "model": found.model,
        "certificate": form.model.certificate,
        "dataset": form.rows.dataset,
        "part": form.rows.part,
        "seen": form.rows.seen,
        "epsilon": form.claim.epsilon,
        "delta": form.claim.delta,
        "level": form.level,
        "better": form.better,
        "metrics": [each.model_dump(by_alias=True, exclude_unset=True) for each in form.metrics],
        "histogram": form.histogram.model_dump(),
    }
