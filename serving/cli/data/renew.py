"""The command that renews a model with rows that have come: append, train, evaluate and place, as one."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from accountant.errors import Faults
from accountant.home import Home
from accountant.ledger.block_appending import check_person_words
from serving.cli.backends.user import require_access
from serving.cli.data.blocks import BlockOptions, takes_block
from serving.cli.requests import takes_request
from serving.cli.terminal import Json, show, show_busy, show_progress
from serving.cli.train import job_text, plan_text
from serving.operations import Caller
from serving.operations.jobs import may_promote, require_training
from training.requests import JobRequest


@takes_request(JobRequest, "dataset", without=("tuning", "public"), optional=("epsilon",))
@takes_block
def renew(
    given: dict[str, Any],
    block: BlockOptions,
    plan: Annotated[
        bool, typer.Option("--plan", help="Say what it would cost and give; append and spend nothing.")
    ] = False,
    json: Json = False,
) -> None:
    """Renew a model with new rows: append them as the next block, train, evaluate and place, by one command.

    Nothing is appended where the job would not be admitted. Asked again with the same rows, it goes on where it stopped
    and charges nothing twice.

    \b
    dpserve renew visits --data march.parquet --records 400 --epsilon 0.2 --evaluate 0.25 --blocks last:12 --plan
    dpserve renew visits --data march.parquet --records 400 --epsilon 0.2 --evaluate 0.25 --blocks last:12 --promote
    """
    from training.jobs import job, renewal  # loads what reads rows

    home = Home.open()
    access = require_access(home, "steward", dataset=given["dataset"])
    caller, faults = Caller(home, access), Faults()
    with faults.collect():
        asked = JobRequest.of(given)
    with faults.collect():
        words = block.words(caller.principal, json)
    with faults.collect():
        renewal.check_words(home, given)
    if faults:  # else the rows are looked at before: of what is a block already nothing need be said
        with faults.collect():
            check_person_words(home.ledger.dataset(given["dataset"]), block.person_epsilon, block.each_block)
    faults.settle()
    require_training(caller, asked)
    about = home, block.source, words, asked
    how: dict[str, Any] = {"by": caller.principal, "promotes": may_promote(caller, asked), "access": access}
    if plan:
        with show_busy("pricing"):
            body = renewal.rehearse(*about, **how)
        return show(json, body, _job_text(body) if "job" in body else plan_text(body))
    job.recover(home)
    with show_progress(f"renewing {asked.model or asked.dataset}") as progress:
        body = renewal.renew(*about, **how, progress=progress)
    show(json, body, _job_text(body))


def _job_text(body: dict[str, Any]) -> str:
    return job_text(body, [("block", str(body["block"]))])
