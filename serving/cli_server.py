"""Commands that set up and run: init, serve, worker, config."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from accountant.home import Home, settings
from serving.launch import WORKER_PARENT
from serving.settings import HOST, PORT, all_settings
from serving.terminal import Json, aligned, note, show


def init(
    issuer_key: Annotated[
        str,
        typer.Option(
            help="Where the issuer's key is kept: a signer URI, see docs/keys.md.", envvar="DPSERVE_ISSUER_KEY"
        ),
    ] = "",
    json: Json = False,
) -> None:
    """Make a home: keys, a ledger, and one admin token, printed once on stderr.

    \b
    dpserve init
    dpserve init --issuer-key "hsm:2?label=dpserve"
    """
    home = new_home({**os.environ, "DPSERVE_ISSUER_KEY": issuer_key})
    body = {"home": str(home.path), "origin": home.ledger.log.origin, "trust": str(home.path / "trust.json")}
    text = aligned([("home", body["home"]), ("ledger", body["origin"]), ("keys to pin", body["trust"])])
    show(json, body, text)


def new_home(environment: Mapping[str, str] = os.environ) -> Home:
    """A home with its first token."""
    from serving.tokens import new_token

    home = Home.init(environment)
    secret, _ = new_token(home, "admin", ["admin"])
    note(f"Admin token, printed once and not kept: {secret}")
    return home


def config(json: Json = False) -> None:
    """Print every setting that is in force, and where it came from.

    \b
    dpserve config
    """
    found = all_settings()
    body = {setting.name: {"value": setting.value, "source": setting.source} for setting in found}
    show(json, body, aligned([(setting.name, setting.value, f"({setting.source})") for setting in found]))


def serve(
    port: Annotated[int, typer.Option(help="Port.", envvar="DPSERVE_PORT", min=1, max=65535)] = PORT,
    host: Annotated[str, typer.Option(help="Address to listen on.", envvar="DPSERVE_HOST")] = HOST,
    workers: Annotated[
        int | None,
        typer.Option(help="Serving processes; one for each core by default.", envvar="DPSERVE_WORKERS", min=1),
    ] = None,
) -> None:
    """Serve the models, and run queued jobs in a process beside the server. Makes a home where there is none.

    \b
    dpserve serve --port 3000
    """
    from serving.launch import launch

    if not (Path(settings()["DPSERVE_HOME"].value) / "keys").exists():
        new_home()
    home = Home.open()  # start-up checks: keys, ledger, high-water mark
    raise typer.Exit(launch(home.path, host, port, workers))


def worker(
    once: Annotated[
        bool, typer.Option("--once", help="Settle what a crash left, run one job if there is one, stop.")
    ] = False,
) -> None:
    """Run queued jobs until told to stop; a job that runs is finished first.

    \b
    dpserve worker
    """
    os.nice(5)  # whoever waits for a prediction goes before
    from training import job, queue

    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    home = Home.open()
    if once:
        job.recover(home)
        seq = queue.work_once(home)
        note("no job was queued" if seq is None else f"job {seq}: {home.ledger.job(seq).state.value}")
        return
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
