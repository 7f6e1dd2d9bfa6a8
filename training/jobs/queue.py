"""The durable queue: reservations in the ledger that no process holds. A worker claims one by starting it.

Training never runs in a serving worker. `recover` comes first, so what a killed worker left behind is settled before
new work.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection

from accountant.errors import PlanMismatch, WrongState
from accountant.home import Home
from accountant.system.life import LIFE
from dpserve_verify.errors import DpserveError, LedgerUnavailable
from training.datasets.datasets import require_rows
from training.jobs import job
from training.jobs.schedule import submit_due
from training.measuring.worth.evaluate import is_early

LOG = logging.getLogger("dpserve.worker")
RECOVER_SECONDS = 15.0


def work_once(home: Home, left: set[int] | None = None, datasets: Collection[str] = ()) -> int | None:
    """Run the oldest queued job whose rows can be read here to its end; its number, or None where there is none that
    can run now: the disk is full, say, or a newer version has written to the ledger.

    A job whose rows cannot is left for another worker, and says so. `left`: those of which the log was told.
    `datasets`: the only ones whose jobs are taken, where any is named.
    """
    left = set() if left is None else left
    seq = _claimable(home, left, datasets)
    if seq is None:
        return None
    try:
        job.run(home, seq)
        LOG.info("job %d issued", seq)
    except WrongState:  # another worker was faster
        LOG.info("job %d taken by another worker", seq)
    except PlanMismatch as error:
        LOG.error(error.message)
    except LedgerUnavailable as error:
        if "started" in error.details:
            LOG.error("job %d: %s", seq, error.message)
            return seq
        if seq not in left:
            left.add(seq)
            LOG.error("job %d: waits; %s", seq, error.message)
        return None
    except DpserveError as error:
        LOG.error("job %d: %s", seq, error.code)
    except OSError as error:  # a full disk after the commit: nothing is lost, recovery tries again
        LOG.error("job %d: not finished (%s)", seq, error.strerror)
    return seq


def _claimable(home: Home, left: set[int], datasets: Collection[str]) -> int | None:
    unread: set[str] = set()
    early: set[int] = set()
    while (seq := home.ledger.next_queued(unread, datasets, early)) is not None:
        if is_early(home, seq):
            early.add(seq)
            continue
        dataset = home.ledger.dataset_of(seq)
        try:
            require_rows(home, dataset)
            return seq
        except LedgerUnavailable as error:
            if dataset.window is None:
                unread.add(dataset.registration.name)
            else:  # other blocks may be here
                early.add(seq)
            if seq not in left:
                left.add(seq)
                home.ledger.leave_waiting(seq, "rows")
                LOG.warning("job %d: left for another worker; %s", seq, error.message)
    return None


def work(home: Home, stop: threading.Event, datasets: Collection[str] = ()) -> None:
    """Work until `stop` is set; a job that runs is finished first. A database that is away is waited for. `datasets` as
    for `work_once`.
    """
    idle = RECOVER_SECONDS
    left: set[int] = set()
    bell = home.job_notifications()
    away = False
    while not stop.is_set():
        LIFE.show()
        if idle >= RECOVER_SECONDS:
            _recover(home)
            idle = 0.0
        try:
            seq, away = work_once(home, left, datasets), False
        except LedgerUnavailable as error:  # nothing was begun: it is there again some time
            seq = None
            if not away:
                LOG.error("the queue cannot be read: %s; it is looked at again", error.message)
            away = True
        if seq is None:
            since = time.monotonic()
            bell.wait(stop)
            idle += time.monotonic() - since
    bell.close()


def _recover(home: Home) -> None:
    """Settle what crashed processes left, and submit schedules that are due. A job that cannot be settled does not stop
    the queue; it is tried again later.
    """
    try:
        job.recover(home)
    except DpserveError as error:
        LOG.error("recovery stopped: %s", error.code)
    try:
        submit_due(home)
    except DpserveError as error:
        LOG.error("schedules: %s", error.code)
