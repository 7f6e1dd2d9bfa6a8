"""Admissions that are asked for over REST or in the browser. A check takes longer than a request may, so each is a
process of its own, one at a time in a home; until it ends, a file of this machine says how far it is. What it came to
is the ledger's entry, or the reason why there is none.

    python -m dpserve_platform.replay.admission_checks NAME
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from accountant.errors import NameTaken, WrongState
from accountant.home import Home, local
from accountant.ledger import learner_admissions
from accountant.ledger.families.records import Why
from accountant.ledger.learner_admissions import Admission
from dpserve_platform.outside.sources import LONGEST_TEXT
from dpserve_platform.replay import subjects
from dpserve_verify.errors import DpserveError, InputError
from dpserve_verify.privacy.budget import check_name
from dpserve_verify.system.files import PRIVATE, locked, replace_file
from training.finish.lease import lives, this_process
from training.session.session import Source

MOST_WAITING, MOST_NEIGHBOURS, MOST_SECONDS = 8, 1000, 3600
LOOK_SECONDS = 0.5
CHECKING, REFUSED = "checking", "refused"
CUT = "its check was not done: the server was stopped, or it took too much memory or time; ask again"
_CHILDREN: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True)
class AdmissionRequest:
    """What is asked for: a text, its class, who wrote it, and as what it is admitted (`subjects.admit`)."""

    name: str
    text: str
    kind: str
    author: str
    reason: str
    neighbours: int = subjects.Trial.neighbours
    datasets: tuple[str, ...] = ()
    only: bool = False

    @property
    def source(self) -> Source:
        """Return the learner itself."""
        return Source(self.text, self.kind, self.author)


def ask(home: Home, asked: AdmissionRequest, by: str) -> dict[str, Any]:
    """Begin the check of a learner; return how it stands. What can be known at once is refused at once.

    Raises:
        InputError: A text is not one line, too long, or says nothing.
        NameTaken: Its name or digest is admitted, or is being checked.
        UnknownName: There is no dataset of that name.
        WrongState: MOST_WAITING are being checked.
    """
    _require_sound(home, asked, by)
    path = _path(home, asked.name)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    at = f"{datetime.now(UTC).replace(tzinfo=None).isoformat(timespec='seconds')}Z"
    body = {"state": CHECKING, "by": by, "at": at, "process": this_process(), "asked": asdict(asked)}
    with locked(path.with_name("asking.lock")):
        running = [each["name"] for each in checks(home) if each["state"] == CHECKING]
        if asked.name in running:
            raise NameTaken(f"name={asked.name}: its check is under way")
        if len(running) >= MOST_WAITING:
            raise WrongState(f"learner={asked.name}: {len(running)} are being checked; ask again when one is done")
        replace_file(path, json.dumps(body).encode(), PRIVATE)
        _CHILDREN[:] = [child for child in _CHILDREN if child.poll() is None]
        environment = {**os.environ, "DPSERVE_HOME": str(home.path)}
        _CHILDREN.append(
            subprocess.Popen(
                [sys.executable, "-m", __name__, asked.name], env=environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=Path(__file__).parents[2],
            )
        )  # fmt: skip
    return {"name": asked.name, "state": CHECKING, "by": by, "at": at, "problem": None}


def _require_sound(home: Home, asked: AdmissionRequest, by: str) -> None:
    source, none = asked.source, "0" * 64
    if not source.text.strip() or len(source.text.encode()) > LONGEST_TEXT:
        raise InputError(f"text: must be a learner of at most {LONGEST_TEXT} bytes")
    if not 1 <= asked.neighbours <= MOST_NEIGHBOURS:
        raise InputError(f"neighbours={asked.neighbours}: must be 1 to {MOST_NEIGHBOURS}")
    if asked.only and not asked.datasets:
        raise InputError("only: name the datasets for whose jobs it is admitted (datasets)")
    Admission(asked.name, source.digest, source.kind, source.author, none, asked.neighbours, Why(by, asked.reason))
    for entry in learner_admissions.admissions(home.ledger):
        if entry.value["name"] == asked.name or entry.value["digest"] == source.digest:
            raise NameTaken(f"learner={asked.name}: entry {entry.seq} admits {entry.value['name']}; remove that first")
    for name in asked.datasets:
        home.ledger.dataset(name)


def checks(home: Home) -> list[dict[str, Any]]:
    """Return the checks that are under way, and those that were refused: {name, state, by, at, problem}."""
    lines = []
    for path in sorted(_path(home, "x").parent.glob("*.json")):
        with suppress(OSError, ValueError, KeyError):
            body = json.loads(path.read_bytes())
            line = {"name": path.stem, **{key: body[key] for key in ("state", "by", "at")}}
            gone = line["state"] == CHECKING and lives(body["process"]) is False
            lines.append(line | ({"state": REFUSED, "problem": CUT} if gone else {"problem": body.get("problem")}))
    return lines


def run(home: Home, name: str) -> None:
    """Check and admit what was asked for, in this process; say so where it is refused."""
    path = _path(home, check_name("name", name))
    body = json.loads(path.read_bytes())
    asked = AdmissionRequest(**{**body["asked"], "datasets": tuple(body["asked"]["datasets"])})
    body["process"] = this_process()
    replace_file(path, json.dumps(body).encode(), PRIVATE)
    try:
        with locked(path.with_name("one.lock")):
            why = Why(body["by"], asked.reason)
            subjects.admit(home, asked.source, name, why, asked.neighbours, asked.datasets, asked.only)
    except DpserveError as error:
        body |= {"state": REFUSED, "problem": error.message}
        replace_file(path, json.dumps(body).encode(), PRIVATE)
    else:
        path.unlink()


def forget(home: Home, name: str) -> None:
    """Remove the word of a check that was refused, or end one that is under way."""
    _path(home, check_name("name", name)).unlink(missing_ok=True)


def _path(home: Home, name: str) -> Path:
    return local(home.path) / "run" / "learners" / f"{name}.json"


def _end_unless_wanted(home: Home, name: str) -> None:
    """End this process where its parent is gone, or nobody wants its check any more."""
    parent, path = os.getppid(), _path(home, name)
    while os.getppid() == parent and path.exists():
        time.sleep(LOOK_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    signal.alarm(MOST_SECONDS)  # which ends it
    HOME = Home.open()
    threading.Thread(target=_end_unless_wanted, args=(HOME, sys.argv[1]), daemon=True).start()
    run(HOME, sys.argv[1])
