"""Jobs of a home: what may be seen, watched and given back."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from accountant.errors import Forbidden
from accountant.home import Home
from accountant.ledger.families.records import PUBLIC_STATES
from accountant.system.lazy_import import later
from serving.cli.terminal import allowed, this_user
from training.planning.job_views import job_to_json, jobs_to_json

LOOK_SECONDS = 0.5
running = later("training.jobs.job")  # most commands on jobs run none


def listed(dataset: str | None, state: str | None, after: int | None, limit: int) -> dict[str, Any]:
    """Jobs, the newest first, a page of them."""
    home = Home.open()
    return jobs_to_json(home, dataset, state, after, limit, allowed(home))


def job(number: int) -> dict[str, Any]:
    """One job."""
    return _job(Home.open(), number)


def watched(number: int, progress: Callable[[int, int], None]) -> dict[str, Any]:
    """A job, once it is over, whatever came of it."""
    home = Home.open()
    while PUBLIC_STATES[(body := _job(home, number))["state"]].open:
        progress(body["progress"]["done"], body["progress"]["total"])
        time.sleep(LOOK_SECONDS)
    return body


def cancelled(number: int) -> dict[str, Any]:
    """A job whose reservation is given back. WrongState once it has started."""
    home = Home.open()
    if not allowed(home).may_cancel(home.ledger.job(number)):
        raise Forbidden(f"job {number}: {this_user()} may not cancel it: it is another's, and no grant names it")
    running.cancel(home, number)
    return _job(home, number)


def _job(home: Home, number: int) -> dict[str, Any]:
    found = home.ledger.job(number)
    if not allowed(home).may_see(found):
        raise Forbidden(f"job {number}: {this_user()} may not see it: it is another's, and no grant names it")
    return job_to_json(home, found)
