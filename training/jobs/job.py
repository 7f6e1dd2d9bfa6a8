"""From a request to a certified model: plan, reserve, start, play, commit, export, sign, issue. Each step takes what
the one before made.

A job is charged before a row is read; a crash costs, never saves. What was released is on disk before it is
committed, so from there on nothing can be lost: exporting and signing are post-processing and are resumed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import closing, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

from accountant.errors import (
    BudgetRefused,
    DpserveError,
    IdempotencyConflict,
    JobFailed,
    LedgerUnavailable,
    PlanMismatch,
    WrongState,
)
from accountant.home import Home
from accountant.ledger.families.families import Started
from accountant.ledger.families.records import PUBLIC_STATES, Holding, Job, State, request_from_entry
from accountant.ledger.job_rows import resume
from accountant.privacy.budget import Budget, check_key
from accountant.system.traces import span
from models.forms.ensemble import Ensemble
from models.store.decisions import finish_decisions
from models.store.versions import champion_of
from models.worth.statements import statement_of, worth_to_json
from training.datasets.datasets import open_rows, require_rows
from training.finish.lease import Lease, is_dead, lives, this_process
from training.finish.release import finish, forget, keep
from training.jobs import draw_journal, job_traces
from training.jobs.draw_journal import Answers, CannotResume
from training.learners.job_words import TUNING
from training.measuring.profile import profile as profiles
from training.measuring.profile.profile import AskedProfile, profiler_of
from training.measuring.profile.release import finish_profile, profile_of, profile_to_json
from training.measuring.profile.table_rows import open_table
from training.measuring.statements import finish_evaluation, keep_counts
from training.measuring.worth import evaluate as evaluations
from training.measuring.worth.evaluate import AskedWorth, evaluator_of, measured_by
from training.planning.job_views import following, job_to_json
from training.planning.plans import Asked, plan, public_of, request_of
from training.rows.schema.schema import schema_of
from training.session.session import Session
from training.tuning.selecting import Outcome
from training.tuning.tune import fits_of, forget_choice, keep_choice

LOG = logging.getLogger("dpserve.jobs")
LOOK_SECONDS = 0.5
Progress = Callable[[int, int], None]


def submit(
    home: Home, asked: Asked, *, by: str, key: str | None = None, queued: bool = True, promotes: bool = True
) -> Job:
    """Plan and reserve: from here on the budget is held. With `queued` a worker will run it; else the caller must.

    `promotes`: whether `by` may promote versions of the model; Forbidden where the job takes that and they may not.
    """
    check_key(key)
    if key is not None:
        request, _ = request_of(home, home.ledger.dataset(asked.dataset, blocks=asked.blocks), asked)
        known = home.ledger.find(by, key, request)
        if known:
            _check_following(home, known, asked)
            return known
    if not queued:
        require_rows(home, home.ledger.dataset(asked.dataset, blocks=asked.blocks))
    with span("rehearse"):
        planned = plan(home, asked, by, promotes)
    recipe = planned.recipe
    owner = None if queued else this_process()
    follows = None
    if asked.evaluate is not None:
        then = evaluations.plan_following(home, planned.request, asked.evaluate, by)
        follows = then.request, then.recipe.unit, then.recipe.plan
    try:
        what = (planned.request, recipe.unit, recipe.plan)
        with span("reserve"):
            return home.ledger.reserve(
                *what, by=by, key=key, owner=owner, lease=Lease.SECONDS, promotes=promotes, evaluation=follows
            )
    except BudgetRefused:  # somebody was faster between plan and reserve: say what fits now
        plan(home, asked, by, promotes)
        raise


def _check_following(home: Home, known: Job, asked: Asked) -> None:
    """IdempotencyConflict where a job that is asked for again came with another evaluation, or with none."""
    then = following(home, known.seq)
    came = None if then is None else Decimal(home.ledger.reservation(then.seq).value["epsilon"])
    if came != (None if asked.evaluate is None else Budget.of(str(asked.evaluate), "0").epsilon):
        raise IdempotencyConflict(f"evaluate: job {known.seq} came with {came or 'none'} before", job=known.seq)


def run(home: Home, seq: int, progress: Progress = lambda done, total: None) -> Path:
    """Start a reserved job, play its plan, commit, export, sign, issue. Returns the model's bundle.

    JobFailed after the start means that the budget is spent. Its message holds no word of the data. LedgerUnavailable,
    before it, where the rows cannot be read here.
    """
    owner = this_process()
    require_rows(home, home.ledger.dataset_of(seq))
    request = request_from_entry(home.ledger.reservation(seq).value)
    if request.evaluates is not None:
        try:
            measured_by(home, request)
        except DpserveError:  # it was lost or revoked since: no row is read, and nothing is spent
            home.ledger.release(seq)
            raise
    keeps = draw_journal.is_on() and TUNING not in request.parameters  # a tuned job's runs are one release
    started = home.ledger.start(seq, owner, Lease.SECONDS)
    try:
        with Answers(home, seq, keeps) as kept:
            return _carried(home, started, owner, progress, kept)
    except LedgerUnavailable as error:
        error.details["started"] = seq  # whoever looks next ends it, or burns it
        raise


def _carried(home: Home, started: Started, owner: str, progress: Progress, kept: Answers) -> Path:
    """A job that has started, to its end. What it draws is `kept` until it is committed."""
    seq = started.seq
    with Lease(home.ledger, seq) as lease:

        def tell(done: int, total: int) -> None:
            if total == len(started.plan):  # a tuned job's runs are not told one by one: how long each took names its
                lease.progress(done)  # setting, and only that of the best is released
            progress(done, total)

        released = _play(home, started, owner, tell, lease.check, kept)
        try:
            home.ledger.commit(seq, released, owner)
        except WrongState:
            raise _lost(home, seq) from None
        kept.end()
    return _finish(home, seq)


def _finish(home: Home, seq: int) -> Path:
    """A committed job to its end: a model in its bundle, or a statement of what one is worth, or of the dataset."""
    asked = home.ledger.reservation(seq).value
    ends = finish_evaluation if "evaluates" in asked else finish_profile if "profile" in asked else finish
    over = home.ledger.job(seq).issued is not None
    place = ends(home, seq)
    if not over:
        job_traces.tell(home, seq)
    return place


def _play(
    home: Home, started: Started, owner: str, progress: Progress, held: Callable[[], None], kept: Answers | None = None
) -> str:
    """Play the plan and put what it released on disk; its sha256."""
    kept = kept or Answers(home, started.seq, keeps=False)
    try:
        kept.begin()
        schema, request = schema_of(home, started.dataset), started.request
        target = schema.target_names[0] if request.profile else request.target
        public = public_of(started.dataset, schema.question(target, request.parameters), request.budget)
        profiler, columns = profiler_of(schema, request.parameters) if request.profile else (None, [])
        measured = [each.ensemble for each in measured_by(home, request)]
        names = [column.name for column in columns]
        counter = evaluator_of(measured, schema, request.parameters) if measured else profiler
        opened = open_table(home, started, schema, names) if names else open_rows(home, started, schema)
        with closing(opened) as rows:
            session = Session(public, started.unit, started.plan, rows, progress, held, kept)
            released = _learn(home, started, session) if counter is None else counter.learn(session)
        if session.close() != started.plan:
            raise PlanMismatch("what was played is not what was reserved")
        if isinstance(released, Ensemble):
            return keep(home, started.seq, released)
        return keep_counts(home, started.seq, released)
    except Exception as error:
        try:
            home.ledger.burn(started.seq, "failed", owner)
        except WrongState:
            raise _lost(home, started.seq) from None
        job_traces.tell(home, started.seq)
        kept.end()
        forget_choice(home, started.seq)
        reason = error.message if isinstance(error, JobFailed) else type(error).__name__
        raise JobFailed(
            f"job {started.seq}: failed after it had started ({reason}); its budget is spent", job=started.seq
        ) from None


def _lost(home: Home, seq: int) -> JobFailed:
    """This process stood still for longer than its lease, and another has burned the job: nothing of it is kept."""
    forget(home, seq)
    forget_choice(home, seq)
    return JobFailed(f"job {seq}: was burned by another, for its owner was not heard; its budget is spent", job=seq)


def _learn(home: Home, started: Started, session: Session) -> Ensemble:
    request = started.request
    outcome = fits_of(request.learner, request.parameters).learn(session)
    if not isinstance(outcome, Outcome):
        return outcome
    keep_choice(home, started.seq, request.parameters, outcome)
    return outcome.ensemble


def train(
    home: Home,
    asked: Asked,
    *,
    by: str,
    key: str | None = None,
    progress: Progress = lambda d, t: None,
    promotes: bool = True,
) -> dict[str, Any]:
    """Submit and run in this process, or with labels by a worker that has them: `dpserve train`. The same key gives the
    same answer and spends once.
    """
    before = champion_of(home, asked.dataset if asked.model is None else asked.model)
    reserved = submit(home, asked, by=by, key=key, queued=bool(asked.labels), promotes=promotes)
    told = _through(home, reserved, progress)
    then = following(home, reserved.seq)
    if then is not None:  # a worker may have been faster, and go on with it
        with suppress(WrongState):
            told |= {"evaluated": evaluated(home, then)}
    return {**told, "replaces": before if before != champion_of(home, reserved.model) else None}


def evaluate(home: Home, asked: AskedWorth, *, by: str, key: str | None = None) -> dict[str, Any]:
    """Submit and run in this process: `dpserve evaluate`. What was measured before costs nothing again."""
    return evaluated(home, evaluations.submit(home, asked, by=by, key=key, queued=False))


def evaluated(home: Home, reserved: Job) -> dict[str, Any]:
    """An evaluation that was reserved, to its end: its job, and what the model is worth."""
    body = _through(home, reserved, lambda done, total: None)
    return body | {"worth": worth_to_json(reserved.seq, statement_of(home, reserved.seq)[2])}


def profile(home: Home, asked: AskedProfile, *, by: str, key: str | None = None) -> dict[str, Any]:
    """Submit and run in this process: `dpserve profile`. What was counted before costs nothing again."""
    reserved = profiles.submit(home, asked, by=by, key=key, queued=False)
    body = _through(home, reserved, lambda done, total: None)
    return body | {"profile": profile_to_json(reserved.seq, profile_of(home, reserved.seq)[2])}


def _through(home: Home, job: Job, progress: Progress) -> dict[str, Any]:
    if job.labels:
        job = _awaited(home, job, progress)
    if job.state == "reserved":
        try:
            run(home, job.seq, progress)
        except LedgerUnavailable as error:
            if "started" not in error.details:
                raise
            said = f"job {job.seq}: had started when this was met: {error.message}; its budget is spent"
            raise JobFailed(said, job=job.seq) from None
    elif job.state == "committed":
        _finish(home, job.seq)
    else:
        failed = JobFailed if job.state == "burned" else WrongState  # given back, or run by another process
        said = f"job {job.seq}: stands for this idempotency key and is {job.state.value}"
        again = "; nothing was spent, and another key asks once more" if job.state == "released" else ""
        raise failed(f"{said}{again}", job=job.seq)
    return job_to_json(home, home.ledger.job(job.seq))


def _awaited(home: Home, job: Job, progress: Progress) -> Job:
    """A job that a worker runs which has its labels, once it is over, whatever came of it."""
    while PUBLIC_STATES[job.public_state].open:
        progress(job.done, job.total)
        time.sleep(LOOK_SECONDS)
        job = home.ledger.job(job.seq)
    return job


def cancel(home: Home, seq: int) -> None:
    """Give a reservation back. WrongState once it has started."""
    home.ledger.release(seq)
    job_traces.tell(home, seq)


def recover(home: Home) -> dict[str, list[int]]:
    """After a crash: what had started and has no living owner goes on here where its answers were kept, else is burned;
    what had not is given back, what was committed is finished, and what was decided about models is done.

    A job that cannot be finished now (a full disk, a damaged file) is "stuck": it keeps no other from being settled.
    """
    settled: dict[str, list[int]] = {"burned": [], "released": [], "finished": [], "stuck": []}
    for holding in home.ledger.leases():
        if is_dead(home.ledger, holding):
            _settle(home, holding, settled)
    for folder in sorted(home.jobs.iterdir()) if home.jobs.exists() else []:
        if folder.name.isdigit():
            _tidy(home, int(folder.name), settled)
    finish_decisions(home)
    return settled


def _settle(home: Home, holding: Holding, settled: dict[str, list[int]]) -> None:
    """Only while the dead owner holds it, just as it was seen: another may clean up as well, or it lives after all."""
    try:
        if holding.state is State.STARTED:
            came_to = _resumed(home, holding)
            if came_to is not None:
                settled.get(came_to, []).append(holding.seq)
                return
            home.ledger.burn(holding.seq, "interrupted", holding.owner, holding.expires)
            forget_choice(home, holding.seq)
        else:
            home.ledger.release(holding.seq, holding.owner, holding.expires)
    except WrongState:
        return
    job_traces.tell(home, holding.seq)
    settled["burned" if holding.state is State.STARTED else "released"].append(holding.seq)


def _resumed(home: Home, holding: Holding) -> str | None:
    """What came of a job whose answers were kept, by going on with it here: finished, burned or stuck; "" where it is
    left to who is at it, None where it is not resumed. Raises as `Ledger.burn`.
    """
    seq = holding.seq
    try:
        with Answers.reopen(home, seq, home.ledger.job(seq).done) as kept:
            request = request_from_entry(home.ledger.reservation(seq).value)
            require_rows(home, home.ledger.dataset_of(seq))
            measured_by(home, request)
            started = resume(home.ledger.log, holding, this_process(), Lease.SECONDS)
            LOG.info("job %d: goes on after the end of who ran it", seq)
            try:
                _carried(home, started, this_process(), lambda done, total: None, kept)
                return "finished"
            except (DpserveError, OSError) as error:
                LOG.error("job %d: %s", seq, type(error).__name__)
                return "burned" if home.ledger.job(seq).state is State.BURNED else "stuck"
    except FileNotFoundError:
        return None
    except BlockingIOError:
        return "" if lives(holding.owner) is False else None
    except CannotResume as error:
        LOG.warning("job %d: is not resumed: its answers are %s", seq, error)
    except (DpserveError, OSError) as error:
        LOG.warning("job %d: is not resumed (%s)", seq, type(error).__name__)
    return None


def _tidy(home: Home, seq: int, settled: dict[str, list[int]]) -> None:
    try:
        state = home.ledger.job(seq).state
        if state is State.COMMITTED:
            _finish(home, seq)
            settled["finished"].append(seq)
        elif state is State.BURNED:
            forget(home, seq)
    except (DpserveError, OSError) as error:
        LOG.error("job %d: cannot be settled now (%s)", seq, type(error).__name__)
        settled["stuck"].append(seq)
