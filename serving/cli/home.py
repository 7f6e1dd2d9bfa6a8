"""Commands of the operator: the home itself, and what its lists leave out."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from accountant.home import Home
from accountant.home.backup import back_up
from accountant.home.backup import restore as restore_home
from accountant.home.migration import copy_of, put_back
from accountant.ledger.archive import archive
from accountant.ledger.families.records import Why
from accountant.store.store import Tables
from serving.cli.backends.user import require_access, this_user
from serving.cli.complete import Model
from serving.cli.terminal import Json, align_columns, note, paint, show, show_busy, show_progress

Reason = Annotated[str, typer.Option("--reason", help="Why. It stays in the ledger permanently.")]


def migrate(
    back: Annotated[
        bool, typer.Option("--back", help="Put the earlier tables back, while nothing was entered since.")
    ] = False,
    json: Json = False,
) -> None:
    """Bring the ledger's tables to this version, and say from which revision to which. Entries are never touched.

    The ledger is copied into the home first (ledger-REVISION.db). It is one transaction, of one process at a time;
    while a job runs that an earlier version has started, it refuses. `dpserve serve` and `dpserve worker` do the same
    when they start; every other command leaves earlier tables as they are.

    \b
    dpserve migrate
    dpserve migrate --back
    """
    home = Home.open(tables=Tables.CURRENT if back else Tables.MIGRATE)
    require_access(home, "admin")
    database = home.ledger.log.database
    if back:
        now, newest = put_back(home.path, database), database.newest_revision
        text = f"tables of revision {now} again, as they were before {newest}: use the version that made them"
        return show(json, {"from": newest, "to": now}, text)
    before, now = database.revision, database.newest_revision
    was = (
        "as they were" if before == now else f"they were of {before}; that ledger is {copy_of(home.path, str(before))}"
    )
    show(json, {"from": before, "to": now}, f"tables of revision {now}: {was}")


def backup(
    folder: Annotated[Path, typer.Argument(help="A new folder, on another disk.")],
    json: Json = False,
) -> None:
    """Copy the home and its ledger, whatever runs on it.

    Everything that cannot be made again is in the copy, as of one moment; tables of an earlier version are copied as
    they are. It holds keys and rows: who reads it can do what the home can.

    \b
    dpserve backup /backups/monday
    """
    home = Home.open(tables=Tables.KNOWN)
    require_access(home, "admin")
    with show_busy("copying the home"):
        done = back_up(home, folder)
    for path in done.unknown:
        note(f"{path}: is no part of a home, and is not in the backup")
    if done.missing:
        note(f"datasets/: {len(done.missing)} folders are not in this home, and not in the backup (--json names them)")
    if not done.is_noted:
        note("the home cannot be written, so its metrics do not know of this backup")
    body = {"out": str(folder), "entries": done.entries, "files": len(done.files)}
    lines = [(name, str(value)) for name, value in body.items()]
    show(json, body | {"unknown": done.unknown, "missing": done.missing}, align_columns(lines))


def restore(
    folder: Annotated[Path, typer.Argument(help="What dpserve backup wrote.")],
    mark: Annotated[
        Path | None,
        typer.Option(help="keys/high-water.json of the home that was lost, where it is still there."),
    ] = None,
    json: Json = False,
) -> None:
    """Put a backup into a new home and an empty database, and audit it.

    DPSERVE_HOME and DPSERVE_LEDGER_URL say which. Every file is compared with its digest. With --mark, a backup that is
    older than what the keys signed is refused.

    \b
    DPSERVE_HOME=/srv/dpserve dpserve restore /backups/monday
    """
    from serving.cli.backends.home.ledger import HomeLedger  # loads the audit
    from serving.cli.ledger import report_lines

    with show_busy("restoring the home"):
        done = restore_home(folder, os.environ, mark)
    with show_progress("audit") as progress:
        report, _, _ = HomeLedger().audit([], None, progress)
    lines = [
        ("entries", str(done.entries)),
        ("files", str(done.files)),
        ("as of", done.made),
        ("made again", ", ".join(done.rebuilt)),
        ("audit", paint(report.verdict, "good" if report.ok and not report.lost else "bad")),
    ]
    text = "\n".join([align_columns(lines), *report_lines(report)])
    show(json, asdict(done) | {"audit": report.to_json()}, text)
    if not report.ok:
        raise typer.Exit(report.exit_code)


def archive_model(name: Model, why: Reason, json: Json = False) -> None:
    """Leave a model, with all versions of its name, out of lists. It answers as before: `model retire` ends that.

    \b
    dpserve model archive adult --reason "superseded by adult-2"
    """
    _archive(name, why, json)


def unarchive_model(name: Model, why: Reason, json: Json = False) -> None:
    """Let an archived model stand in lists again.

    \b
    dpserve model unarchive adult --reason "used again"
    """
    _archive(name, why, json, ends=True)


def _archive(name: str, reason: str, json: bool, ends: bool = False) -> None:
    home, why = Home.open(), Why(this_user(), reason)
    require_access(home, "promote", model=name)
    entry = archive(home.ledger, "model", name, why, ends)
    body = {"model": name, "archived": not ends, "entry": entry}
    words = "stands in lists again" if ends else "is left out of lists (--all shows it)"
    show(json, body, f"model {name} {words}; entry {entry} of the ledger says so")
