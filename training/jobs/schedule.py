"""Jobs by a rule: the same job once a period, until a block that it reads is exhausted.

The rules stand in the home, in `schedules.json`; the training worker looks at them. What has been done is not told by
them but by the ledger: the job of a period is submitted under a key that names rule and period, so that it is reserved
once, whoever looks, how often, and whatever the clock does meanwhile. A period that was slept through is not made up
for, and a job that burned is not tried again in its period.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from accountant.access.grants import Access, access_of
from accountant.errors import (
    BudgetRefused,
    Forbidden,
    IdempotencyConflict,
    NameTaken,
    RowsUnavailable,
    UnknownName,
    WrongState,
    words_of,
)
from accountant.home import Home
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.windows import ALL
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import check_name
from dpserve_verify.system.files import PRIVATE, locked, replace_file
from training.jobs import job
from training.planning.plans import Planned, plan
from training.requests import JobRequest

LOG = logging.getLogger("dpserve.training")
FILE, LOCK = "schedules.json", "schedules.lock"
MAX_OF_ONE = 20  # rules of one principal
LAST_DAY = 253_402_214_400  # 9999-12-31
PERIODS = {"hour": 3600, "day": 86_400, "week": 7 * 86_400}
Clock = Callable[[], float]


@dataclass(frozen=True)
class Schedule:
    """A rule that submits the same job once in each period.

    Attributes:
        name: unique in a home.
        every: the period, of PERIODS.
        since: when period 0 begins, in seconds since 1970.
        by: in whose name jobs are submitted.
        asked: the request, as `JobRequest` has it.
        identity: part of each job's idempotency key.
        last: the newest period whose job was submitted, and that job.
        stopped: why no more jobs are submitted.
    """

    name: str
    every: str
    since: int
    by: str
    asked: dict[str, Any]
    identity: str
    last: tuple[int, int] | None = None
    stopped: str | None = None

    def period(self, now: float) -> int:
        """Return the number of the period at `now`, from 0; below 0 before the first."""
        return int((now - self.since) // PERIODS[self.every])

    def key(self, period: int) -> str:
        """Return the idempotency key of the period's job."""
        return f"schedule {self.identity} period {period}"

    @property
    def job(self) -> JobRequest:
        """Return what it asks for."""
        return JobRequest.of(self.asked)


def make_schedule(
    home: Home,
    name: str,
    every: str,
    asked: dict[str, Any],
    by: str,
    since: int | None = None,
    clock: Clock = time.time,
) -> Schedule:
    """Return a rule whose job would be admitted now; `add` enters it. `asked`: as `JobRequest` has it. InputError where
    there is no such period, Forbidden where `by` may not train on the dataset; else as `plan`.
    """
    if every not in PERIODS:
        raise InputError(f"every={every[:40]!r}: must be one of {', '.join(PERIODS)}")
    schedule = Schedule(
        check_name("schedule", name), every, int(clock()) if since is None else since, by, asked, str(uuid.uuid4())
    )
    plan(home, schedule.job, by, _promotes(home, schedule))
    return schedule


def add(home: Home, schedule: Schedule) -> Schedule:
    """Enter a rule that was made by `make_schedule`. NameTaken where its name is in use, WrongState where `by` has
    MAX_OF_ONE.
    """
    with locked(home.path / LOCK):
        rules = _read_file(home)
        if schedule.name in rules:
            raise NameTaken(f"schedule={schedule.name}: there is one of that name")
        if sum(rule.by == schedule.by for rule in rules.values()) >= MAX_OF_ONE:
            raise WrongState(f"schedules: {schedule.by} has {MAX_OF_ONE}; remove one of them first")
        _write_file(home, rules | {schedule.name: schedule})
    return schedule


def moment(text: str | None) -> int | None:
    """Return the seconds since 1970 of a time like 2026-01-05T06:00, in UTC where it names no other; InputError where
    it is none.
    """
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
        return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        raise InputError(f"start={text!r:.40}: must be like 2026-01-05T06:00, in UTC") from None


def schedules_for(home: Home, access: Access) -> list[Schedule]:
    """Return the rules of who asks, and those on datasets that they audit or are steward of."""
    return [
        rule
        for rule in schedules(home)
        if access.owns(rule.by) or access.may("audit", "steward", dataset=rule.asked["dataset"])
    ]


def remove_as(home: Home, name: str, access: Access) -> Schedule:
    """Remove a rule, as its owner or a steward of its dataset. UnknownName where they see none of that name, Forbidden
    where it is another's.
    """
    schedule = next((rule for rule in schedules_for(home, access) if rule.name == name), None)
    if schedule is None:
        raise UnknownName(f"schedule={name[:64]}: no such schedule", schedule=name[:64])
    if not access.owns(schedule.by) and not access.may("steward", dataset=schedule.asked["dataset"]):
        raise Forbidden(
            f"schedule={name}: is another's; its owner or a steward of {schedule.asked['dataset']} removes it"
        )
    return remove(home, name)


def remove(home: Home, name: str) -> Schedule:
    """Forget a rule; what it asked for stays. UnknownName where there is none."""
    with locked(home.path / LOCK):
        rules = _read_file(home)
        if name not in rules:
            raise UnknownName(f"schedule={name}: no such schedule", schedule=name)
        gone = rules.pop(name)
        _write_file(home, rules)
    return gone


def schedules(home: Home) -> list[Schedule]:
    """Return every rule of this home, by name."""
    return [rule for _, rule in sorted(_read_file(home).items())]


def submit_due(home: Home, clock: Clock = time.time) -> list[int]:
    """Submit the job of each rule whose period has come and whose job was not submitted yet; their numbers. A rule that
    is refused, by the budget, a grant, or because what it asks for cannot be any more, is stopped and says why; one
    whose dataset is not in this home now waits.
    """
    submitted = []
    for rule in schedules(home):
        period = rule.period(clock())
        if rule.stopped is not None or period < 0 or (rule.last and period <= rule.last[0]):
            continue
        try:
            promotes = _promotes(home, rule)
            reserved = job.submit(home, rule.job, by=rule.by, key=rule.key(period), promotes=promotes)
            submitted.append(reserved.seq)
            changed = replace(rule, last=(period, reserved.seq))
        except IdempotencyConflict as known_job:  # of this period: what is public has changed since
            changed = replace(rule, last=(period, known_job.details["job"]))
        except RowsUnavailable as error:  # its folder may come back: the others are not kept waiting
            LOG.warning("schedule %s: submits nothing now; %s", rule.name, error.message)
            continue
        except (BudgetRefused, Forbidden, InputError) as error:
            changed = replace(rule, stopped=error.message)
        with locked(home.path / LOCK):
            rules = _read_file(home)
            if rule.name in rules and rules[rule.name].identity == rule.identity:
                _write_file(home, rules | {rule.name: changed})
    return submitted


def _promotes(home: Home, schedule: Schedule) -> bool:
    """Return whether the owner may promote versions of the model. Forbidden where they may not train on the dataset."""
    access = access_of(home.ledger, schedule.by, operator=schedule.by.startswith("cli:"))
    access.require("train", dataset=schedule.asked["dataset"])
    return access.may("promote", model=schedule.asked.get("model") or schedule.asked["dataset"])


def schedule_to_json(home: Home, schedule: Schedule, clock: Clock = time.time) -> dict[str, Any]:
    """Return a rule as JSON, with the runs that the budget still admits and the day on which the next is refused."""
    runs, problem = _known_runs(home, schedule)
    return {
        "name": schedule.name, "every": schedule.every, "since": schedule.since, "by": schedule.by,
        **{name: value for name, value in schedule.asked.items() if value is not None},
        "last": None if schedule.last is None else {"period": schedule.last[0], "job": schedule.last[1]},
        "stopped": schedule.stopped, **runs, "problem": problem,
        "until": _until(schedule, int(runs["alone"] or 0), clock()), "fed_until":
        None if runs["fed"] is None else _until(schedule, runs["fed"], clock()),
    }  # fmt: skip


def _known_runs(home: Home, schedule: Schedule) -> tuple[dict[str, int | None], str | None]:
    """Return how many more runs are admitted, and the problem where its dataset's folder is not here to tell."""
    try:
        return runs_left(home, schedule), None
    except RowsUnavailable as error:
        return {"alone": 0, "fed": 0}, words_of(error)


def _until(schedule: Schedule, runs: int, now: float) -> str:
    """Return the day on which the first period after so many more runs begins."""
    following = max(0, schedule.period(now)) if schedule.last is None else schedule.last[0] + 1
    days = min(schedule.since + (following + runs) * PERIODS[schedule.every], LAST_DAY)
    return datetime.fromtimestamp(days, UTC).date().isoformat()


def runs_left(home: Home, schedule: Schedule) -> dict[str, int | None]:
    """Return how many times more the job would be admitted: `alone` where no block is appended, and `fed` where one is
    in each period, None: for as long as that goes on. Both are figures of the budgets alone, if nothing else is asked.
    """
    if schedule.stopped is not None:
        return {"alone": 0, "fed": 0}
    try:
        planned = plan(home, schedule.job, schedule.by, _promotes(home, schedule))
    except (BudgetRefused, Forbidden, InputError):
        return {"alone": 0, "fed": 0}
    return {
        "alone": planned.dataset.jobs_left(planned.costs, planned.recipe.claim),
        "fed": _runs_left_fed(planned.dataset, planned),
    }


def _runs_left_fed(dataset: Dataset, planned: Planned) -> int | None:
    """Return how many more jobs are admitted while a block is appended in each period; None: no end. The block that is
    asked for the `age`-th time is read size - age times more; a fresh one, size times.
    """
    words = planned.request.blocks or ""
    person = [each.jobs_left(cost) for each, cost in zip(dataset.families, planned.costs, strict=True) if each.person]
    block_runs = [family.jobs_left(cost) for family, cost in zip(dataset.own, planned.costs, strict=False)]
    if not words.startswith("last:"):
        return (
            min(block_runs + person) if words != ALL else min([*block_runs, 1 + _fresh_jobs(dataset, planned), *person])
        )
    size = int(words.partition(":")[2])
    ends = [runs for age, runs in enumerate(reversed(block_runs)) if runs < size - age]
    ends += [1 + _fresh_jobs(dataset, planned)] if _fresh_jobs(dataset, planned) < size else []
    ends += person  # over all blocks, which no new one renews
    return min(ends, default=None)


def _fresh_jobs(dataset: Dataset, planned: Planned) -> int:
    """Return how many such jobs a fresh block admits."""
    family, cost = dataset.families[0], planned.costs[0]
    return family.filter.jobs_left(family.filter.nothing(), cost)


def _read_file(home: Home) -> dict[str, Schedule]:
    """Read the rules by name. InputError where the file is damaged."""
    path = home.path / FILE
    if not path.exists():
        return {}
    try:
        stored = json.loads(path.read_bytes())
        for rule in stored.values():
            rule["asked"].pop("labels", None)  # which a schedule of commit 44b969b may name
        rules = {
            name: Schedule(**{**rule, "last": rule["last"] and tuple(rule["last"])}) for name, rule in stored.items()
        }
        good = all(rule.name == name and rule.every in PERIODS and rule.job for name, rule in rules.items())
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        good = False
    if not good:
        raise InputError(f"{path}: is damaged; restore it, or remove it and add the schedules again")
    return rules


def _write_file(home: Home, known: dict[str, Schedule]) -> None:
    body = json.dumps({name: asdict(rule) for name, rule in known.items()}, indent=2)
    replace_file(Path(home.path / FILE), f"{body}\n".encode(), PRIVATE)
