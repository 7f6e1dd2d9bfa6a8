"""The turns of a campaign at the platform: what was learnt after each, in the log before the next owners are asked.

`<campaign>/turns/<n>.json` is what was published after turn n. How many turns have ended the ledger says; a crash
between the last report of a turn and its entry leaves a turn that takes no report: the next owner who asks ends it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountant.errors import WrongState
from accountant.home import Home
from accountant.ledger import campaigns as entries
from dpserve_verify.system.files import PRIVATE, replace_file
from local.reports.report_store import ReportStore
from local.turns.definition import BoostedDefinition
from local.turns.learning import next_document
from local.turns.so_far import NOTHING, read_so_far
from models.forms.ensemble import Ensemble
from models.forms.registry import ensemble_from_bytes

ALL_AT_ONCE: dict[str, Any] = {"ensemble": None}


def turn_of(home: Home, job: int) -> int:
    """Return the turn whose owners are asked; one more than there are, once all have ended."""
    return len(entries.rounds_of(home.ledger, job)) + 1


def document_after(folder: Path, turn: int) -> bytes:
    """Read what was published after a turn; NOTHING after turn 0."""
    return (folder / "turns" / f"{turn}.json").read_bytes() if turn else NOTHING


def reports_of_turn(
    definition: BoostedDefinition, reports: ReportStore, turn: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the owners (n,) of a turn who have answered, and their reports (n,)."""
    owners, values = reports.all()
    of_this_turn = definition.turns_of(owners) == turn
    return owners[of_this_turn], values[of_this_turn]


def offer_turn(home: Home, folder: Path, job: int) -> tuple[dict[str, Any], int | None]:
    """Return what the owners of the turn have to know: the turn and what was published before it; and the entry that
    says so, None before the first has ended.
    """
    ended = entries.rounds_of(home.ledger, job)
    if not ended:
        return {"turn": 1, **ALL_AT_ONCE}, None
    return {"turn": len(ended) + 1, "ensemble": document_after(folder, len(ended)).decode()}, ended[-1]


def state_of(home: Home, job: int, definition: BoostedDefinition, reports: ReportStore) -> dict[str, Any]:
    """Return the turn that is being asked, of how many, and how many of its owners have answered."""
    turn = min(turn_of(home, job), definition.turns)
    return {
        "rounds": definition.rounds,
        "turns": definition.turns,
        "turn": turn,
        "turn_reports": len(reports_of_turn(definition, reports, turn)[0]),
        "turn_least": definition.least_in(turn),
    }


def is_full(definition: BoostedDefinition, reports: ReportStore) -> bool:
    """Return whether every owner of the turn has answered."""
    turn = reports.due()
    return turn <= definition.turns and reports.since_turn() >= definition.asked_in(turn)


def is_cut(home: Home, job: int, reports: ReportStore) -> bool:
    """Return whether somebody began to end a turn, and has not: another process is at it, or was killed."""
    return reports.due() > turn_of(home, job)


def end_last(home: Home, folder: Path, job: int, definition: BoostedDefinition, reports: ReportStore) -> None:
    """End the turn that is being asked, where the campaign is open and enough of its owners have answered."""
    turn = turn_of(home, job)
    if turn > definition.turns or entries.entry_of(home.ledger, job, entries.CLOSED) is not None:
        return
    if len(reports_of_turn(definition, reports, turn)[0]) >= definition.least_in(turn):
        end_turn(home, folder, job, definition, reports)


def last_model(home: Home, folder: Path, job: int, definition: BoostedDefinition) -> Ensemble | None:
    """Return what was published when the last voter had been weighed, to be released; None where nothing was learnt."""
    document = document_after(folder, definition.last_settled(turn_of(home, job) - 1))
    if not read_so_far(document, definition.features, definition.classes).voters:
        return None
    return ensemble_from_bytes(document)


def end_turn(home: Home, folder: Path, job: int, definition: BoostedDefinition, reports: ReportStore) -> int:
    """Learn from the turn's reports, publish, and enter it in the log: the next owners may answer. Its number.

    WrongState where too few have answered (nothing is changed), or no turn is left. To be called alone.
    """
    turn = turn_of(home, job)
    if turn > definition.turns:
        raise WrongState(f"campaign={definition.campaign}: all its {definition.turns} turns are over; close it")
    count, least = len(reports_of_turn(definition, reports, turn)[0]), definition.least_in(turn)
    if count < least:
        raise WrongState(
            f"campaign={definition.campaign}: {count} owners have answered in turn {turn}, and it needs {least}; wait, "
            "close it, or give it up"
        )
    reports.end(turn)
    owners, values = reports_of_turn(definition, reports, turn)
    document = next_document(definition, turn, document_after(folder, turn - 1), owners, values)
    (folder / "turns").mkdir(mode=0o700, exist_ok=True)
    replace_file(folder / "turns" / f"{turn}.json", document, PRIVATE, alone=True)
    digest = hashlib.sha256(document).hexdigest()
    entries.enter_round(home.ledger, job, definition.digest, turn, len(owners), digest)
    return turn
