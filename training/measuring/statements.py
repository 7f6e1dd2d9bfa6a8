"""From noisy counts to a signed statement, of worth here: free, and resumable at every step.

`jobs/<number>/counts.json` holds what was released, before it is committed; the signed envelope is written there before
its entry. Every step gives the same bytes when it is done again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from accountant.access import key_life
from accountant.certificates import worth
from accountant.certificates.certificate import digest
from accountant.certificates.worth import Measured
from accountant.errors import JobFailed, LedgerInvalid
from accountant.home import Home
from accountant.keys import dsse
from accountant.ledger import evaluations
from accountant.ledger.families.records import Job, request_from_entry
from accountant.privacy.events import Plan, PureDp, plan_from_json
from accountant.system.files import PRIVATE, replace_file, sync_directory
from models.worth.stated import LEVEL, check, figures, histogram_form, is_better, model_form
from models.worth.statements import ENVELOPE, PROOF
from training.finish.release import alone, discard, sign
from training.measuring.worth.evaluate import evaluator_of, learnt_from, measured_by, part_of, seen_by_bins
from training.rows.schema.refined_schema import with_profiles
from training.rows.schema.schema import schema_of

COUNTS = "counts.json"


def keep_counts(home: Home, seq: int, counts: NDArray[np.int64]) -> str:
    """Put the released counts on disk, durably, before they are committed. Returns their sha256."""
    folder = home.jobs / str(seq)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    raw = json.dumps(counts.tolist()).encode()
    replace_file(folder / COUNTS, raw, PRIVATE, alone=True)
    sync_directory(home.jobs)
    return digest(raw)


@dataclass(frozen=True)
class Stated:
    """A kind of signed statement about released counts. `place`: where those lie that are finished; `payload`: what is
    signed, of a job and its counts; `enter`: the job, the statement's digest, its key's id -> its new entry; `check`:
    raises unless envelope and proof verify, and every figure follows from the counts.
    """

    place: Path
    envelope: str
    proof: str
    payload: Callable[[Job, list[int]], bytes]
    enter: Callable[[int, str, str], int]
    check: Callable[[bytes, str], None]


def finish_evaluation(home: Home, seq: int) -> Path:
    """Bring a committed evaluation to its end, from wherever it stands. The folder of its statement."""
    return finish_stated(
        home,
        seq,
        Stated(
            home.evaluations,
            ENVELOPE,
            PROOF,
            partial(_payload, home),
            partial(evaluations.enter, home.ledger.log),
            lambda envelope, proof: check(worth.verify(envelope, proof, home.trust)),
        ),
    )


def finish_stated(home: Home, seq: int, kind: Stated) -> Path:
    """Bring a committed job to its signed statement, from wherever it stands. The statement's folder."""
    folder, place = home.jobs / str(seq), kind.place / str(seq)
    with alone(home, seq):
        job = home.ledger.job(seq)
        if not folder.exists():
            if not (place / kind.envelope).exists():
                raise JobFailed(f"job {seq}: is {job.state.value}, and its counts are not in the home", job=seq)
            return place
        envelope, issued = _envelope(home, folder, job, kind), job.issued
        if issued is None:
            payload = dsse.parse(envelope).payload
            issued = kind.enter(seq, digest(payload), key_life.signed_by(envelope))
        proof = home.ledger.log.proof(issued)
        kind.check(envelope, proof)
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(place / kind.proof, proof.encode(), PRIVATE, alone=True)
        replace_file(place / kind.envelope, envelope, PRIVATE, alone=True)
        discard(folder)
        return place


def _envelope(home: Home, folder: Path, job: Job, kind: Stated) -> bytes:
    """The signed statement, written once, so that every later try speaks of the same bytes; signed anew only where its
    key may sign no more and it was not entered yet.
    """
    path = folder / kind.envelope
    if path.exists():
        envelope = path.read_bytes()
        if job.issued is not None or key_life.may_issue(home.ledger, key_life.signed_by(envelope)):
            return envelope
        return sign(home, path, dsse.parse(envelope).payload)
    raw = (folder / COUNTS).read_bytes()
    if digest(raw) != home.ledger.released_digest(job.seq):
        raise LedgerInvalid(f"job {job.seq}: {COUNTS} is not what was committed")
    return sign(home, path, kind.payload(job, json.loads(raw)))


def _payload(home: Home, job: Job, counts: list[int]) -> bytes:
    entry = home.ledger.reservation(job.seq).value
    request, plan = request_from_entry(entry), plan_from_json(entry["plan"])
    assert request.evaluates is not None
    models = measured_by(home, request)
    dataset = with_profiles(home, home.ledger.dataset_of(job.seq))
    evaluator = evaluator_of([each.ensemble for each in models], schema_of(home, dataset), request.parameters)
    layout = evaluator.query.layout
    part = part_of(dataset)
    bins = [seen_by_bins(home, each.certificate, dataset, part) for each in models]
    seen = [
        bool(entries) or (request.part is None and learnt_from(each.certificate, dataset))
        for each, entries in zip(models, bins, strict=True)
    ]
    forms = [model_form(each.ensemble, each.certificate.model, each.certificate.issued) for each in models]
    variance = variance_of(plan)
    found = figures(layout, counts, variance, dataset.registration.unit.contributions)
    measured = Measured(
        forms[0],
        models[0].certificate.sha256,
        part,
        seen[0],
        histogram_form(layout, counts, variance),
        LEVEL,
        found,
        is_better(layout.kind, found),
        None if request.against is None else {**forms[1], "sha256": models[1].certificate.sha256, "seen": seen[1]},
        bins[0],
    )
    leaf = home.ledger.reservation_hash(job.seq)
    return worth.statement(measured, dataset, request, plan, home.ledger.log.origin, job.seq, leaf)


def variance_of(plan: Plan) -> float:
    """Of the discrete Laplace noise of the one release of this plan."""
    ((release, _),) = plan.runs
    assert isinstance(release.event, PureDp)
    ratio = float(np.exp(-float(release.event.epsilon) / release.sensitivity))
    return 2 * ratio / (1 - ratio) ** 2
