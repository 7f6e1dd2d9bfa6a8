"""From a request to a certified model: plan, reserve, start, play, commit, export, sign, issue. Each step takes what
the one before made.

A job is charged before a row is read; a crash costs, never saves. What was released is on disk before it is
committed, so from there on nothing can be lost: exporting and signing are post-processing and are resumed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from accountant.errors import BudgetRefused, DpserveError, InputError, JobFailed, PlanMismatch, WrongState
from accountant.home import Home
from accountant.ledger.families import Dataset, Started
from accountant.ledger.forecast import forecast
from accountant.ledger.records import Holding, Job, State
from accountant.privacy.events import Plan
from models.ensemble import Ensemble
from training.derive import derive as derive
from training.learners.docs import learners_to_json as learners_to_json
from training.lease import Lease, dead, this_process
from training.plans import Asked as Asked
from training.plans import jobs_left as jobs_left
from training.plans import plan as plan
from training.plans import public_of, request_of
from training.release import finish, forget, keep
from training.rows.datasets import open_rows, schema_of
from training.rows.datasets import register as register  # the doors know this module, and no other of this room
from training.rows.row_files import draft_schema as draft_schema
from training.rows.row_files import read_columns as read_columns
from training.rows.row_files import write_predictions as write_predictions
from training.session import Session
from training.tuning.selecting import Outcome
from training.tuning.tune import TUNING, choice_of, fits_of, forget_choice, keep_choice, runs_of
from training.tuning.tune import Tuning as Tuning

LOG = logging.getLogger("dpserve.jobs")
ISSUED = "issued"
STATES = (*(state.value for state in State), ISSUED)
LAST = 2**53  # above every job's number
Progress = Callable[[int, int], None]


def dataset_to_json(home: Home, dataset: Dataset, detail: bool = True) -> dict[str, Any]:
    """What everybody may know of a dataset: `dpserve dataset show` and GET /v1/datasets/{name}."""
    registration = dataset.registration
    public_count = {"records": registration.records} if registration.relation == "replace-one" else {}
    return {
        "name": registration.name,
        "uuid": dataset.uuid,
        "family": dataset.family,
        "families": [family.identity for family in dataset.families],
        "version": dataset.version,
        "relation": registration.relation.value,
        "unit": registration.unit.name,
        "contributions": registration.unit.contributions,
        **dataset.budget.to_json(),
        **public_count,
        "schema": registration.schema,
        "budget": {**dataset.summary(), "jobs_left": jobs_left(home, dataset)},
        **(_detail(home, dataset) if detail else {}),
    }


def _detail(home: Home, dataset: Dataset) -> dict[str, Any]:
    return {"quotas": home.ledger.quotas(dataset.registration.name), "forecast": forecast(home.ledger, dataset)}


def submit(home: Home, asked: Asked, *, by: str, key: str | None = None, queued: bool = True) -> Job:
    """Plan and reserve: from here on the budget is held. With `queued` a worker will run it; else the caller must."""
    if key is not None:
        request, _ = request_of(home.ledger.dataset(asked.dataset), asked)
        known = home.ledger.find(key, request)
        if known:
            return known
    planned = plan(home, asked, by)
    recipe = planned.recipe
    owner = None if queued else this_process()
    try:
        return home.ledger.reserve(planned.request, recipe.unit, recipe.plan, by=by, key=key, owner=owner)
    except BudgetRefused:  # somebody was faster between plan and reserve: say what fits now
        plan(home, asked, by)
        raise


def run(home: Home, seq: int, progress: Progress = lambda done, total: None) -> Path:
    """Start a reserved job, play its plan, commit, export, sign, issue. Returns the model's bundle.

    JobFailed after the start means that the budget is spent. Its message holds no word of the data.
    """
    owner = this_process()
    started = home.ledger.start(seq, owner, Lease.SECONDS)
    with Lease(home.ledger, seq) as lease:

        def tell(done: int, total: int) -> None:
            if total == len(started.plan):  # a tuned job's runs are not told one by one: how long each took names its
                lease.progress(done)  # setting, and only that of the best is released
            progress(done, total)

        released = _play(home, started, tell)
        home.ledger.commit(seq, released, owner)
    return finish(home, seq)


def _play(home: Home, started: Started, progress: Progress) -> str:
    """Play the plan and put what it released on disk; its sha256."""
    try:
        schema = schema_of(home, started.dataset)
        public = public_of(started.dataset, schema, started.request.budget)
        session = Session(public, started.unit, started.plan, open_rows(home, started, schema), progress)
        ensemble = _learn(home, started, session)
        _require_played(session.close(), started.plan)
        return keep(home, started.seq, ensemble)
    except Exception as error:
        home.ledger.burn(started.seq, "failed")
        forget_choice(home, started.seq)
        said = error.message if isinstance(error, JobFailed) else type(error).__name__
        raise JobFailed(
            f"job {started.seq}: failed after it had started ({said}); its budget is spent", job=started.seq
        ) from None


def _learn(home: Home, started: Started, session: Session) -> Ensemble:
    request = started.request
    found = fits_of(request.learner, request.parameters)._fit(session)
    if not isinstance(found, Outcome):
        return found
    keep_choice(home, started.seq, request.parameters, found)
    return found.ensemble


def _require_played(spent: Plan, reserved: Plan) -> None:
    if spent != reserved:
        raise PlanMismatch("what was played is not what was reserved")


def train(
    home: Home, asked: Asked, *, by: str, key: str | None = None, progress: Progress = lambda d, t: None
) -> dict[str, Any]:
    """Submit and run in this process: `dpserve train`. The same key gives the same answer and spends once."""
    job = submit(home, asked, by=by, key=key, queued=False)
    if job.state == "reserved":
        run(home, job.seq, progress)
    elif job.state == "committed":
        finish(home, job.seq)
    else:
        failed = JobFailed if job.state == "burned" else WrongState  # given back, or run by another process
        raise failed(f"job {job.seq}: stands for this idempotency key and is {job.state.value}", job=job.seq)
    return job_to_json(home, home.ledger.job(job.seq))


def job_to_json(home: Home, job: Job, left: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A job as `dpserve train` prints it and GET /v1/jobs/{id} answers it. `left`: of its dataset, where it is known.

    Progress is counted in releases of the plan, or in the public number of runs where a job is tuned.
    """
    entry = home.ledger.reservation(job.seq).value
    total = runs_of(entry["parameters"]) or job.total
    over = job.issued is not None or job.state is State.COMMITTED
    return {
        "job": job.seq,
        "state": state_of(job),
        "progress": {"done": total if over else min(job.done, total), "total": total},
        "dataset": job.dataset,
        "learner": entry["learner"],
        "epsilon": entry["claim"]["epsilon"],
        "delta": entry["claim"]["delta"],
        "rounds": job.total,
        "left": home.ledger.dataset(job.dataset).summary()["left"] if left is None else left,
        "model": job.model,
        "by": entry["by"],
        "time": entry["time"],
        **_tuning(home, job, entry["parameters"]),
        "certificate": None if job.issued is None else {"entry": job.issued, "statement": _statement(home, job.issued)},
        "error": "the job failed after it had started; its budget is spent" if job.state == "burned" else None,
    }


def state_of(job: Job) -> str:
    """What the world calls it: a committed job whose certificate stands in the ledger is `issued`."""
    return ISSUED if job.issued is not None else job.state.value


def jobs_to_json(
    home: Home, dataset: str | None = None, state: str | None = None, after: int | None = None, limit: int = 50
) -> dict[str, Any]:
    """GET /v1/jobs: the newest first, a page at a time. `after`: the `next` of the page before; None on the last one.

    UnknownName where there is no such dataset; InputError where there is no such state.
    """
    if state is not None and state not in STATES:
        raise InputError(f"state={state[:40]!r}: must be one of {', '.join(STATES)}")
    if dataset is not None:
        home.ledger.dataset(dataset)
    kind = None if state is None else State.COMMITTED if state == ISSUED else State(state)
    issued = state == ISSUED if kind is State.COMMITTED else None
    found = home.ledger.page_of_jobs(dataset, kind, issued, LAST if after is None else after, limit + 1)
    page, more = found[:limit], len(found) > limit
    left = {name: home.ledger.dataset(name).summary()["left"] for name in {job.dataset for job in page}}
    listed = [job_to_json(home, job, left[job.dataset]) for job in page]
    return {"jobs": listed, "next": page[-1].seq if more else None}


def _tuning(home: Home, job: Job, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The setting that a tuned job kept, and its noisy score: released with the model, and not before."""
    return {"chosen": choice_of(home, job.seq) if job.issued is not None else None} if TUNING in parameters else {}


def _statement(home: Home, issued: int) -> str:
    return str(home.ledger.log.entry(issued).value["statement"])


def recover(home: Home) -> dict[str, list[int]]:
    """After a crash: burn what had started and has no living owner, give back what had not, finish what was committed.

    A job that cannot be finished now (a full disk, a damaged file) is "stuck": it keeps no other from being settled.
    """
    found: dict[str, list[int]] = {"burned": [], "released": [], "finished": [], "stuck": []}
    for holding in home.ledger.leases():
        if dead(holding.owner, holding.expires):
            _settle(home, holding, found)
    for folder in sorted(home.jobs.iterdir()) if home.jobs.exists() else []:
        if folder.name.isdigit():
            _tidy(home, int(folder.name), found)
    return found


def _settle(home: Home, holding: Holding, found: dict[str, list[int]]) -> None:
    """Only while the dead owner holds it, just as it was seen: another may clean up as well, or it lives after all."""
    try:
        if holding.state is State.STARTED:
            home.ledger.burn(holding.seq, "interrupted", holding.owner, holding.expires)
            forget_choice(home, holding.seq)
        else:
            home.ledger.release(holding.seq, holding.owner)
    except WrongState:
        return
    found["burned" if holding.state is State.STARTED else "released"].append(holding.seq)


def _tidy(home: Home, seq: int, found: dict[str, list[int]]) -> None:
    try:
        state = home.ledger.job(seq).state
        if state is State.COMMITTED:
            finish(home, seq)
            found["finished"].append(seq)
        elif state is State.BURNED:
            forget(home, seq)
    except (DpserveError, OSError) as error:
        LOG.error("job %d: cannot be settled now (%s)", seq, type(error).__name__)
        found["stuck"].append(seq)
