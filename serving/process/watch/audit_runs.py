"""The audit that the server repeats by itself: one at a time, its result in the home for the doors and the metrics.

`dpserve serve` starts one at its start, every DPSERVE_AUDIT_SECONDS, and when somebody asked; each in a process of its
own, on its own niceness. It trusts the home's trust file; an auditor who trusts nobody repeats it with keys kept
elsewhere (docs/audit.md).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accountant.home import Home, local
from dpserve_verify.errors import LedgerInvalid, ModelInvalid, VerificationError
from dpserve_verify.system.files import PUBLIC, locked, replace_unsynced

if TYPE_CHECKING:
    from dpserve_verify.audit.judge_models import Bundle
    from dpserve_verify.audit.tree_of_entries import Report

MAX_PROBLEMS = 200
KEYS = {"at", "entries", "root", "ok", "problems", "seconds", "lost"}


def audit_at(path: Path, url: str) -> dict[str, Any]:
    """Audit a whole home, which may refuse to open: a rolled-back ledger is a result. Keep the result: {"at",
    "entries", "root", "ok", "problems", "seconds", "lost"}, and "newer" where a newer version wrote from that entry on.
    LedgerUnavailable or OSError where it could not be read, which says nothing of it, so nothing is kept.
    """
    with _lock_audits(path):
        _request_file(path).unlink(missing_ok=True)  # before the first entry is read: whoever asks later gets another
        at, start = now(), time.monotonic()
        try:
            report = _report(path, url)
        except VerificationError as error:
            from dpserve_verify.audit.tree_of_entries import Report  # loaded by what failed, and only then needed

            report = Report(0, "", (error.message,))
        body = {
            "at": at,
            "entries": report.entries,
            "root": report.root,
            "ok": report.ok,
            "problems": _shorten(report.problems),
            "seconds": round(time.monotonic() - start, 3),
            "lost": _shorten(report.lost),
        } | ({} if report.newer is None else {"newer": report.newer})
        _write(_result(path), json.dumps(body).encode())
        return body


def _report(path: Path, url: str) -> Report:
    # It brings numba: whoever only reads the result need not wait for that.
    from accountant.audit.audit import audit_place
    from dpserve_verify.log.witnessed import read_witnessed
    from models.store.versions import champions

    cosigned = read_witnessed(path)
    place = {**os.environ, "DPSERVE_HOME": str(path), "DPSERVE_LEDGER_URL": url}
    checkpoints = [] if cosigned is None else [cosigned]
    return audit_place(place, bundles_of(path / "models"), checkpoints, champions=partial(champions, path / "models"))


def bundles_of(models: Path) -> Iterator[Bundle]:
    """List every model of a home now, with its proof, and read the rest when it is asked for. Whoever lists before a
    snapshot of the ledger is opened meets no entry and no checkpoint that came after it. A model whose files cannot be
    read has an envelope that does not verify.
    """
    from dpserve_verify.certificates.bundle import read_bundle, read_proof  # brings the store of models: as above
    from models.store.bundle import ModelStore

    def read(name: str, folder: Path, proof: bytes) -> Bundle:
        try:
            bundle = read_bundle(folder)
            return name, bundle.envelope, proof, bundle.onnx
        except ModelInvalid:
            return name, b"", b"", b""

    store = ModelStore(models)
    listed = [(f"{name}@{at}", store.root / name / str(at)) for name in store.names() for at in store.versions(name)]
    with_proofs = [(name, folder, read_proof(folder)) for name, folder in listed]
    return (read(*each) for each in with_proofs)


def last_audit(home: Home) -> dict[str, Any] | None:
    """Read the newest result; None before the first. Raises LedgerInvalid where the file says something else."""
    return read_last(home.path)


def read_last(path: Path) -> dict[str, Any] | None:
    """Read the newest result, as `last_audit`, of the home at `path`."""
    try:
        body = json.loads(_result(path).read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        body = None
    if not isinstance(body, dict) or body.keys() - {"newer"} != KEYS:
        raise LedgerInvalid(f"{_result(path).name}: is no audit's result; remove it")
    return body


def ask(home: Home) -> str:
    """Ask for an audit of what stands now -> the time asked at; the audit that answers has this time or a later one."""
    at = now()
    _write(_request_file(home.path), at.encode())
    return at


def is_asked(path: Path) -> bool:
    """Return whether an audit was asked for that has not begun."""
    return _request_file(path).exists()


def now() -> str:
    """Return the time in UTC to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _shorten(problems: tuple[str, ...]) -> list[str]:
    omitted = len(problems) - MAX_PROBLEMS
    return [
        *problems[:MAX_PROBLEMS],
        *([f"and {omitted} more; dpserve ledger audit prints all"] if omitted > 0 else []),
    ]


def _result(path: Path) -> Path:
    return local(path) / "logs" / "audit.json"


def _request_file(path: Path) -> Path:
    return local(path) / "logs" / "audit.asked"


def _write(path: Path, raw: bytes) -> None:
    """Write a file whole or not at all: a reader never sees a part."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    replace_unsynced(path, raw, PUBLIC)


@contextmanager
def _lock_audits(path: Path) -> Iterator[None]:
    """Let one audit of a home run at a time; a second waits."""
    lock = local(path) / "logs" / "audit.lock"
    lock.parent.mkdir(mode=0o700, exist_ok=True)
    with locked(lock):
        yield
