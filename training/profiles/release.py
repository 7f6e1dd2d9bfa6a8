"""From noisy counts to a signed profile: free, and resumable at every step. As `training.evaluation.release`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from accountant.budget import Relation
from accountant.certificates import profile as profiles
from accountant.certificates.certificate import digest
from accountant.certificates.profile import Counted, Profile
from accountant.errors import JobFailed, LedgerInvalid, UnknownName
from accountant.files import PRIVATE, replace_file
from accountant.home import Home
from accountant.keys import dsse
from accountant.ledger import evaluations, key_life
from accountant.ledger.records import Job, request_from_entry
from accountant.privacy.events import plan_from_json
from models.profile.stated import check, figures, noise_of
from training.evaluation.evaluate import part_of
from training.evaluation.release import COUNTS
from training.profiles.counts import GRID
from training.profiles.profile import pairs_of, profiler_of
from training.release import alone, discard, sign
from training.rows.datasets import schema_of

ENVELOPE, PROOF = "profile.dsse.json", "profile.tlog-proof"


def finish_profile(home: Home, seq: int) -> Path:
    """Bring a committed profile to its end, from wherever it stands. The folder of its statement."""
    folder, place = home.jobs / str(seq), home.profiles / str(seq)
    with alone(home, seq):
        job = home.ledger.job(seq)
        if not folder.exists():
            if not (place / ENVELOPE).exists():
                raise JobFailed(f"job {seq}: is {job.state.value}, and its counts are not in the home", job=seq)
            return place
        envelope, issued = _envelope(home, folder, job), job.issued
        if issued is None:
            payload = dsse.parse(envelope).payload
            issued = evaluations.enter_profile(home.ledger.log, seq, digest(payload), key_life.signed_by(envelope))
        proof = home.ledger.log.proof(issued)
        check(profiles.verify(envelope, proof, home.trust))
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(place / PROOF, proof.encode(), PRIVATE, alone=True)
        replace_file(place / ENVELOPE, envelope, PRIVATE, alone=True)
        discard(folder)
        return place


def _envelope(home: Home, folder: Path, job: Job) -> bytes:
    """The signed statement, written once; signed anew only where its key may sign no more and it was not entered."""
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
    return sign(home, path, _payload(home, job, entry, json.loads(raw)))


def _payload(home: Home, job: Job, entry: dict[str, Any], counts: list[int]) -> bytes:
    request, plan = request_from_entry(entry), plan_from_json(entry["plan"])
    dataset = home.ledger.dataset(request.dataset, part=request.part)
    _, columns = profiler_of(schema_of(home, dataset), request.parameters)
    registration = dataset.registration
    known = registration.records if registration.relation is Relation.REPLACE_ONE else None
    told = figures(columns, pairs_of(request.parameters), counts, noise_of(plan, GRID), known, GRID)
    counted = Counted(part_of(dataset), known, GRID, told)
    leaf = home.ledger.reservation_hash(job.seq)
    return profiles.statement(counted, dataset, request, plan, home.ledger.log.origin, job.seq, leaf)


def profile_of(home: Home, seq: int) -> tuple[bytes, bytes, Profile]:
    """The envelope and the proof of a finished profile, verified against this home; that its figures follow from its
    counts was checked before it was put here. UnknownName where there is none.
    """
    place = home.profiles / str(seq)
    try:
        envelope, proof = (place / ENVELOPE).read_bytes(), (place / PROOF).read_bytes()
    except OSError:
        raise UnknownName(f"job={seq}: no profile of it is in this home", job=seq) from None
    return envelope, proof, profiles.verify(envelope, proof.decode("utf-8", "replace"), home.trust)


def profiles_of(home: Home, dataset: str) -> list[dict[str, Any]]:
    """The profiles of a dataset in this home, the newest first, without their figures: for pages and programs."""
    found = []
    for seq in evaluations.profiles_of(home.ledger.log.database, dataset):
        try:
            found.append(head_of(seq, profile_of(home, seq)[2]))
        except UnknownName:  # in another home of the same ledger
            continue
    return found


def head_of(seq: int, found: Profile) -> dict[str, Any]:
    """What a verified profile is about."""
    form = found.form
    return {
        "job": seq,
        "entry": found.entry,
        "dataset": found.dataset,
        "schema": found.schema,
        "part": form.rows.part,
        "epsilon": form.claim.epsilon,
        "delta": form.claim.delta,
        "level": form.level,
        "records": form.records,
    }


def profile_to_json(seq: int, found: Profile) -> dict[str, Any]:
    """A verified profile for programs. Counts are rows, to the third place."""
    stated, grid = found.statement["predicate"], found.form.grid
    rows = [
        [{**each, "counts": [round(count / grid, 3) for count in each["counts"]]} for each in stated[part]]
        for part in ("columns", "pairs")
    ]
    noise = "laplace" if stated["mechanisms"][0]["mechanism"] == "discrete-laplace" else "gaussian"
    more = {"noise": noise, **{name: stated[name] for name in ("variance", "levels")}}
    return {**head_of(seq, found), **more, "columns": rows[0], "pairs": rows[1]}
