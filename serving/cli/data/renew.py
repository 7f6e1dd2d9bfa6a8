"""The command that renews a model with rows that have come: append, train, evaluate and place, as one."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from accountant.home import Home
from serving.cli.backends.user import require_access
from serving.cli.data.blocks import (
    BlockReason,
    BlockRecords,
    Dated,
    EachBlock,
    NewRows,
    PersonEpsilon,
    Since,
    Until,
    ask_records,
    read_period,
)
from serving.cli.datasets import DatabaseQuery, DatabaseTable, DistinctIds, OnePerson, QueryReason, RowsData
from serving.cli.requests import takes_request
from serving.cli.terminal import Json, show, show_busy, show_progress
from serving.cli.train import job_text, plan_text
from serving.operations import Caller
from serving.operations.jobs import may_promote, require_training
from training.requests import JobRequest


@takes_request(JobRequest, "dataset", without=("tuning", "public"))
def renew(
    asked: JobRequest,
    data: RowsData,
    query: DatabaseQuery = None,
    query_reason: QueryReason = None,
    table: DatabaseTable = None,
    records: BlockRecords = None,
    dated: Dated = None,
    since: Since = None,
    until: Until = None,
    new_rows: NewRows = False,
    person_epsilon: PersonEpsilon = None,
    each_block: EachBlock = False,
    reason: BlockReason = None,
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
    from training.datasets.drafts.appending import read_words  # loads what reads rows
    from training.datasets.opened import RowSource
    from training.jobs import job, renewal

    home = Home.open()
    access = require_access(home, "steward", dataset=asked.dataset)
    caller = Caller(home, access)
    require_training(caller, asked)
    promotes = may_promote(caller, asked)
    words = read_words(
        ask_records(records, json), caller.principal, reason=reason, new_rows=new_rows, person_epsilon=person_epsilon,
        each_block=each_block, one_person=one_person, distinct_ids=distinct_ids,
        period=read_period(dated, since, until),
    )  # fmt: skip
    source = RowSource(data, query, table, query_reason)
    if plan:
        with show_busy("pricing"):
            body = renewal.rehearse(home, source, words, asked, by=caller.principal, promotes=promotes, access=access)
        return show(json, body, _plan_text(body))
    job.recover(home)
    with show_progress(f"renewing {asked.model or asked.dataset}") as progress:
        body = renewal.renew(
            home, source, words, asked, by=caller.principal, promotes=promotes, access=access, progress=progress
        )
    show(json, body, _job_text(body))


def _plan_text(body: dict[str, Any]) -> str:
    return _job_text(body) if "job" in body else plan_text(body)


def _job_text(body: dict[str, Any]) -> str:
    return job_text(body, [("block", str(body["block"]))])
