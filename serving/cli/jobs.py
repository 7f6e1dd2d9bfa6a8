"""Commands on jobs, whoever submitted them: list, show, watch, cancel."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from accountant.errors import JobFailed
from accountant.ledger.families.left import left_words
from serving.cli.backend import backend
from serving.cli.complete import DATASETS
from serving.cli.terminal import Json, align_columns, note_more, show, show_progress
from serving.operations import jobs as operations
from serving.operations.jobs import MAX_LISTED
from training.learners.job_words import STATES, closing, state_words

Number = Annotated[int, typer.Argument(help="The job's number.", min=0)]
COLUMNS = ("job", "state", "dataset", "learner", "epsilon", "model", "by", "time")


def list_jobs(
    dataset: Annotated[str | None, typer.Option(help="Only of this dataset.", autocompletion=DATASETS)] = None,
    state: Annotated[str | None, typer.Option(help="waiting, running, signing, done, failed or 'given back'.")] = None,
    limit: Annotated[int, typer.Option(help="At most so many.", min=1)] = 50,
    after: Annotated[int | None, typer.Option(help="Go on after this job.", min=0)] = None,
    json: Json = False,
) -> None:
    """List jobs, the newest first.

    \b
    dpserve job list --dataset adult --state done
    """
    states = {words: name for name, words in STATES.items()}
    body: dict[str, Any] = {"jobs": [], "next": after}
    while True:
        most, of = min(limit - len(body["jobs"]), MAX_LISTED), states.get(state or "", state)
        page = backend().ask(operations.list_jobs, dataset=dataset, state=of, after=body["next"], limit=most)
        body = {**page, "jobs": [*body["jobs"], *page["jobs"]]}
        if page["next"] is None or len(body["jobs"]) >= limit:
            break
    lines = [{**line, "state": state_words(line)} for line in body["jobs"]]
    rows = [tuple(line[name] for name in COLUMNS) for line in lines]
    show(json, body, align_columns([tuple(name.upper() for name in COLUMNS), *rows]))
    note_more(body["next"])


def show_job(number: Number, json: Json = False) -> None:
    """Show a job: its state, price, and certificate.

    \b
    dpserve job show 12
    """
    body = backend().ask(operations.show_job, job=number)
    show(json, body, _text(body))


def watch(number: Number, json: Json = False) -> None:
    """Watch a queued or running job until it is over. A job that came to nothing is exit code 5.

    \b
    dpserve job watch 12
    """
    with show_progress(f"job {number}") as progress:
        body = backend().jobs.watch(number, progress)
    show(json, body, _text(body))
    if body["state"] == "burned":
        raise typer.Exit(JobFailed.exit_code)


def cancel(number: Number, json: Json = False) -> None:
    """Give back what a job reserved, as long as it has not started.

    \b
    dpserve job cancel 12
    """
    body = backend().ask(operations.cancel_job, job=number)
    show(json, body, _text(body))


def _text(body: dict[str, Any]) -> str:
    certificate, progress = body["certificate"] or {}, body["progress"]
    lines = [
        ("job", f"{body['job']}: {state_words(body)}"),
        ("asked", f"{body['learner']} on {body['dataset']}, by {body['by']} at {body['time']}"),
        ("progress", f"{progress['done']} of {progress['total']}"),
        ("price", f"epsilon {body['epsilon']}"),
        ("model", body["model"]),
        *closing(body),
        *([("evaluation", "job {job}: {state}".format(**body["evaluation"]))] if "evaluation" in body else []),
        *([("certificate", f"entry {certificate['entry']}")] if certificate else []),
        *([("waiting", body["waiting"])] if body["waiting"] else []),
        *([("error", body["error"])] if body["error"] else []),
        ("budget", left_words(body["left"])),
    ]
    return align_columns(lines)
