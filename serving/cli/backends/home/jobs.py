"""Training jobs of a home: priced, charged and run in this process."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from accountant.errors import Forbidden
from accountant.home import Home
from accountant.ledger.families.records import PUBLIC_STATES
from accountant.system.lazy_import import later
from serving.cli.backends.abstract import Body, Jobs, Note, Progress, Request
from serving.cli.backends.user import require_access, this_user
from training.planning.job_views import job_to_json, jobs_to_json
from training.requests import JobRequest

if TYPE_CHECKING:
    from training.jobs import job
    from training.measuring.worth import evaluate, public_rows
    from training.planning import plans
else:  # what prices, fits and certifies; a list of jobs does without
    job, plans = later("training.jobs.job"), later("training.planning.plans")
    public_rows = later("training.measuring.worth.public_rows")
    evaluate = later("training.measuring.worth.evaluate")

LOOK_SECONDS = 0.5


class HomeJobs(Jobs):
    """As `Jobs` says, with the rows and the ledger of the home."""

    def __init__(self, note: Note) -> None:
        self.note = note

    def plan(self, request: Request) -> Body:
        """Return the price of a job."""
        job_request, home = JobRequest.of(request), Home.open()
        promotes = _may_promote(home, job_request)
        job_request = with_start(home, job_request)
        plan = plans.plan(home, job_request, this_user(), promotes)
        if job_request.evaluate is None:
            return plan.to_json()
        return plan.to_json() | evaluate.price_following(home, plan.request, job_request.evaluate, this_user())

    def train(self, request: Request, key: str | None, progress: Progress) -> Body:
        """Run a job to its end."""
        job_request, home = JobRequest.of(request), Home.open()
        promotes = _may_promote(home, job_request)
        job_request = with_start(home, job_request)
        job.recover(home)
        return job.train(home, job_request, by=this_user(), key=key, progress=progress, promotes=promotes)

    def list_page(self, dataset: str | None, state: str | None, after: int | None, limit: int) -> Body:
        """Return a page of jobs, the newest first."""
        home = Home.open()
        return jobs_to_json(home, dataset, state, after, limit, require_access(home))

    def get(self, number: int) -> Body:
        """Return one job."""
        return _job(Home.open(), number)

    def watch(self, number: int, progress: Progress) -> Body:
        """Wait until a job is over."""
        home = Home.open()
        while PUBLIC_STATES[(body := _job(home, number))["state"]].open:
            progress(body["progress"]["done"], body["progress"]["total"])
            time.sleep(LOOK_SECONDS)
        return body

    def cancel(self, number: int) -> Body:
        """Give back what a job reserved."""
        home = Home.open()
        if not require_access(home).may_cancel(home.ledger.job(number)):
            raise Forbidden(f"job {number}: {this_user()} may not cancel it: it is another's, and no grant names it")
        job.cancel(home, number)
        return _job(home, number)


def _job(home: Home, number: int) -> Body:
    record = home.ledger.job(number)
    if not require_access(home).may_see(record):
        raise Forbidden(f"job {number}: {this_user()} may not see it: it is another's, and no grant names it")
    return job_to_json(home, record)


def _may_promote(home: Home, asked: JobRequest) -> bool:
    """Return whether the user may promote versions of the model. Raises Forbidden where they may not train it."""
    return require_access(home, "train", dataset=asked.dataset).may("promote", model=asked.model or asked.dataset)


def with_start(home: Home, asked: JobRequest) -> JobRequest:
    """Put in the place of a file of public rows the start that is learnt from it."""
    if asked.public is None or not Path(asked.public).is_file():
        return asked
    learnt = public_rows.learn_start(home, asked, Path(asked.public), this_user(), require_access(home))
    return replace(asked, public=learnt)
