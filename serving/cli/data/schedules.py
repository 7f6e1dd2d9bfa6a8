"""Commands about schedules: the same job once a period, by a training worker, for as long as the budgets last."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from serving.cli.backend import backend
from serving.cli.requests import takes_request
from serving.cli.terminal import After, Contains, Json, Limit, align_columns, note_more, show, show_busy
from serving.operations import schedules as operations
from serving.operations.schedules import add_schedule, remove_schedule
from serving.wire.list_parts import Part
from training.requests import ScheduleRequest

Name = Annotated[str, typer.Argument(help="The schedule's name.")]


@takes_request(ScheduleRequest, "name", without=("dry_run",))
def add(asked: ScheduleRequest, json: Json = False) -> None:
    """Train by a rule: the same job once a period, until a block that it reads is exhausted. Nothing is spent now.

    A worker (dpserve worker) submits each job once in its period; a period that was slept through is not made up for.

    \b
    dpserve schedule add weekly --dataset visits --epsilon 0.1 --blocks last:12
    """
    with show_busy("pricing"):
        body = backend().ask(add_schedule, body=asked)
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


def _request_text(body: dict[str, Any]) -> str:
    blocks = f", blocks {body['blocks']}" if "blocks" in body else ""
    return f"every {body['every']}, {body['learner']} on {body['dataset']}{blocks} at epsilon {body['epsilon']}"


def _lasting_text(body: dict[str, Any]) -> str:
    """Say for how long a schedule can be kept."""
    if body["stopped"] is not None:
        return f"stopped: {body['stopped']}"
    if body.get("problem"):
        return str(body["problem"])
    fed = "for good" if body["fed"] is None else f"{body['fed']} times, until {body['fed_until']},"
    without_new_blocks = f"{body['alone']} times on these blocks, until {body['until']}"
    return f"{without_new_blocks}; {fed} with a new block each {body['every']}"
