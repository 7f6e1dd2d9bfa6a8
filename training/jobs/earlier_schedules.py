"""Schedules of before they were entries: in `schedules.json` of the home, which nobody signed. None of them submits a
job; `dpserve schedule adopt` enters them once, as the operator's word of who made each.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from accountant.access.tokens import sound_tokens, tokens
from accountant.errors import NameTaken, WrongState
from accountant.home import Home
from accountant.ledger.schedules import PERIODS, Schedule, enter
from dpserve_verify.errors import InputError
from training.requests import JobRequest

if TYPE_CHECKING:
    from accountant.log.entries import Writer

FILE = "schedules.json"
WAITS = "made by an earlier version and signed by nobody: it submits no job until `dpserve schedule adopt`, at its home"


@dataclass(frozen=True)
class Adopted:
    """What became of the schedules of the file: those that were entered, by name; and why others were left out."""

    entered: tuple[str, ...]
    left: dict[str, str]


def exist(home: Home) -> bool:
    """Return whether an earlier version left schedules in this home."""
    return (home.path / FILE).exists()


def read(home: Home) -> dict[str, Schedule]:
    """Return the schedules of the file by name, each stopped; none where there is no file. InputError where it is
    damaged.
    """
    return {name: replace(rule, stopped=rule.stopped or WAITS) for name, rule in _read_file(home).items()}


def adopt(home: Home, operator: str) -> Adopted:
    """Enter the schedules of the file that were not stopped, and delete it. A schedule of whom a good token acts for is
    that token's, and ends with it; one of whom none ever acted for, or of the `operator`, was made at the command line.
    A period that had its job has none again.
    """
    rules, entered, left = _read_file(home), list[str](), dict[str, str]()
    known = {token.principal for token in tokens(home.ledger)}
    with home.ledger.log.writing() as writer:
        for name, rule in rules.items():
            try:
                _enter(writer, rule, operator, known)
                entered.append(name)
            except (NameTaken, WrongState) as error:
                left[name] = error.message
    (home.path / FILE).unlink(missing_ok=True)
    return Adopted(tuple(entered), left)


def _enter(writer: Writer, rule: Schedule, operator: str, known: set[str]) -> None:
    if rule.stopped is not None:
        raise WrongState(f"was stopped: {rule.stopped}")
    token = None
    if rule.by in known and rule.by != operator:
        acting = [each.created for each in sound_tokens(writer.signed)[0] if each.principal == rule.by]
        if not acting:
            raise WrongState(f"no token acts for {rule.by} any more")
        token = min(acting)
    job = JobRequest.of(rule.asked)
    since = rule.since if rule.last is None else rule.since + (rule.last[0] + 1) * PERIODS[rule.every]
    asked = {"learner": job.learner} | job.to_json()
    enter(writer, replace(rule, since=since, asked=asked, token=token, last=None), most=None)


def _read_file(home: Home) -> dict[str, Schedule]:
    path = home.path / FILE
    if not path.exists():
        return {}
    try:
        rules = {}
        for name, stored in json.loads(path.read_bytes()).items():  # as commit 44b969b and those after it wrote it
            fields = {field: stored[field] for field in ("name", "every", "since", "by", "stopped")}
            asked = {field: value for field, value in stored["asked"].items() if field != "labels"}
            last = stored["last"] and (stored["last"][0], stored["last"][1])
            rules[name] = Schedule(**fields, asked=asked, last=last)
        good = all(rule.name == name and rule.every in PERIODS for name, rule in rules.items())
        good = good and all(JobRequest.of(rule.asked) for rule in rules.values())
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        good = False
    if not good:
        raise InputError(f"{path}: is damaged; restore it, or remove it and add the schedules again")
    return rules
