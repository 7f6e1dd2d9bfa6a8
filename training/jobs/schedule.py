"""Jobs by a rule: the same job once a period, until a block that it reads is exhausted.

The rules stand in the home, in `schedules.json`; the training worker looks at them. What has been done is not told by
them but by the ledger: the job of a period is submitted under a key that names rule and period, so that it is reserved
once, whoever looks, how often, and whatever the clock does meanwhile. A period that was slept through is not made up
for, and a job that burned is not tried again in its period.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from accountant.access.grants import Access, access_of
from accountant.errors import BudgetRefused, Forbidden, IdempotencyConflict, NameTaken, UnknownName, WrongState
from accountant.home import Home
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.windows import ALL
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import check_name
from dpserve_verify.system.files import PRIVATE, locked, replace_file
from training.jobs import job
from training.planning.plans import Planned, plan
from training.requests import JobRequest

FILE, LOCK = "schedules.json", "schedules.lock"
MOST_OF_ONE = 20  # rules of one principal
LAST_DAY = 253_402_214_400  # 9999-12-31
PERIODS = {"hour": 3600, "day": 86_400, "week": 7 * 86_400}
Clock = Callable[[], float]


@dataclass(frozen=True)
class Schedule:
    """A rule: `asked` once `every` period, counted from `since` (seconds since 1970), in the name of `by`. `last`: the
    newest period whose job was submitted, and that job; `stopped`: why it is asked no more.
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
        """Which one it is now, from 0; below 0 before the first."""
        return int((now - self.since) // PERIODS[self.every])

    def key(self, period: int) -> str:
        """The idempotency key of its job."""
        return f"schedule {self.identity} period {period}"

    @property
    def job(self) -> JobRequest:
        """Return what it asks for."""
        return JobRequest.of(self.asked)


def described(
    home: Home,
    name: str,
    every: str,
    asked: dict[str, Any],
    by: str,
    since: int | None = None,
    clock: Clock = time.time,
) -> Schedule:
    """A rule whose job would be admitted now; `add` enters it. `asked`: as `JobRequest` has it. InputError where
    there is no such period, Forbidden where `by` may not train on the dataset; else as `plan`.
    """
    if every not in PERIODS:
        raise InputError(f"every={every[:40]!r}: must be one of {', '.join(PERIODS)}")
    made = Schedule(
        check_name("schedule", name), every, int(clock()) if since is None else since, by, asked, str(uuid.uuid4())
    )
    plan(home, made.job, by, _promotes(home, made))
    return made


def add(home: Home, made: Schedule) -> Schedule:
    """Enter a rule that was `described`. NameTaken where its name is in use, WrongState where `by` has MOST_OF_ONE."""
    with locked(home.path / LOCK):
        known = _read(home)
        if made.name in known:
            raise NameTaken(f"schedule={made.name}: there is one of that name")
        if sum(each.by == made.by for each in known.values()) >= MOST_OF_ONE:
            raise WrongState(f"schedules: {made.by} has {MOST_OF_ONE}; remove one of them first")
        _write(home, known | {made.name: made})
    return made


def moment(text: str | None) -> int | None:
    """The seconds since 1970 of a time like 2026-01-05T06:00, in UTC where it names no other; InputError where it is
    none.
    """
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
        return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        raise InputError(f"start={text!r:.40}: must be like 2026-01-05T06:00, in UTC") from None


def seen(home: Home, access: Access) -> list[Schedule]:
    """Of all rules their own, and those on datasets that they audit or are steward of."""
    return [
        each
        for each in schedules(home)
        if access.owns(each.by) or access.may("audit", "steward", dataset=each.asked["dataset"])
    ]


def remove_as(home: Home, name: str, access: Access) -> Schedule:
    """As `remove`, by whoever made it, or a steward of its dataset. UnknownName where they see none of that name,
    Forbidden where it is another's.
    """
    found = next((each for each in seen(home, access) if each.name == name), None)
    if found is None:
        raise UnknownName(f"schedule={name[:64]}: no such schedule", schedule=name[:64])
    if not access.owns(found.by) and not access.may("steward", dataset=found.asked["dataset"]):
        raise Forbidden(f"schedule={name}: is another's; its owner or a steward of {found.asked['dataset']} removes it")
    return remove(home, name)


def remove(home: Home, name: str) -> Schedule:
    """Forget a rule; what it asked for stays. UnknownName where there is none."""
    with locked(home.path / LOCK):
        known = _read(home)
        if name not in known:
            raise UnknownName(f"schedule={name}: no such schedule", schedule=name)
        gone = known.pop(name)
        _write(home, known)
    return gone


def schedules(home: Home) -> list[Schedule]:
    """Every rule of this home, by name."""
    return [each for _, each in sorted(_read(home).items())]


def submit_due(home: Home, clock: Clock = time.time) -> list[int]:
    """Submit the job of each rule whose period has come and whose job was not submitted yet; their numbers. A rule that
    is refused, by the budget, a grant, or because what it asks for cannot be any more, is stopped and says why.
    """
    found = []
    for each in schedules(home):
        period = each.period(clock())
        if each.stopped is not None or period < 0 or (each.last and period <= each.last[0]):
            continue
        try:
            promotes = _promotes(home, each)
            reserved = job.submit(home, each.job, by=each.by, key=each.key(period), promotes=promotes)
            found.append(reserved.seq)
            changed = replace(each, last=(period, reserved.seq))
        except IdempotencyConflict as known_job:  # of this period: what is public has changed since
            changed = replace(each, last=(period, known_job.details["job"]))
        except (BudgetRefused, Forbidden, InputError) as error:
            changed = replace(each, stopped=error.message)
        with locked(home.path / LOCK):
            known = _read(home)
            if each.name in known and known[each.name].identity == each.identity:
                _write(home, known | {each.name: changed})
    return found


def _promotes(home: Home, schedule: Schedule) -> bool:
    """Whether who made it may promote versions of the model. Forbidden where they may not train on the dataset."""
    access = access_of(home.ledger, schedule.by, operator=schedule.by.startswith("cli:"))
    access.require("train", dataset=schedule.asked["dataset"])
    return access.may("promote", model=schedule.asked.get("model") or schedule.asked["dataset"])


def schedule_to_json(home: Home, schedule: Schedule, clock: Clock = time.time) -> dict[str, Any]:
    """A rule as the doors tell it, and for how long it can be kept: runs, and the day on which the next is refused."""
    return {
        "name": schedule.name, "every": schedule.every, "since": schedule.since, "by": schedule.by,
        **{name: value for name, value in schedule.asked.items() if value is not None},
        "last": None if schedule.last is None else {"period": schedule.last[0], "job": schedule.last[1]},
        "stopped": schedule.stopped, **(left := lasts(home, schedule)),
        "until": _until(schedule, int(left["alone"] or 0), clock()), "fed_until":
        None if left["fed"] is None else _until(schedule, left["fed"], clock()),
    }  # fmt: skip


def _until(schedule: Schedule, runs: int, now: float) -> str:
    """The day on which the period begins that comes behind so many more runs."""
    following = max(0, schedule.period(now)) if schedule.last is None else schedule.last[0] + 1
    days = min(schedule.since + (following + runs) * PERIODS[schedule.every], LAST_DAY)
    return datetime.fromtimestamp(days, UTC).date().isoformat()


def lasts(home: Home, schedule: Schedule) -> dict[str, int | None]:
    """How many times more the job would be admitted: `alone` where no block is appended, and `fed` where one is in each
    period, None: for as long as that goes on. Both are figures of the budgets alone, if nothing else is asked.
    """
    if schedule.stopped is not None:
        return {"alone": 0, "fed": 0}
    try:
        planned = plan(home, schedule.job, schedule.by, _promotes(home, schedule))
    except (BudgetRefused, Forbidden, InputError):
        return {"alone": 0, "fed": 0}
    return {
        "alone": planned.dataset.jobs_left(planned.costs, planned.recipe.claim),
        "fed": _fed(planned.dataset, planned),
    }


def _fed(dataset: Dataset, planned: Planned) -> int | None:
    """The block that is asked for the `age`-th time is read size - age times more; a fresh one, size times."""
    words = planned.request.blocks or ""
    person = [each.jobs_left(cost) for each, cost in zip(dataset.families, planned.costs, strict=True) if each.person]
    left = [family.jobs_left(cost) for family, cost in zip(dataset.own, planned.costs, strict=False)]
    if not words.startswith("last:"):
        return min(left + person) if words != ALL else min([*left, 1 + _fresh(dataset, planned), *person])
    size = int(words.partition(":")[2])
    ends = [own for age, own in enumerate(reversed(left)) if own < size - age]
    ends += [1 + _fresh(dataset, planned)] if _fresh(dataset, planned) < size else []
    ends += person  # over all blocks, which no new one renews
    return min(ends, default=None)


def _fresh(dataset: Dataset, planned: Planned) -> int:
    """How many such jobs a block admits of which nothing is used."""
    family, cost = dataset.families[0], planned.costs[0]
    return family.filter.jobs_left(family.filter.nothing(), cost)


def _read(home: Home) -> dict[str, Schedule]:
    """InputError where the file is not as it was written: no rule is guessed, and none is forgotten."""
    path = home.path / FILE
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_bytes())
        for each in found.values():
            each["asked"].pop("labels", None)  # which a schedule of commit 44b969b may name
        rules = {
            name: Schedule(**{**each, "last": each["last"] and tuple(each["last"])}) for name, each in found.items()
        }
        good = all(each.name == name and each.every in PERIODS and each.job for name, each in rules.items())
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        good = False
    if not good:
        raise InputError(f"{path}: is damaged; restore it, or remove it and add the schedules again")
    return rules


def _write(home: Home, known: dict[str, Schedule]) -> None:
    body = json.dumps({name: asdict(each) for name, each in known.items()}, indent=2)
    replace_file(Path(home.path / FILE), f"{body}\n".encode(), PRIVATE)
