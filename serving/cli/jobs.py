"""Commands on jobs, whoever submitted them: list, show, watch, cancel; and the worker that runs them."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Annotated, Any

import typer

from accountant.errors import Forbidden, JobFailed
from accountant.home import Home
from accountant.ledger.left import left_words
from accountant.ledger.records import PUBLIC_STATES
from serving.cli.complete import DATASETS
from serving.cli.terminal import Json, aligned, allowed, note, require_end, rounds, show, this_user
from serving.cli.train import closing
from serving.process import logs
from serving.process.launch import WORKER_PARENT
from training import job, queue
from training.job_views import job_to_json, jobs_to_json

Number = Annotated[int, typer.Argument(help="The job's number.", min=0)]
LOOK_SECONDS = 0.5
COLUMNS = ("job", "state", "dataset", "learner", "epsilon", "model", "by", "time")


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
    home = Home.open()
    body = jobs_to_json(home, dataset, state, after, limit, allowed(home))
    rows = [tuple(line[name] for name in COLUMNS) for line in body["jobs"]]
    show(json, body, aligned([tuple(name.upper() for name in COLUMNS), *rows]))
    if body["next"] is not None:
        note(f"There are more: --after {body['next']}")


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
        while PUBLIC_STATES[(body := _job(home, number))["state"]].open:
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
    if not allowed(home).may_cancel(home.ledger.job(number)):
        raise Forbidden(f"job {number}: {this_user()} may not cancel it: it is another's, and no grant names it")
    home.ledger.release(number)
    body = _job(home, number)
    show(json, body, _text(body))


def _job(home: Home, number: int) -> dict[str, Any]:
    found = home.ledger.job(number)
    if not allowed(home).may_see(found):
        raise Forbidden(f"job {number}: {this_user()} may not see it: it is another's, and no grant names it")
    return job_to_json(home, found)


def _text(body: dict[str, Any]) -> str:
    certificate, progress = body["certificate"] or {}, body["progress"]
    lines = [
        ("job", f"{body['job']}: {body['state']}"),
        ("asked", f"{body['learner']} on {body['dataset']}, by {body['by']} at {body['time']}"),
        ("progress", f"{progress['done']} of {progress['total']}"),
        ("price", f"epsilon {body['epsilon']}, delta {body['delta']}"),
        ("model", body["model"]),
        *closing(body),
        *([("certificate", f"entry {certificate['entry']}")] if certificate else []),
        *([("waiting", body["waiting"])] if body["waiting"] else []),
        *([("error", body["error"])] if body["error"] else []),
        ("left", left_words(body["left"])),
    ]
    return aligned(lines)


def worker(
    once: Annotated[
        bool, typer.Option("--once", help="Settle what a crash left, run one job if there is one, stop.")
    ] = False,
    json: Json = False,
) -> None:
    """Run queued jobs until told to stop; a job that runs is finished first. --json goes with --once.

    \b
    dpserve worker
    """
    require_end(once, json)
    os.nice(5)  # whoever waits for a prediction goes before
    logs.set_up()
    home = Home.open()
    if once:
        job.recover(home)
        seq = queue.work_once(home)
        state = None if seq is None else home.ledger.job(seq).state.value
        note("no job was queued" if seq is None else f"job {seq}: {state}")
        return show(True, {"job": seq, "state": state}, "") if json else None
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    threading.Thread(target=_stop_with_parent, args=(stop,), daemon=True).start()
    queue.work(home, stop)


def _stop_with_parent(stop: threading.Event) -> None:
    """A worker that `dpserve serve` started goes when that is killed."""
    parent = os.environ.get(WORKER_PARENT)
    while parent and not stop.wait(1.0):
        if os.getppid() != int(parent):
            stop.set()
