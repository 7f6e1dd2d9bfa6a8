"""A copy of a home from which it can be restored whole, and the restoring.

The ledger decides what else belongs to the copy. What changes (`contents.Kind.KEEP`) is copied while writers write.
Then a snapshot of the ledger is opened, and the files are looked at once more: where none is another one than was
copied, all of them were as they are at the moment of the snapshot; else the copy is brought up to date, and another
snapshot is opened. What a writer had half done then is half done in the copy, as where the power fails, and is made
good when it is opened. So no writer waits, wherever the backup stands still. What owners reported comes after the
snapshot: it only grows. Then the snapshot itself, as SQLite whatever the database; then rows, bundles and statements,
those whose entry the snapshot has. So the copy is the home of one moment, however long it takes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

from sqlalchemy import Connection, select

from accountant.home import Home, place
from accountant.home.backup_time import note_backup
from accountant.home.contents import LEDGER, MARK, Kind, files_in, place_of
from accountant.home.table_copies import copy_rows
from accountant.log import stored_proofs
from accountant.log.entries import latest_checkpoint
from accountant.log.last_seen import HighWater
from accountant.store import engines, migrations
from accountant.store.store import Store, Tree, size, stream
from accountant.store.tables import block_table, dataset_table
from dpserve_verify.errors import InputError, LedgerInvalid, LedgerUnavailable
from dpserve_verify.log.notes import parse_checkpoint
from dpserve_verify.log.proofs import parse_proof
from dpserve_verify.system.files import PRIVATE, replace_file

MANIFEST, PROOF = "backup.json", ".tlog-proof"
FORM, CHUNK = 1, 1 << 20  # bytes
TRIES = 10  # at a moment in which nothing changed since it was copied
Stamp: TypeAlias = tuple[int, int, int]


@dataclass
class Backup:
    """What was copied. `entries`: of the ledger's snapshot; `files`: the sha256 of each, by its path; `unknown`: paths
    that the table of a home does not name, and `missing`: commitments whose rows are not in the home; neither is in the
    copy. `is_noted`: whether the home could be written, which then says when it was made.
    """

    entries: int
    files: dict[str, str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    is_noted: bool = False


def back_up(home: Home, to: Path) -> Backup:
    """Copy a home, whatever runs on it, into the folder `to`, which is new or empty, and note in the home that it was.
    No writer waits.

    Raises InputError where `to` cannot be used; LedgerUnavailable where the database cannot, or where too much changes
    all the time.
    """
    if home.path.resolve() in (to.resolve(), *to.resolve().parents):
        raise InputError(f"backup={to}: lies in the home; name a folder elsewhere, on another disk")
    _make_empty("backup", to)
    database = home.ledger.log.database
    done, began = Backup(0), time.time()
    with _moment(home.path, to, done, database) as snapshot:
        done.entries = size(snapshot)
        engines.disable_timeout(snapshot)
        root = Tree(snapshot).root()
        copy = Store(f"sqlite:///{(to / LEDGER).absolute()}")
        copy.create(to=migrations.require_known(snapshot))
        with copy.writing() as target:
            copy_rows(snapshot, target)
    with copy.reading() as connection:
        _copy_entered(home.path, to, connection, done)
    copy.close()
    (to / LEDGER).chmod(PRIVATE)
    (to / MARK).unlink(missing_ok=True)
    HighWater(to / MARK).advance(done.entries, root)
    for path in (LEDGER, MARK):
        done.files[path] = _digest(to / path)
    body = {
        "form": FORM,
        "made": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "origin": home.ledger.log.origin,
        "entries": done.entries,
    }
    os.sync()  # before the manifest, which says that all is there
    manifest = json.dumps({**body, "files": done.files}, indent=1)
    replace_file(to / MANIFEST, manifest.encode(), PRIVATE)
    with suppress(OSError):
        note_backup(home.path, began)
        done.is_noted = True
    return done


@contextmanager
def _moment(home: Path, to: Path, done: Backup, database: Store) -> Iterator[Connection]:
    """Copy what changes as it is at the moment of a snapshot of the ledger, and yield that."""
    copied: dict[str, Stamp] = {}
    for _ in range(TRIES):
        before = _changing(home)
        for path in copied.keys() - before.keys():
            (to / path).unlink(missing_ok=True)
            done.files.pop(path, None)
        for path, stamp in before.items():
            if copied.get(path) != stamp:
                with suppress(FileNotFoundError):  # its job was finished this moment: the next look says so
                    (to / path).unlink(missing_ok=True)
                    _copy(home, to, path, done)
        copied = before
        with database.reading() as snapshot:
            size(snapshot)  # a snapshot begins with what is asked first
            if _changing(home) == copied:
                yield snapshot
                return
    raise LedgerUnavailable(
        f"backup={to}: keys, jobs or decisions changed {TRIES} times while they were copied; ask again"
    )


def _changing(home: Path) -> dict[str, Stamp]:
    """Return the files that change, each with what tells one from the next; without the ledger and its mark, which are
    written anew, and databases. Folders in which everything is entered are not looked into.
    """
    found = {}
    for folder, folders, names in os.walk(home, followlinks=True):
        at = Path(folder).relative_to(home).as_posix()
        below = "" if at == "." else f"{at}/"
        folders[:] = [
            name for name in folders if (known := place_of(f"{below}{name}/-")) is None or known.kind is Kind.KEEP
        ]
        for path in (f"{below}{name}" for name in names):
            known = place_of(path)
            if known is not None and known.kind is Kind.KEEP and path not in (LEDGER, MARK) and not _is_database(path):
                with suppress(FileNotFoundError):
                    status = (home / path).stat()
                    found[path] = (status.st_mtime_ns, status.st_size, status.st_ino)
    return found


def _is_database(path: str) -> bool:
    """Return whether a file holds what a campaign was sent, row by row."""
    return path.startswith("campaigns/") and path.endswith(".db")


def _copy_entered(home: Path, to: Path, snapshot: Connection, done: Backup) -> None:
    """Copy rows, bundles and statements whose entry the snapshot has; of rows that were deleted what tells them if they
    come again; and what campaigns were sent. A proof that leads to a later checkpoint is made again, against the
    snapshot's own.
    """
    rows = {row[0] for table in (dataset_table, block_table) for row in stream(snapshot, select(table.c.commitment))}
    checkpoint, is_entered = latest_checkpoint(snapshot), dict[str, bool]()
    for path in files_in(home):
        known, folder = place_of(path), path.rpartition("/")[0]
        if known is None:
            done.unknown.append(path)
        elif known.kind is Kind.KEEP and _is_database(path):
            _copy(home, to, path, done)
        if known is None or known.kind is not Kind.ENTERED:
            continue
        if folder not in is_entered:
            name, in_datasets = folder.rpartition("/")[2], folder.startswith("datasets/")
            is_entered[folder] = name in rows if in_datasets else _entry(home / folder) < done.entries
        if is_entered[folder]:
            with suppress(FileNotFoundError):  # rows that were deleted this moment
                _copy(home, to, path, done)
                if path.endswith(PROOF):
                    _renew(to, path, snapshot, checkpoint, done)
    done.missing = sorted(rows - {folder.rpartition("/")[2] for folder, entered in is_entered.items() if entered})


def _entry(folder: Path) -> float:
    """Return the entry that a bundle or statement was issued by; infinity where its proof does not say."""
    for proof in folder.glob(f"*{PROOF}"):
        with suppress(LedgerInvalid, OSError, UnicodeDecodeError):
            return parse_proof(proof.read_text("utf-8")).index
    return float("inf")


def _renew(to: Path, path: str, snapshot: Connection, checkpoint: str, done: Backup) -> None:
    proof = parse_proof((to / path).read_text("utf-8"))
    if parse_checkpoint(proof.checkpoint_note).size > done.entries:
        text = stored_proofs.inclusion(snapshot, proof.index, checkpoint)
        (to / path).write_text(text, "utf-8")
        done.files[path] = _digest(to / path)


def _copy(home: Path, to: Path, path: str, done: Backup) -> None:
    """Copy one file, private, and note its digest; one that is a database as of one moment."""
    target = to / path
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if _is_database(path):
        target.touch(PRIVATE)
        uri = f"file:{(home / path).absolute().as_posix()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as source, closing(sqlite3.connect(target)) as copy:
            source.backup(copy)
        done.files[path] = _digest(target)
        return
    done.files[path] = _write(home / path, target)


def _write(source: Path, target: Path) -> str:
    """Copy a file with the rights that its owner has, and nobody else's but for public halves of keys; its digest."""
    digest = hashlib.sha256()
    with source.open("rb") as read:
        mode = os.fstat(read.fileno()).st_mode & 0o777
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE), "wb") as write:
            while chunk := read.read(CHUNK):
                digest.update(chunk)
                write.write(chunk)
    target.chmod(mode)
    return digest.hexdigest()


@dataclass(frozen=True)
class Restored:
    """What was put back. `made`: the time of the backup; `rebuilt`: the files that were made again."""

    entries: int
    files: int
    made: str
    rebuilt: tuple[str, ...]


def restore(source: Path, environment: Mapping[str, str] = os.environ, mark: Path | None = None) -> Restored:
    """Put a backup into the home and the database that `environment` names, both of them new or empty. `mark`: the
    high-water mark of the home that was lost, where it is still there.

    Raises InputError where there is something already, or `source` is no whole backup; LedgerInvalid where a file is
    not what was backed up, or the ledger is older than `mark`. Nothing is left in the home then.
    """
    path, url = place(environment)
    manifest = _read_manifest(source)
    _check_newest(manifest["entries"], mark)
    _make_empty("home", path)
    try:
        for name, digest in manifest["files"].items():
            target = path / name
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            try:
                copied = _write(source / name, target)
            except FileNotFoundError as error:
                raise LedgerInvalid(f"backup={source}: {name} is missing") from error
            if copied != digest:
                raise LedgerInvalid(f"backup={source}: {name} is not what was backed up")
        _restore_ledger(path, url)
        for folder in ("models", "datasets", "jobs"):
            (path / folder).mkdir(mode=0o700, exist_ok=True)
        home = Home.open(environment)
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    home.ledger.log.database.close()
    note_backup(path, time.time())
    rebuilt = (name for name in files_in(path) if (known := place_of(name)) and known.kind is Kind.REBUILD)
    return Restored(manifest["entries"], len(manifest["files"]), manifest["made"], tuple(rebuilt))


def _restore_ledger(path: Path, url: str) -> None:
    """Bring the copy of the ledger up to date, and its rows into the database."""
    staged = path / f".{LEDGER}"
    (path / LEDGER).rename(staged)
    copy, database = Store(f"sqlite:///{staged.absolute()}"), Store(url)
    copy.create()
    database.create()
    with database.reading() as connection:
        if size(connection):
            raise InputError("database: holds a ledger already; name an empty one with DPSERVE_LEDGER_URL")
    with copy.reading() as connection, database.writing() as target:
        engines.disable_timeout(target)
        copy_rows(connection, target)
    copy.close()
    database.close()
    for leftover in path.glob(f"{staged.name}*"):
        leftover.unlink()


def _read_manifest(source: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((source / MANIFEST).read_bytes())
    except (OSError, ValueError):
        raise InputError(f"backup={source}: is no whole backup: {MANIFEST} is not there; take another") from None
    if not isinstance(manifest, dict) or manifest.get("form") != FORM:
        raise InputError(f"backup={source}: was made by another version of dpserve; restore it with that one")
    outside = [
        name for name in manifest["files"] if (known := place_of(name)) is None or not known.kind.startswith("keep")
    ]
    if outside or any(".." in Path(name).parts for name in manifest["files"]):
        raise InputError(f"backup={source}: {MANIFEST} names what is no part of a home")
    return manifest


def _check_newest(entries: int, mark: Path | None) -> None:
    if mark is None:
        return
    seen = HighWater(mark).read()
    if seen is None:
        raise InputError(f"mark={mark}: there is none")
    if seen[0] > entries:
        raise LedgerInvalid(
            f"ledger: the backup has {entries} entries, and its keys have signed {seen[0]}: it would be rolled back; "
            "restore a newer one"
        )


def _make_empty(what: str, folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{what}={folder}: is not empty; name a new folder")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
