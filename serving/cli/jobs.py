"""Commands on jobs, whoever submitted them: list, show, watch, cancel."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from accountant.errors import JobFailed
from accountant.home import Home
from serving.cli.complete import DATASETS
from serving.cli.terminal import Json, aligned, note, rounds, show

Number = Annotated[int, typer.Argument(help="The job's number.", min=0)]
LOOK_SECONDS = 0.5
OVER = ("issued", "burned", "released")


def list_jobs(
    dataset: Annotated[str | None, typer.Option(help="Only of this dataset.", autocompletion=DATASETS)] = None,
    state: Annotated[str | None, typer.Option(help="reserved, started, committed, issued, burned or released.")] = None,
    limit: Annotated[int, typer.Option(help="At most so many.", min=1)] = 50,
    after: Annotated[int | None, typer.Option(help="Go on after this job.", min=0)] = None,
    json: Json = False,
) -> None:
    """List jobs, the newest first.

    \b
    dpserve job list --dataset adult --state issued
    """
    from training.job_views import jobs_to_json

    body = jobs_to_json(Home.open(), dataset, state, after, limit)
    rows = [("JOB", "STATE", "DATASET", "LEARNER", "EPSILON", "MODEL", "BY", "TIME"), *map(_row, body["jobs"])]
    show(json, body, aligned(rows))
    if body["next"] is not None:
        note(f"There are more: --after {body['next']}")


def _row(line: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(line[name] for name in ("job", "state", "dataset", "learner", "epsilon", "model", "by", "time"))


def show_job(number: Number, json: Json = False) -> None:
    """Show a job: its state, price, and certificate.

    \b
    dpserve job show 12
    """
    body = _job(Home.open(), number)
    show(json, body, _text(body))


def watch(number: Number, json: Json = False) -> None:
    """Watch a queued or running job until it is over. A job that came to nothing is exit code 5.

    \b
    dpserve job watch 12
    """
    home = Home.open()
    with rounds(f"job {number}") as progress:
        while (body := _job(home, number))["state"] not in OVER:
            progress(body["progress"]["done"], body["progress"]["total"])
            time.sleep(LOOK_SECONDS)
    show(json, body, _text(body))
    if body["state"] == "burned":
        raise typer.Exit(JobFailed.exit_code)


def cancel(number: Number, json: Json = False) -> None:
    """Give back what a job reserved, as long as it has not started.

    \b
    dpserve job cancel 12
    """
    home = Home.open()
    home.ledger.release(number)
    body = _job(home, number)
    show(json, body, _text(body))


def _job(home: Home, number: int) -> dict[str, Any]:
    from training.job_views import job_to_json

    return job_to_json(home, home.ledger.job(number))


def _text(body: dict[str, Any]) -> str:
    certificate, progress = body["certificate"] or {}, body["progress"]
    lines = [
        ("job", f"{body['job']}: {body['state']}"),
        ("asked", f"{body['learner']} on {body['dataset']}, by {body['by']} at {body['time']}"),
        ("progress", f"{progress['done']} of {progress['total']}"),
        ("price", f"epsilon {body['epsilon']}, delta {body['delta']}"),
        ("model", body["model"]),
        *([("certificate", f"entry {certificate['entry']}")] if certificate else []),
        *([("error", body["error"])] if body["error"] else []),
        ("left", f"epsilon {body['left']['epsilon']}"),
    ]
    return aligned(lines)
