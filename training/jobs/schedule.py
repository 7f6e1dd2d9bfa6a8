"""Jobs by a rule: the same job once a period, until a block that it reads is exhausted.

The rules are entries of the ledger (`accountant.ledger.schedules`); the training worker looks at them. The job of a
period names rule and period, so that it is reserved once, whoever looks, how often, and whatever the clock does
meanwhile. A period that was slept through is not made up for, and a job that burned is not tried again in its period.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from accountant.access.grants import Access, RightsNow
from accountant.errors import EntryRefused, Forbidden, IdempotencyConflict, RowsUnavailable, UnknownName, words_of
from accountant.home import Home, settings
from accountant.ledger import schedules as ledger_schedules
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.windows import ALL
from accountant.ledger.schedules import PERIODS, Period, Schedule, enter
from dpserve_verify.errors import BudgetRefused, InputError
from dpserve_verify.formats.canonical import whole_number
from dpserve_verify.privacy.budget import check_name
from training.jobs.renewal import ScheduledRows, append_waiting, plan_renewal
from training.kinds.training_steps import TrainingSteps
from training.planning import starts
from training.planning.plans import Planned, plan
from training.requests import JobRequest

LOG = logging.getLogger("dpserve.training")
MAX_OF_ONE = "DPSERVE_SCHEDULES_OF_ONE"  # the setting
Clock = Callable[[], float]


def make_schedule(
    home: Home,
    name: str,
    every: str,
    asked: dict[str, Any],
    by: str,
    since: int | None = None,
    clock: Clock = time.time,
    *,
    token: int | None,
    rows: ScheduledRows | None = None,
) -> Schedule:
    """Return a rule whose job would be admitted now; `add` enters it. InputError where there is no such period,
    Forbidden where `by` may not train on the dataset, or append the `rows` of its files; else as `plan`, or, with rows,
    as `plan_renewal`.

    Args:
        asked: the job, as `JobRequest` has it.
        by: in whose name it is submitted.
        token: the entry of the token that asks; None: it is asked at the command line, by who holds the keys.
    """
    if every not in PERIODS:
        raise InputError(f"every={every[:40]!r}: must be one of {', '.join(PERIODS)}")
    job_request = JobRequest.of(asked)
    if job_request.public is not None:  # as it is now, in every period
        job_request = replace(job_request, public=starts.resolve_start(home, job_request.public))
    stored = {"learner": job_request.learner} | job_request.to_json()
    begins = int(clock()) if since is None else since
    appended = None if rows is None else rows.to_json()
    schedule = Schedule(check_name("schedule", name), every, begins, by, stored, token, rows=appended)
    promotes = _promotes(RightsNow.of(home.ledger, schedule.by), schedule)
    if rows is None:
        plan(home, job_request, by, promotes)
    else:
        plan_renewal(home, job_request, rows.words(by), by, promotes)
    return schedule


def add(home: Home, schedule: Schedule) -> Schedule:
    """Enter a rule that was made by `make_schedule`. NameTaken where its name is in use, WrongState where `by` has as
    many as the setting DPSERVE_SCHEDULES_OF_ONE allows.
    """
    with home.ledger.log.writing() as writer:
        return enter(writer, schedule, max_of_one())


def max_of_one(environment: Mapping[str, str] = os.environ) -> int:
    """Return how many schedules one principal may have. InputError where the setting is no whole number from 1."""
    text = settings(environment)[MAX_OF_ONE].value
    number = whole_number(text)
    if not number:
        raise InputError(f"{MAX_OF_ONE}={text[:40]!r}: must be a whole number from 1")
    return number


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
    return remove(home, name, access.principal)


def remove(home: Home, name: str, by: str) -> Schedule:
    """Remove a rule; what it asked for stays. UnknownName where there is none."""
    with home.ledger.log.writing() as writer:
        return ledger_schedules.remove(writer, name, by)


def schedules(home: Home) -> list[Schedule]:
    """Return the rules that were signed and not removed, by name."""
    with home.ledger.log.signed() as signed:
        sound, wrong = ledger_schedules.schedules(signed)
    for problem in wrong:
        LOG.error("%s; it submits nothing (dpserve ledger audit)", problem)
    return sound


def submit_due(home: Home, clock: Clock = time.time) -> list[int]:
    """Submit the job of each rule whose period has come and whose job was not submitted yet; their numbers. A rule that
    is refused, by the budget, a grant, or because what it asks for cannot be any more, is stopped and says why; one
    whose dataset is not in this home now waits.
    """
    submitted = []
    living = [(rule, rule.seq) for rule in schedules(home) if rule.stopped is None and rule.seq is not None]
    if not living:
        return []
    rights = RightsNow.of(home.ledger)
    for rule, seq in living:
        period = rule.period(clock())
        try:
            promotes = _promotes(rights, rule)
            if period < 0 or (rule.last and period <= rule.last[0]):
                continue
            if rule.rows is not None and not append_waiting(home, rule, clock(), promotes):
                continue
            reserved = TrainingSteps.submit(
                home, JobRequest.of(rule.asked), by=rule.by, key=None, queued=True, promotes=promotes,
                scheduled=Period(seq, period),
            )  # fmt: skip
            submitted.append(reserved.seq)
        except IdempotencyConflict:  # another worker was faster
            continue
        except EntryRefused as error:  # somebody was faster: the next look sees what changed
            LOG.warning("schedule %s: submits nothing now; %s", rule.name, error.message)
        except RowsUnavailable as error:  # its folder may come back: the others are not kept waiting
            LOG.warning("schedule %s: submits nothing now; %s", rule.name, error.message)
        except (BudgetRefused, Forbidden, InputError) as error:
            with home.ledger.log.writing() as writer:
                ledger_schedules.stop(writer, seq, error.message)
    return submitted


def _promotes(rights: RightsNow, schedule: Schedule) -> bool:
    """Return whether who made it may promote versions of the model. Forbidden where they may not train on the dataset,
    or not append to it what the schedule appends.
    """
    access = rights.access(schedule.by, schedule.token)
    access.require("train", dataset=schedule.asked["dataset"])
    if schedule.rows is not None:
        access.require("steward", dataset=schedule.asked["dataset"])
    return access.may("promote", model=schedule.asked.get("model") or schedule.asked["dataset"])


def schedule_to_json(home: Home, schedule: Schedule, clock: Clock = time.time) -> dict[str, Any]:
    """Return a rule as JSON, with the runs that the budget still admits and the day on which the next is refused."""
    runs, problem = _known_runs(home, schedule)
    return {
        "name": schedule.name, "every": schedule.every, "since": schedule.since, "by": schedule.by,
        **{name: value for name, value in schedule.asked.items() if value is not None},
        "last": None if schedule.last is None else {"period": schedule.last[0], "job": schedule.last[1]},
        "stopped": schedule.stopped, **runs, "problem": problem, **({"rows": schedule.rows} if schedule.rows else {}),
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
    return datetime.fromtimestamp(schedule.begin_of(following + runs), UTC).date().isoformat()


def runs_left(home: Home, schedule: Schedule) -> dict[str, int | None]:
    """Return how many times more the job would be admitted: `alone` where no block is appended, and `fed` where one is
    in each period, None: for as long as that goes on. Both are figures of the budgets alone, if nothing else is asked.
    """
    if schedule.stopped is not None:
        return {"alone": 0, "fed": 0}
    try:
        promotes = _promotes(RightsNow.of(home.ledger, schedule.by), schedule)
        planned = plan(home, JobRequest.of(schedule.asked), schedule.by, promotes)
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
