"""From noisy counts to a signed profile: free, and resumable at every step. As `training.measuring.statements`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from accountant.certificates import profile as profiles
from accountant.certificates.profile import Counted, Profile
from accountant.errors import UnknownName
from accountant.home import Home
from accountant.ledger import evaluations
from accountant.ledger.families.records import Job, request_from_entry
from accountant.privacy.budget import Relation
from accountant.privacy.events import plan_from_json
from models.profile.stated import check, figures, noise_of
from training.measuring.profile.counts import GRID
from training.measuring.profile.profile import pairs_of, profiler_of
from training.measuring.statements import Stated, finish_stated
from training.measuring.worth.evaluate import part_of
from training.rows.schema.refined_schema import with_profiles
from training.rows.schema.schema import schema_of

ENVELOPE, PROOF = "profile.dsse.json", "profile.tlog-proof"


def finish_profile(home: Home, seq: int) -> Path:
    """Bring a committed profile to its end, from wherever it stands. The folder of its statement."""
    return finish_stated(
        home,
        seq,
        Stated(
            home.profiles,
            ENVELOPE,
            PROOF,
            partial(_payload, home),
            partial(evaluations.enter_profile, home.ledger.log),
            lambda envelope, proof: check(profiles.verify(envelope, proof, home.trust)),
        ),
    )


def _payload(home: Home, job: Job, counts: list[int]) -> bytes:
    entry = home.ledger.reservation(job.seq).value
    request, plan = request_from_entry(entry), plan_from_json(entry["plan"])
    dataset = with_profiles(home, home.ledger.dataset_of(job.seq))
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
