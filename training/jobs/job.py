"""Run a job of any kind: reserve, start, play, commit, finish. What each step does is its kind's (training.kinds).

A job is charged before a row is read; a crash costs, never saves. What was released is on disk before it is
committed, so from there on nothing can be lost: exporting and signing are post-processing and are resumed.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from contextlib import closing, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

from accountant.errors import EngineLost, EngineUnavailable, JobFailed, PlanMismatch, WrongState
from accountant.home import Home
from accountant.ledger.families.families import Dataset, Started
from accountant.ledger.families.records import GIVEN_BACK, Holding, Job, State
from accountant.ledger.job_rows import find_started, resume
from accountant.system.lazy_import import require
from dpserve_verify.errors import DpserveError, LedgerUnavailable
from dpserve_verify.privacy.budget import check_key
from dpserve_verify.privacy.events import plan_from_json
from models.store.decisions import finish_decisions
from models.store.versions import champion_of
from training.datasets.datasets import require_rows
from training.datasets.schema_copies import copy_schemas
from training.finish.lease import Lease, is_dead, lives, this_process
from training.finish.release import forget
from training.jobs import draw_journal, job_traces
from training.jobs.draw_journal import CannotResume, DrawJournal
from training.kinds.job_steps import JobSteps
from training.kinds.registry import steps_for, steps_of
from training.planning.job_views import following, job_to_json
from training.requests import JobRequest
from training.rows.schema.schema import Schema, schema_of
from training.session.session import Rehearsal, Session

LOG = logging.getLogger("dpserve.jobs")
Progress = Callable[[int, int], None]
ROOM_BYTES = 1 << 20  # that must be free, for what is released and for its entries
_UNDRAWN = set[tuple[str, int]]()  # ledgers and jobs that this process has started, and stopped before it drew


def submit(
    home: Home, asked: Any, *, by: str, key: str | None = None, queued: bool = True, promotes: bool = True
) -> Job:
    """Plan and reserve a job of the kind that is asked for: from here on the budget is held. With `queued` a worker
    will run it; else the caller must.

    `promotes`: whether `by` may promote versions of the model; Forbidden where the job takes that and they may not.
    """
    check_key(key)
    return steps_for(type(asked)).submit(home, asked, by=by, key=key, queued=queued, promotes=promotes)


def run(home: Home, seq: int, progress: Progress = lambda done, total: None) -> Path:
    """Start a reserved job, play its plan, commit, export, sign, issue. Returns the model's bundle.

    JobFailed after the start means that the budget is spent. Its message holds no word of the data. Before it:
    LedgerUnavailable where it cannot run here now; any other error where it cannot run at all, and was given back.
    """
    owner, steps = this_process(), steps_of(home, seq)
    try:
        _require_ready(steps)
    except LedgerUnavailable:
        raise
    except DpserveError as error:  # no row is read, and nothing is spent
        home.ledger.release(seq, why="plan" if isinstance(error, PlanMismatch) else None)
        job_traces.tell(home, seq)
        raise
    keeps = draw_journal.is_on() and steps.is_resumable
    started = _start(home, seq, owner)
    try:
        with DrawJournal(home, seq, keeps) as journal:
            return _run_started(steps, started, owner, progress, journal)
    except LedgerUnavailable as error:
        error.details["started"] = seq  # whoever looks next ends it, or burns it
        raise


def _require_ready(steps: JobSteps) -> None:
    """Raise what can be known before a job starts, when it costs nothing yet.

    Raises:
        LedgerUnavailable: rows, schema, engine or room are missing here and now.
        PlanMismatch: this version would ask for other releases than were reserved.
        DpserveError: what else makes it impossible, for instance that a model was revoked.
    """
    require("numba")  # before anything is spent: what learners compute with
    home = steps.home
    dataset = home.ledger.dataset_of(steps.seq)
    require_rows(home, dataset)
    if shutil.disk_usage(home.path).free < ROOM_BYTES:
        raise LedgerUnavailable(f"home: less than {ROOM_BYTES >> 20} MiB are free where it lies; make room")
    steps.check()
    if not _is_as_reserved(steps, dataset, schema_of(home, dataset)):
        raise PlanMismatch(f"job {steps.seq}: {GIVEN_BACK['plan']}", job=steps.seq)


def _is_as_reserved(steps: JobSteps, dataset: Dataset, schema: Schema) -> bool:
    """Rehearse the job by this version: whether its plan is the one that was reserved."""
    stored = steps.home.ledger.reservation(steps.seq).value
    try:
        public = steps.public(dataset, schema)
        rehearsal = Rehearsal(public, Decimal(stored["unit"]))
        steps.learner(schema)(rehearsal)
    except (LedgerUnavailable, OSError):
        raise
    except Exception as error:  # what was asked of the earlier version means nothing to this one
        LOG.warning("job %d: cannot be rehearsed (%s)", steps.seq, type(error).__name__)
        return False
    return rehearsal.plan == plan_from_json(stored["plan"])


def _start(home: Home, seq: int, owner: str) -> Started:
    """Start a job. Where the answer was lost, look whether it has started: this process knows that it drew nothing, and
    goes on, now or as soon as the ledger can be asked again (`recover`).
    """
    try:
        return home.ledger.start(seq, owner, Lease.SECONDS)
    except LedgerUnavailable as error:
        if error.details.get("written") != "unknown":
            raise
        _leave_undrawn(home, seq)
        with suppress(LedgerUnavailable):
            started = find_started(home.ledger.log, seq, owner)
            if started is not None:
                return started
            _UNDRAWN.discard(_place_of(home, seq))
        raise


def _place_of(home: Home, seq: int) -> tuple[str, int]:
    return home.ledger.log.database.url, seq


def _leave_undrawn(home: Home, seq: int) -> None:
    """Note that this process does not run a job any more that it has started, and drew nothing of."""
    _UNDRAWN.add(_place_of(home, seq))
    Lease.over.add(_place_of(home, seq))


def _run_started(steps: JobSteps, started: Started, owner: str, progress: Progress, journal: DrawJournal) -> Path:
    """Run a job that has started to its end. What it draws is `kept` until it is committed."""
    home, seq = steps.home, started.seq
    _UNDRAWN.discard(_place_of(home, seq))
    with Lease(home.ledger, seq) as lease:

        def tell(done: int, total: int) -> None:
            if total == len(started.plan):  # a tuned job's runs are not told one by one: how long each took names its
                lease.progress(done)  # setting, and only that of the best is released
            progress(done, total)

        released = _play(steps, started, owner, tell, lease.check, journal)
        try:
            home.ledger.commit(seq, released, owner)
        except WrongState:
            raise _forget_lost(steps) from None
        journal.end()
    return _finish(steps)


def _finish(steps: JobSteps) -> Path:
    """Bring a committed job to its end. Return the folder of what it made."""
    over = steps.home.ledger.job(steps.seq).issued is not None
    place = steps.finish()
    if not over:
        job_traces.tell(steps.home, steps.seq)
    return place


def _play(
    steps: JobSteps,
    started: Started,
    owner: str,
    progress: Progress,
    check_lease: Callable[[], None],
    journal: DrawJournal | None = None,
) -> str:
    """Play the plan and put what it released on disk. Return its sha256."""
    home, seq = steps.home, steps.seq
    journal, session = journal or DrawJournal(home, seq, keeps=False), None
    try:
        journal.begin()
        schema = schema_of(home, started.dataset)
        public = steps.public(started.dataset, schema)
        learn = steps.learner(schema)
        with closing(steps.open_rows(started, schema)) as rows:
            session = Session(public, started.unit, started.plan, rows, progress, check_lease, journal)
            released = learn(session)
        if session.close() != started.plan:
            raise PlanMismatch("what was played is not what was reserved")
        return steps.keep(released)
    except Exception as error:
        if isinstance(error, EngineLost) and steps.is_resumable and journal.leave():
            message = f"job {seq}: {error.message}; it goes on, charged once, when a worker finds an engine"
            raise JobFailed(message, job=seq) from None
        has_drawn = not journal.is_blank or (session is not None and session.has_drawn)
        if isinstance(error, OSError | LedgerUnavailable | EngineLost) and not has_drawn:
            _leave_undrawn(home, seq)
            raise LedgerUnavailable(f"job {seq}: stopped before it drew anything ({_word_of(error)})") from None
        try:
            home.ledger.burn(seq, "failed", owner)
        except WrongState:
            raise _forget_lost(steps) from None
        job_traces.tell(home, seq)
        journal.end()
        steps.forget()
        raise JobFailed(
            f"job {seq}: failed after it had started ({_word_of(error)}); its budget is spent", job=seq
        ) from None


def _word_of(error: Exception) -> str:
    """Say what stopped a job, without a word of the data."""
    return error.message if isinstance(error, JobFailed) else type(error).__name__


def _forget_lost(steps: JobSteps) -> JobFailed:
    """Remove what the job left and return the error: another process burned it, since this one outlived its lease."""
    forget(steps.home, steps.seq)
    steps.forget()
    message = f"job {steps.seq}: was burned by another, for its owner was not heard; its budget is spent"
    return JobFailed(message, job=steps.seq)


def train(
    home: Home,
    asked: JobRequest,
    *,
    by: str,
    key: str | None = None,
    progress: Progress = lambda d, t: None,
    promotes: bool = True,
    queued: bool = False,
) -> dict[str, Any]:
    """Submit and run in this process: `dpserve train`. The same key gives the same answer and spends once. `queued`: a
    worker may run it where this process ends before.
    """
    before = champion_of(home, asked.dataset if asked.model is None else asked.model)
    reserved = submit(home, asked, by=by, key=key, queued=queued, promotes=promotes)
    answer = _run_or_finish(home, reserved, progress)
    then = following(home, reserved.seq)
    if then is not None:  # a worker may have been faster, and go on with it
        with suppress(WrongState):
            answer |= {"evaluated": _run_measurement(home, then)}
    return {**answer, "replaces": before if before != champion_of(home, reserved.model) else None}


def measure(home: Home, asked: Any, *, by: str, key: str | None = None) -> dict[str, Any]:
    """Submit and run in this process a job that makes no model: `dpserve evaluate`, `dpserve profile`. What was
    measured before costs nothing again. Returns the job with what it found.
    """
    return _run_measurement(home, submit(home, asked, by=by, key=key, queued=False))


def _run_measurement(home: Home, reserved: Job) -> dict[str, Any]:
    """Run a job that measures to its end."""
    return _run_or_finish(home, reserved, lambda done, total: None) | steps_of(home, reserved.seq).result()


def _run_or_finish(home: Home, job: Job, progress: Progress) -> dict[str, Any]:
    if job.state == "reserved":
        try:
            run(home, job.seq, progress)
        except LedgerUnavailable as error:
            if "started" not in error.details:
                raise
            message = f"job {job.seq}: had started when this was met: {error.message}; its budget is spent"
            raise JobFailed(message, job=job.seq) from None
    elif job.state == "committed":
        _finish(steps_of(home, job.seq))
    else:
        failed = JobFailed if job.state == "burned" else WrongState  # given back, or run by another process
        message = f"job {job.seq}: stands for this idempotency key and is {job.state.value}"
        again = "; nothing was spent, and another key asks once more" if job.state == "released" else ""
        raise failed(f"{message}{again}", job=job.seq)
    return job_to_json(home, home.ledger.job(job.seq))


def cancel(home: Home, seq: int) -> None:
    """Give a reservation back. WrongState once it has started."""
    home.ledger.release(seq)
    job_traces.tell(home, seq)


def recover(home: Home) -> dict[str, list[int]]:
    """Settle after a crash: resume or burn jobs whose process died, give back reservations that had not started, finish
    committed jobs, and carry out decisions about models.

    A job that cannot be finished now (a full disk, a damaged file) is "stuck": it keeps no other from being settled.
    """
    settled: dict[str, list[int]] = {"burned": [], "released": [], "finished": [], "stuck": []}
    copy_schemas(home)
    for holding in home.ledger.leases():
        if is_dead(home.ledger, holding):
            _settle(home, holding, settled)
    for folder in sorted(home.jobs.iterdir()) if home.jobs.exists() else []:
        if folder.name.isdigit():
            _clean_up(home, int(folder.name), settled)
    finish_decisions(home)
    return settled


def _settle(home: Home, holding: Holding, settled: dict[str, list[int]]) -> None:
    """Resume, burn or give back one job, only while the dead owner holds it as before: another process may settle it
    too.
    """
    try:
        if holding.state is State.STARTED:
            came_to = _resume(home, holding)
            if came_to is not None:
                settled.get(came_to, []).append(holding.seq)
                return
            home.ledger.burn(holding.seq, "interrupted", holding.owner, holding.expires)
            steps_of(home, holding.seq).forget()
        else:
            home.ledger.release(holding.seq, holding.owner, holding.expires)
    except WrongState:
        return
    job_traces.tell(home, holding.seq)
    settled["burned" if holding.state is State.STARTED else "released"].append(holding.seq)


def _resume(home: Home, holding: Holding) -> str | None:
    """Go on with a job whose answers were kept. Return what came of it: finished, burned or stuck; "" where another
    process is at it, or no engine is there, None where it is not resumed. Raises as `Ledger.burn`.
    """
    seq = holding.seq
    undrawn = holding.owner == this_process() and _place_of(home, seq) in _UNDRAWN
    try:
        with _reopen(home, seq, undrawn) as journal:
            steps = steps_of(home, seq)
            _require_ready(steps)
            started = resume(home.ledger.log, holding, this_process(), Lease.SECONDS)
            LOG.info("job %d: goes on after the end of who ran it", seq)
            try:
                _run_started(steps, started, this_process(), lambda done, total: None, journal)
                return "finished"
            except (DpserveError, OSError) as error:
                LOG.error("job %d: %s", seq, type(error).__name__)
                return "burned" if home.ledger.job(seq).state is State.BURNED else "stuck"
    except FileNotFoundError:
        return None
    except BlockingIOError:
        return "" if lives(holding.owner) is False else None
    except EngineUnavailable:  # which may come back: what was answered stays good
        return ""
    except CannotResume as error:
        LOG.warning("job %d: is not resumed: its answers are %s", seq, error)
    except (DpserveError, OSError) as error:
        if undrawn and isinstance(error, LedgerUnavailable | OSError):
            return "stuck"
        LOG.warning("job %d: is not resumed (%s)", seq, type(error).__name__)
    return None


def _reopen(home: Home, seq: int, undrawn: bool) -> DrawJournal:
    """Open the answers of a job whose owner is gone. `undrawn`: it is this process, which drew nothing: it begins."""
    if not undrawn:
        return DrawJournal.reopen(home, seq, home.ledger.job(seq).done)
    DrawJournal(home, seq).end()
    return DrawJournal(home, seq, draw_journal.is_on() and steps_of(home, seq).is_resumable)


def _clean_up(home: Home, seq: int, settled: dict[str, list[int]]) -> None:
    try:
        state = home.ledger.job(seq).state
        if state is State.COMMITTED:
            _finish(steps_of(home, seq))
            settled["finished"].append(seq)
        elif state is State.BURNED:
            forget(home, seq)
    except (DpserveError, OSError) as error:
        LOG.error("job %d: cannot be settled now (%s)", seq, type(error).__name__)
        settled["stuck"].append(seq)
