"""Commands about schedules: the same job once a period, by a training worker, for as long as the budgets last."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from accountant.home import Home
from dpserve_verify.errors import InputError
from serving.cli.backend import backend
from serving.cli.backends.choice import Needs, check_needs
from serving.cli.backends.user import require_access
from serving.cli.data.blocks import BlockReason, EachBlock
from serving.cli.requests import takes_request
from serving.cli.terminal import After, Contains, Json, Limit, align_columns, note_more, show, show_busy
from serving.operations import Caller
from serving.operations import schedules as operations
from serving.operations.schedules import add_schedule, remove_schedule
from serving.wire.list_parts import Part
from training.requests import ScheduleRequest

Name = Annotated[str, typer.Argument(help="The schedule's name.")]


@takes_request(ScheduleRequest, "name", without=("dry_run",))
def add(
    asked: ScheduleRequest,
    data: Annotated[
        str | None, typer.Option(help="Append the files of this pattern first: '/data/visits-*.parquet', by name.")
    ] = None,
    records: Annotated[
        int | None, typer.Option(help="With --data: public guess at how many rows each file has.")
    ] = None,
    each_block: EachBlock = False,
    reason: BlockReason = None,
    json: Json = False,
) -> None:
    """Train by a rule: the same job once a period, until a block that it reads is exhausted. Nothing is spent now.

    A worker (dpserve worker) submits each job once in its period; a period that was slept through is not made up for.
    With --data it does what dpserve renew does, once in a period in which a file has come, and waits for one; with
    --each-block whoever is in several blocks has a budget in each.

    \b
    dpserve schedule add weekly --dataset visits --epsilon 0.1 --blocks last:12
    dpserve schedule add monthly --dataset visits --data '/data/visits-*.parquet' --records 400 --every month
        --epsilon 0.2 --evaluate 0.25 --blocks last:12 --promote
    """
    if data is None and (records is not None or each_block or reason is not None):
        raise InputError("data: --records, --each-block and --reason are said of the files that --data names")
    with show_busy("pricing"):
        if data is None:
            body = backend().ask(add_schedule, body=asked)
        else:
            body = _add_with_rows(asked, data, records, each_block, reason)
    show(
        json,
        body,
        align_columns([("schedule", asked.name), ("asks", _request_text(body)), ("lasts", _lasting_text(body))]),
    )


def list_schedules(contains: Contains = "", limit: Limit = None, after: After = None, json: Json = False) -> None:
    """List schedules, and for how long each can be kept: your own, and those on datasets of which you are steward.

    \b
    dpserve schedule list
    """
    page = backend().ask(operations.list_schedules, part=Part(contains, after, limit))
    rows = [("SCHEDULE", "ASKS", "LAST JOB", "LASTS")]
    rows += [
        (body["name"], _request_text(body), str((body["last"] or {}).get("job", "none")), _lasting_text(body))
        for body in page["schedules"]
    ]
    show(json, page, align_columns(rows))
    note_more(page["next"])


def remove(name: Name, json: Json = False) -> None:
    """Remove a schedule. What it asked for before stays as it is.

    \b
    dpserve schedule remove weekly
    """
    gone = backend().ask(remove_schedule, schedule=name)
    show(json, gone, f"removed {gone['name']}")


def _add_with_rows(
    asked: ScheduleRequest, data: str, records: int | None, each_block: bool, reason: str | None
) -> dict[str, Any]:
    """Begin a schedule that appends rows: for the steward, where the home is, whose files are named."""
    from training.datasets.drafts.appending import read_words  # loads what reads rows
    from training.jobs.renewal import ScheduledRows

    check_needs("schedule add --data", Needs.HOME, "The steward adds it where the rows are")
    home = Home.open()
    caller = Caller(home, require_access(home, "steward", dataset=asked.dataset))
    words = read_words(records, caller.principal, each_block=each_block, reason=reason)
    rows = ScheduledRows(data, words.records, reason if each_block else None)
    return operations.begin_schedule(caller, asked, rows)


def _request_text(body: dict[str, Any]) -> str:
    blocks = f", blocks {body['blocks']}" if "blocks" in body else ""
    rows = f" after the rows of {body['rows']['data']}" if "rows" in body else ""
    return f"every {body['every']}{rows}, {body['learner']} on {body['dataset']}{blocks} at epsilon {body['epsilon']}"


def _lasting_text(body: dict[str, Any]) -> str:
    """Say for how long a schedule can be kept."""
    if body["stopped"] is not None:
        return f"stopped: {body['stopped']}"
    if body.get("problem"):
        return str(body["problem"])
    fed = "for good" if body["fed"] is None else f"{body['fed']} times, until {body['fed_until']},"
    without_new_blocks = f"{body['alone']} times on these blocks, until {body['until']}"
    return f"{without_new_blocks}; {fed} with a new block each {body['every']}"
