"""What is done with a draft's rows, in a process of its own that `dpserve serve` starts where there is something to do:
look how cells are written, check every row, register. Each step is a fork that the operating system bounds, two at a
time and one of a caller. The result stands in the draft, for its steward alone.

A step that was cut (memory, time, a stop) is found at the next look, and said to be: nothing goes on in silence.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from accountant.access.grants import access_of
from accountant.errors import UnknownName
from accountant.home import Home
from accountant.home.notes import SAMPLE, Note, write_note
from accountant.system.confined import Bounds, ConfinedFork
from dpserve_verify.errors import DpserveError, InputError
from dpserve_verify.system.files import locked
from training.datasets.datasets import schema_bytes
from training.datasets.drafts import sample
from training.datasets.drafts.appending import append_requested
from training.datasets.drafts.drafts import (
    AT_WORK,
    CHECKING,
    COLUMNS,
    LOOKING,
    PROBLEMS,
    READY,
    REGISTERED,
    UNREADABLE,
    Draft,
    Drafts,
)
from training.datasets.drafts.proposal import SchemaProposal, read_first_rows
from training.datasets.drafts.registering import register_requested
from training.datasets.file_check import check_file
from training.requests.registration import RegistrationRequest
from training.rows.schema.schema import parse_schema, registered_schema
from training.rows.sources.sealed import reading_seconds

LOG = logging.getLogger("dpserve.registering")
STEP_SECONDS = 1800.0  # a step is ended after so long
STEP_BYTES = 2 << 30  # of memory
MAX_FORKS = 2  # steps at a time, of as many callers
MAX_TRIES = 2  # of one step: the second finds that the first was cut
TICK_SECONDS = 0.02
MOST_PROBLEMS = 500  # that are shown
CUT = (
    "it was not done: it took too much memory or time on this server, or the server was stopped; try again, or use "
    "dpserve dataset register"
)


def work(path: Path) -> None:
    """Do all there is to do: each step in a fork that the system bounds, callers in turns, none with two at a time."""
    drafts = Drafts(path)
    if not drafts.folder.exists():
        return
    with locked(drafts.folder / "work.lock"):
        drafts.sweep()
        running, turns, tries = dict[str, ConfinedFork](), Counter[str](), Counter[tuple[str, str]]()
        while True:
            drafts.begun()
            waiting = [draft for draft in drafts.all() if draft.state in AT_WORK]
            tries = Counter({step: tries[step] for step in ((draft.id, draft.state) for draft in waiting)})
            for draft in sorted(waiting, key=lambda each: turns[each.by]):  # the oldest of who had the fewest turns
                if len(running) < MAX_FORKS and draft.by not in running and tries[draft.id, draft.state] < MAX_TRIES:
                    running[draft.by] = _begin(path, drafts, draft)
                    turns[draft.by] += 1
                    tries[draft.id, draft.state] += 1
            if not running:
                return
            while not drafts.is_asked() and not any(fork.has_ended() for fork in running.values()):
                time.sleep(TICK_SECONDS)
            running = {by: fork for by, fork in running.items() if not fork.has_ended()}


def _begin(path: Path, drafts: Drafts, draft: Draft) -> ConfinedFork:
    """Take a step in a fork. Its time is what a file of this size may take, whatever it unpacks to; a folder that the
    operator allowed has all there is.
    """
    seconds = STEP_SECONDS if draft.path else min(STEP_SECONDS, reading_seconds(draft.size))

    def take() -> None:
        with suppress(UnknownName):  # it was deleted meanwhile
            step(Home.open({**os.environ, "DPSERVE_HOME": str(path)}), drafts, draft)

    return ConfinedFork(Bounds(STEP_BYTES, int(seconds), maps=True), STEP_SECONDS, take)


def step(home: Home, drafts: Drafts, draft: Draft) -> None:
    """Take the step that the draft's state awaits. `refusal` says that it was cut until it is done."""
    before = {LOOKING: UNREADABLE, CHECKING: COLUMNS}.get(draft.state, READY)
    if draft.refusal is not None:  # it began before and did not end
        name = (draft.asked or {}).get("name")
        digest = parse_schema(schema_bytes(drafts.schema(draft))).digest if before == READY else ""
        stored = [(dataset.registration.name, dataset.registration.schema) for dataset in home.ledger.datasets()]
        entered = before == READY and not draft.into and (name, digest) in stored  # it stood there before the cut
        drafts.change(draft, **({"state": REGISTERED, "refusal": None} if entered else {"state": before}))
        if entered:
            drafts.forget_rows(draft)
        return
    drafts.change(draft, refusal=InputError(CUT).to_json()["error"])
    try:
        changes = _done(home, drafts, draft)
    except DpserveError as error:
        changes = {"state": before, "refusal": error.to_json()["error"]}
    except Exception as error:
        LOG.error("a step of a draft failed: %s", type(error).__name__)  # nothing of the rows is told
        return
    drafts.change(draft, **{"refusal": None, **changes})
    if changes["state"] == REGISTERED:
        drafts.forget_rows(draft)


def _done(home: Home, drafts: Drafts, draft: Draft) -> dict[str, Any]:
    with drafts.opened_rows(draft) as rows:
        return _changes(home, drafts, draft, rows)


def _changes(home: Home, drafts: Drafts, draft: Draft, rows: Path) -> dict[str, Any]:
    if draft.state == LOOKING and not draft.into:
        first = read_first_rows(rows, draft.form or {})
        if first is not None:
            drafts.change(draft, first_rows=first.to_json())
        proposal = SchemaProposal.of_file(rows, form=None if first is None else first.form)
        return {"state": COLUMNS, "proposal": proposal.to_json()}
    schema = drafts.schema(draft)
    if draft.state == LOOKING:
        schema = drafts.set_schema(draft, registered_schema(home, home.ledger.dataset(draft.into)))
    if draft.state in (LOOKING, CHECKING):
        check = check_file(parse_schema(schema_bytes(schema)), rows).to_json()
        problems = check["problems"][:MOST_PROBLEMS]
        found = {"problems": problems, "cells": check["columns"], "rows": check["rows"]}
        return {"state": PROBLEMS if problems else READY, **found, "questions": check["questions"]}
    origin = f"{draft.name}, which was uploaded" if draft.path is None else draft.path
    if draft.into:
        access = access_of(home.ledger, draft.by)
        append_requested(home, draft.into, draft.asked or {}, rows, draft.by, origin, access)
        return {"state": REGISTERED}
    request = RegistrationRequest.of(draft.asked)
    register_requested(home, request, rows, schema, draft.by, origin, access=access_of(home.ledger, draft.by))
    if draft.is_sample:
        write_note(home.path, "dataset", request.name, Note(sample.WORDS, (SAMPLE,)))
    return {"state": REGISTERED}
