"""The command that renews a model with rows that have come: append, train, evaluate and place, as one."""

from __future__ import annotations

from typing import Annotated

import typer

from accountant.home import Home
from accountant.ledger.families.records import identity_statement
from serving.cli.backends.user import require_access
from serving.cli.data.blocks import ask_records
from serving.cli.datasets import DistinctIds, OnePerson, QueryReason
from serving.cli.requests import takes_request
from serving.cli.terminal import Json, show, show_busy, show_progress
from serving.cli.train import job_text, plan_text
from serving.operations import Caller
from serving.operations.jobs import may_promote, require_training
from training.requests import JobRequest


@takes_request(JobRequest, "dataset", without=("tuning", "public"))
def renew(
    asked: JobRequest,
    data: Annotated[str, typer.Option(help="A file, a folder, 'x/*.parquet', s3://bucket/x, or a database's URL.")],
    query: Annotated[str | None, typer.Option(help="Of a database: what to read, a select.")] = None,
    query_reason: QueryReason = None,
    table: Annotated[str | None, typer.Option(help="Of a database: the whole table.")] = None,
    records: Annotated[
        int | None, typer.Option(help="Public guess at how many rows the block has; asked on a terminal.")
    ] = None,
    one_person: OnePerson = False,
    distinct_ids: DistinctIds = False,
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
    from training.datasets.opened import RowSource  # loads what reads rows
    from training.jobs import job, renewal

    home = Home.open()
    access = require_access(home, "steward", dataset=asked.dataset)
    caller = Caller(home, access)
    require_training(caller, asked)
    promotes, records = may_promote(caller, asked), ask_records(records, json)
    if plan:
        with show_busy("pricing"):
            body = renewal.plan_renewal(home, asked, records, caller.principal, promotes)
        return show(json, body, plan_text(body))
    ids = identity_statement(one_person, distinct_ids)
    rows = renewal.NewRows(RowSource(data, query, table, query_reason), records, ids)
    job.recover(home)
    with show_progress(f"renewing {asked.model or asked.dataset}") as progress:
        body = renewal.renew(
            home, rows, asked, by=caller.principal, promotes=promotes, access=access, progress=progress
        )
    show(json, body, job_text(body, [("block", str(body["block"]))]))
