"""Training jobs of a home: charged and run in this process."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from accountant.home import Home
from accountant.ledger.families.records import PUBLIC_STATES
from accountant.system.lazy_import import later
from serving.cli.backends.abstract import Body, Jobs, Note, Progress, Request
from serving.cli.backends.user import require_access
from serving.operations import Caller, at_home
from serving.operations.jobs import may_promote, require_training, show_job
from training.requests import JobRequest

if TYPE_CHECKING:
    from training.jobs import job
    from training.measuring.worth import public_rows
else:  # what fits and certifies; who watches a job does without
    job, public_rows = later("training.jobs.job"), later("training.measuring.worth.public_rows")

LOOK_SECONDS = 0.5
J = TypeVar("J", bound=JobRequest)


class HomeJobs(Jobs):
    """As `Jobs` says, with the rows and the ledger of the home."""

    def __init__(self, note: Note) -> None:
        self.note = note

    def train(self, request: Request, key: str | None, progress: Progress) -> Body:
        """Run a job to its end."""
        home = Home.open()
        caller = Caller(home, require_access(home))
        job_request = with_start(caller, JobRequest.of(request))
        require_training(caller, job_request)
        job.recover(home)
        promotes = may_promote(caller, job_request)
        return job.train(home, job_request, by=caller.principal, key=key, progress=progress, promotes=promotes)

    def watch(self, number: int, progress: Progress) -> Body:
        """Wait until a job is over."""
        home = Home.open()
        caller = Caller(home, require_access(home))
        while PUBLIC_STATES[(body := at_home(show_job, caller, job=number))["state"]].open:
            progress(body["progress"]["done"], body["progress"]["total"])
            time.sleep(LOOK_SECONDS)
        return body


def with_start(caller: Caller, asked: J) -> J:
    """Put in the place of a file of public rows the start that is learnt from it. Forbidden where the caller may not
    train on the dataset.
    """
    if asked.public is None or not Path(asked.public).is_file():
        return asked
    caller.rights.require("train", dataset=asked.dataset)
    learnt = public_rows.learn_start(caller.home, asked, Path(asked.public), caller.principal, caller.rights)
    return type(asked).of({**asked.to_json(), "public": learnt})
