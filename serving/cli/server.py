"""Commands that set up and run: init, serve, auditor, worker, config."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from accountant.home import Home, local, place
from accountant.keys.key_files import is_absent
from accountant.store.store import Tables
from accountant.system.life import LIFE
from accountant.system.machine import give_way, memory
from dpserve_verify.errors import DpserveError, InputError, LedgerUnavailable, VerificationError
from dpserve_verify.system.files import PRIVATE, holding, open_directory, replace_file
from serving.cli.complete import DATASETS
from serving.cli.terminal import Json, align_columns, note, require_end, show
from serving.launch import launch
from serving.pages.parts import static_files
from serving.process.config.healthy import WORKER, Heartbeat
from serving.process.config.settings import ServerSettings, all_settings
from serving.process.config.startup import (
    AUDIT_SECONDS,
    DRAIN_SECONDS,
    HOST,
    JOB_WORKERS,
    PORT,
    SERVING_BYTES,
    Listening,
    check_home,
    check_listening,
    check_place,
    fit_workers,
    pair_tls,
)
from serving.process.first_sign_in import FIRST_TOKEN, print_link
from serving.process.tokens import new_token
from serving.process.watch import audit_runs, logs
from serving.process.watch.witnessing import asked_policy
from serving.process.workers.forks import WORKER_PARENT
from serving.process.workers.handover import is_left, stopping_early

LOG, WORKING, SERVING = (logging.getLogger(f"dpserve.{name}") for name in ("auditor", "worker", "serving"))
AuditSeconds = Annotated[
    str, typer.Option(help="Seconds between audits of the ledger; 0: only when asked.", envvar="DPSERVE_AUDIT_SECONDS")
]


def init(
    issuer_key: Annotated[
        str,
        typer.Option(
            help="Where the issuer's key is kept: a signer URI (docs/reference/home.md).", envvar="DPSERVE_ISSUER_KEY"
        ),
    ] = "",
    if_absent: Annotated[
        bool, typer.Option("--if-absent", help="Leave a home that is there as it is, once it opens.")
    ] = False,
    json: Json = False,
) -> None:
    """Make a home: keys, a ledger, and one admin token, in a file that nobody else may read.

    \b
    dpserve init
    dpserve init --issuer-key "hsm:2?label=dpserve"
    """
    home = open_or_make({**os.environ, "DPSERVE_ISSUER_KEY": issuer_key}, if_absent)
    body = {"home": str(home.path), "origin": home.ledger.log.origin, "trust": str(home.path / "trust.json")}
    text = align_columns([("home", body["home"]), ("ledger", body["origin"]), ("keys to pin", body["trust"])])
    show(json, body, text)


def open_or_make(environment: Mapping[str, str] = os.environ, if_absent: bool = True) -> Home:
    """Open the home, or make it where there is none; without `if_absent` it must not be there."""
    path, _ = place(environment)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    with holding(open_directory(path)):  # of several that start at once the others find what the first has made
        is_there = if_absent and (path / "keys").exists()
        return Home.open(environment) if is_there else new_home(environment)


def new_home(environment: Mapping[str, str] = os.environ) -> Home:
    """Make a home with its first token, which goes into a file of the home and nowhere else: what is printed here may
    be kept by a store of logs.
    """
    home = Home.init(environment)
    secret, _ = new_token(home, "admin", ["admin"])
    file = home.path.absolute() / FIRST_TOKEN
    replace_file(file, f"{secret}\n".encode(), PRIVATE)
    note(f"The admin token is in {file}; take it from there and remove the file")
    return home


def config(json: Json = False) -> None:
    """Print every setting that is in force, and where it came from.

    \b
    dpserve config
    """
    settings = all_settings()
    body = {setting.name: {"value": setting.shown, "source": setting.source} for setting in settings}
    show(json, body, align_columns([(setting.name, setting.shown, f"({setting.source})") for setting in settings]))


def serve(
    context: typer.Context,
    port: Annotated[int, typer.Option(help="Port.", envvar="DPSERVE_PORT", min=1, max=65535)] = PORT,
    host: Annotated[str, typer.Option(help="Address to listen on.", envvar="DPSERVE_HOST")] = HOST,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Serving processes; by default one for each core, as far as memory goes.",
            envvar="DPSERVE_WORKERS",
            min=1,
        ),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(help="Certificate chain, PEM: serve HTTPS.", envvar="DPSERVE_TLS_CERT")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its private key, PEM.", envvar="DPSERVE_TLS_KEY")] = None,
    grpc: Annotated[
        int,
        typer.Option(
            help="Port of the open inference protocol over gRPC; 0: none.", envvar="DPSERVE_GRPC", min=0, max=65535
        ),
    ] = 0,
    audit_seconds: AuditSeconds = str(AUDIT_SECONDS),
    drain_seconds: Annotated[
        float,
        typer.Option(help="When told to stop, say not ready for so long first.", envvar="DPSERVE_DRAIN_SECONDS", min=0),
    ] = DRAIN_SECONDS,
    job_workers: Annotated[
        str,
        typer.Option(help="Processes beside it that run queued jobs; 0: none.", envvar="DPSERVE_JOB_WORKERS"),
    ] = str(JOB_WORKERS),
) -> None:
    """Serve the models, run queued jobs and audit the ledger in processes beside the server. Makes a home where there
    is none, and prints a link to sign in with, once.

    \b
    dpserve serve --port 3000
    dpserve serve --host 0.0.0.0 --port 443 --tls-cert chain.pem --tls-key key.pem
    """
    logs.set_up()
    settings = ServerSettings.with_flags(audit_seconds=audit_seconds, job_workers=job_workers)
    fitting = fit_workers(workers, settings.job_workers, memory() - bool(grpc) * SERVING_BYTES)
    listening = Listening(host, port, fitting, pair_tls(tls_cert, tls_key), grpc)
    path, _ = place(os.environ)
    with stopping_early(path, listening):
        _prepare(path, listening, settings.job_workers)
        link = partial(print_link, path, listening.url, host)
        launch(path, listening, settings.audit_seconds, drain_seconds, settings.job_workers, link, context.obj)


def _prepare(path: Path, listening: Listening, job_workers: int) -> None:
    """Check what the server needs, and make or migrate its home. InputError where it cannot begin."""
    check_listening(listening, partial(is_left, path, listening))
    static_files.files()  # of the pages: those of others must be the pinned ones
    check_place(path)
    asked_policy()  # InputError where the file of the setting cannot be read
    has_key = not is_absent(os.environ.get("DPSERVE_ISSUER_KEY", ""))
    if job_workers and not has_key:
        raise InputError(
            f"job_workers={job_workers}: must be 0 where DPSERVE_ISSUER_KEY=none; jobs are run where the "
            "issuer's key is, by dpserve worker"
        )
    if has_key and not (path / "keys").exists():
        new_home()
    try:
        Home.open(tables=Tables.MIGRATE).ledger.log.database.close()  # keys, ledger, high-water mark
    except LedgerUnavailable as error:
        if not (path / "models").exists():  # a home that was never served
            raise
        SERVING.error("the home cannot be opened: %s; the processes of the server look again and again", error.message)
    check_home(path)


def auditor(
    once: Annotated[bool, typer.Option("--once", help="Make one audit and stop; exit code 4 where it failed.")] = False,
    seconds: AuditSeconds = str(AUDIT_SECONDS),
    json: Json = False,
) -> None:
    """Audit the ledger now, every so often, and when it was asked for at the server. The dashboard and the metrics
    tell the last result. `dpserve serve` does so by itself. --json goes with --once.

    \b
    dpserve auditor
    """
    require_end(once, json)
    give_way(10)
    logs.set_up()
    period = ServerSettings.with_flags(audit_seconds=seconds).audit_seconds
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    path, url = place(os.environ)
    if once:
        code = _audit(path, url)
        if json:
            show(True, audit_runs.read_last(path), "")
        raise typer.Exit(code)
    due = 0.0
    while True:
        if (period and time.monotonic() >= due) or audit_runs.is_asked(path):
            due = time.monotonic() + period
            _audit(path, url)
        time.sleep(1)


def _audit(path: Path, url: str) -> int:
    """Audit a home; return the exit code: 0 where all is well. An audit that could not be made is printed, and makes
    the last one old.
    """
    try:
        audit = audit_runs.audit_at(path, url)
    except (DpserveError, OSError) as error:
        LOG.error("no audit could be made: %s", getattr(error, "message", type(error).__name__))
        return VerificationError.exit_code
    if audit["problems"]:
        LOG.error("audit: %d entries, NOT SOUND: %s", audit["entries"], audit["problems"][0])
        return VerificationError.exit_code
    if not audit["ok"]:
        LOG.warning("audit: sound up to entry %d; from there of a newer version, which must audit it", audit["newer"])
        return DpserveError.exit_code
    LOG.info("audit: %d entries, sound", audit["entries"])
    for line in audit["lost"]:
        LOG.warning("audit: lost: %s", line)
    return 0


def worker(
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            help="Settle what a crash left, submit the schedules that are due, run one job if any waits, stop.",
        ),
    ] = False,
    dataset: Annotated[
        list[str] | None,
        typer.Option(help="Only its jobs: where its rows are. Repeatable.", autocompletion=DATASETS),
    ] = None,
    json: Json = False,
) -> None:
    """Run queued jobs until told to stop; a job that runs is finished first. --json goes with --once.

    \b
    dpserve worker
    dpserve worker --dataset adult
    """
    from training.jobs import job, queue, schedule  # loads every learner, which `init` and `serve` do without

    require_end(once, json)
    give_way(5)  # whoever waits for a prediction goes before
    logs.set_up()
    if once:
        home = Home.open(tables=Tables.MIGRATE)
        job.recover(home)
        submitted = schedule.submit_due(home)
        seq = queue.work_once(home, datasets=dataset or ())
        state = None if seq is None else home.ledger.job(seq).state.value
        if submitted:
            note(f"submitted by schedules: {', '.join(f'job {each}' for each in submitted)}")
        note("no job was queued" if seq is None else f"job {seq}: {state}")
        return show(True, {"job": seq, "state": state, "submitted": submitted}, "") if json else None
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    threading.Thread(target=_stop_with_parent, args=(stop,), daemon=True).start()
    if (opened := _open_when_there(stop)) is not None:
        Heartbeat(local(opened.path) / WORKER).beat_in_a_thread(LIFE.last)
        queue.work(opened, stop, dataset or ())


def _open_when_there(stop: threading.Event) -> Home | None:
    """Open the home; where its database is away, wait for it, as a worker does that has begun. None once told to
    stop.
    """
    heartbeat: Heartbeat | None = None
    while not stop.is_set():
        try:
            return Home.open(tables=Tables.MIGRATE)
        except LedgerUnavailable as error:
            if heartbeat is None:
                WORKING.error("the home cannot be opened: %s; it is tried again", error.message)
                heartbeat = Heartbeat(local(place(os.environ)[0]) / WORKER)
            heartbeat.beat()
            LIFE.show()
            stop.wait(1.0)
    return None


def _stop_with_parent(stop: threading.Event) -> None:
    """Set `stop` when the `dpserve serve` that started this worker is gone."""
    parent = os.environ.get(WORKER_PARENT)
    while parent and not stop.wait(1.0):
        if os.getppid() != int(parent):
            stop.set()
