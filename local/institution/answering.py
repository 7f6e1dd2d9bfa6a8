"""An institution's standing answer: every campaign that it is invited to and that its policy allows, each to its end,
and what came of it, in a file of its own for each. All that is noted stays with the institution.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from accountant.errors import WrongState
from accountant.home import Home
from accountant.ledger.families.job_kinds import Contribution, kind_of
from accountant.ledger.families.left import describe_budget
from dpserve_verify.errors import DpserveError, InputError, LedgerUnavailable
from dpserve_verify.formats.canonical import decimal_string
from dpserve_verify.privacy.budget import check_name
from dpserve_verify.system.files import PRIVATE, read_beginning, replace_file
from local.institution.program import Progress, answer
from local.institution.settings import INVITATIONS, Settings, read_settings

NOTES = "asked"  # the folder, beside the settings
ANSWERED, ANSWERING, WAITING, REFUSED, OVER = "answered", "answering", "waiting", "refused", "over"
LOOK = 2.0  # seconds between two looks for invitations
PACE = 1.0  # seconds between two notes of how far a campaign is
LONGEST = 200  # bytes of an invitation
Say = Callable[[str], None]


def answer_noted(
    home: Home, settings: Settings, name: str, invitation: str, by: str, wait: float = 600.0,
    progress: Progress = lambda done, total: None,
) -> dict[str, Any]:  # fmt: skip
    """Answer one campaign, as `program.answer` does, and keep what came of it for `status_of`. Raises as that does."""
    check_name("campaign", name)
    noted = 0.0

    def note_round(done: int, total: int) -> None:
        nonlocal noted
        if time.monotonic() - noted >= PACE:
            noted = time.monotonic()
            _note(settings, name, ANSWERING, rounds=done, of=total)
        progress(done, total)

    _note(settings, name, ANSWERING)
    try:
        body = answer(home, settings, name, invitation, by, wait, note_round)
    except DpserveError as error:
        states = ((LedgerUnavailable, WAITING), (WrongState, OVER))
        state = next((state for kind, state in states if isinstance(error, kind)), REFUSED)
        _note(settings, name, state, why=error.message)
        raise
    except Exception as error:  # a fault of this program: not to be met again every two seconds
        _note(settings, name, REFUSED, why=f"unexpected {type(error).__name__}")
        raise
    _note(settings, name, ANSWERED, rounds=body["rounds"], of=body["rounds"])
    return body


class Answering:
    """Answers each invitation of the folder `invitations` beside the settings: a file of the campaign's name holds it.

    Campaigns go on side by side, for each waits for others. What was refused, or is over, is asked again when its
    invitation or the settings have changed, or another process starts; what could not be reached, at the next look.
    """

    def __init__(self, home: Home, path: Path, by: str, wait: float, say: Say) -> None:
        self._home, self._path, self._by, self._wait, self._say = home, path, by, wait, say
        self._running: dict[str, threading.Thread] = {}
        self._settled: dict[str, tuple[str, bytes]] = {}

    def look(self) -> None:
        """Begin with what is not being answered, nor settled as it stands. InputError where the settings cannot be
        read.
        """
        settings, text = read_settings(self._path), self._path.read_bytes()
        for name, invitation in invitations(settings).items():
            thread, mark = self._running.get(name), (invitation, text)
            if (thread is not None and thread.is_alive()) or self._settled.get(name) == mark:
                continue
            if _read(settings, name).get("state") == ANSWERED:
                continue
            thread = threading.Thread(target=self._answer, args=(settings, name, mark), daemon=True)
            self._running[name] = thread
            thread.start()

    def finish(self) -> None:
        """Wait until all that was begun has come to its end."""
        for thread in self._running.values():
            thread.join()

    def run(self) -> None:
        """Look for invitations until the process is ended: what it was at goes on when it starts again."""
        while True:
            try:
                self.look()
            except InputError as error:  # edited badly: what runs goes on by what it has read
                self._say(f"settings: {error.message}")
            time.sleep(LOOK)

    def _answer(self, settings: Settings, name: str, mark: tuple[str, bytes]) -> None:
        self._say(f"campaign {name}: begun")
        try:
            body = answer_noted(self._home, settings, name, mark[0], self._by, self._wait)
            self._say(f"campaign {name}: answered {body['rounds']} rounds, charged as job {body['job']}")
        except LedgerUnavailable as error:
            self._say(f"campaign {name}: {error.message}")
        except DpserveError as error:
            self._settled[name] = mark
            self._say(f"campaign {name}: not answered: {error.message}")
        except Exception as error:
            self._settled[name] = mark
            self._say(f"campaign {name}: not answered: unexpected {type(error).__name__}")


def invitations(settings: Settings) -> dict[str, str]:
    """Return the invitations in the folder, by campaign. What is no campaign's name is no invitation."""
    found = {}
    for path in sorted((settings.folder / INVITATIONS).glob("*")):
        try:
            text = read_beginning(path, LONGEST).decode("ascii")
            found[check_name("campaign", path.name)] = text.strip()
        except (OSError, UnicodeDecodeError, DpserveError):
            continue
    return found


def status_of(home: Home, settings: Settings) -> dict[str, Any]:
    """Return what was asked, charged and refused, and why, and what is left: from this machine alone, asking nobody."""
    dataset = home.ledger.dataset(settings.dataset)
    charged = _charges(home, settings.dataset)
    noted = {path.stem: _read(settings, path.stem) for path in (settings.folder / NOTES).glob("*.json")}
    campaigns = []
    for name in sorted({*noted, *charged, *invitations(settings)}):
        of = noted.get(name, {})
        campaigns.append({
            "campaign": name, "state": of.get("state", "invited"), "why": of.get("why"), "rounds": of.get("rounds"),
            "of": of.get("of"), "at": of.get("at"), "charged": charged.get(name),
        })  # fmt: skip
    policy = settings.policy
    return {
        "url": settings.url,
        "dataset": settings.dataset,
        "policy": {
            "largest_epsilon": decimal_string(policy.largest_epsilon),
            "largest_delta": decimal_string(policy.largest_delta),
            "aggregators": list(policy.aggregators),
            "learners": list(policy.learners),
            "least_institutions": policy.least_institutions,
            "least_worth": None if policy.least_worth is None else decimal_string(policy.least_worth),
        },
        "budget": describe_budget(dataset),
        "campaigns": campaigns,
    }


def _charges(home: Home, dataset: str) -> dict[str, dict[str, Any]]:
    """Return what campaigns have cost the dataset, by name."""
    found = {}
    for job in home.ledger.jobs():
        if job.dataset == dataset and not job.model:
            entry = home.ledger.reservation(job.seq).value
            if isinstance(kind_of(entry), Contribution):
                claim = entry["claim"]
                found[entry["parameters"]["campaign"]] = {
                    "job": job.seq, "epsilon": claim["epsilon"], "delta": claim["delta"], "time": entry["time"],
                }  # fmt: skip
    return found


def _note(settings: Settings, name: str, state: str, **more: Any) -> None:
    folder = settings.folder / NOTES
    folder.mkdir(mode=0o700, exist_ok=True)
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    body = {"state": state, "at": at, **more}
    replace_file(folder / f"{name}.json", json.dumps(body).encode() + b"\n", PRIVATE)


def _read(settings: Settings, name: str) -> dict[str, Any]:
    """Return what was noted of a campaign; nothing where that cannot be read."""
    try:
        found = json.loads((settings.folder / NOTES / f"{name}.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
