"""Schedules: entries that have the same job asked for once a period, for as long as who made them may ask for it.

A schedule is made by a token, and ends with it; or at the command line, by who holds the keys of the home, which its
entry says (`token` is null). The job of a period says in its entry of which schedule and period it is: the newest entry
about a schedule says whether it lives, and which period had its job last.
"""

from __future__ import annotations

from calendar import monthrange
from dataclasses import dataclass, replace
from datetime import MAXYEAR, UTC, datetime
from typing import Any

from sqlalchemy import Connection, insert, select, update

from accountant.errors import IdempotencyConflict, UnknownName, WrongState
from accountant.ledger.families.records import LONGEST_REASON
from accountant.log.entries import Signed, Writer
from accountant.log.newest import account_number
from accountant.store.tables import schedule_table
from dpserve_verify.errors import LedgerInvalid

PERIODS: dict[str, int | None] = {"hour": 3600, "day": 86_400, "week": 7 * 86_400, "month": None}
"""Seconds of each; None: a month of the calendar, from its day to that day of the next, or to its last."""
LAST_DAY = 253_402_214_400  # 9999-12-31
MAX_OF_ONE = 20  # schedules of one principal, where no setting says otherwise


@dataclass(frozen=True)
class Schedule:
    """A rule that submits the same job once in each period.

    Attributes:
        name: unique among those that were not removed.
        every: the period, of PERIODS.
        since: when period 0 begins, in seconds since 1970.
        by: in whose name jobs are submitted.
        asked: the request, as `training.requests.JobRequest` has it.
        token: the entry that made the token which made it; None: it was made at the command line.
        seq: the entry that made it; None before it stands in the ledger.
        last: the newest period whose job was submitted, and that job.
        stopped: why no more jobs are submitted.
        rows: of one that appends rows before each job: the pattern of their files, `data`, and about how many `records`
            each has.
    """

    name: str
    every: str
    since: int
    by: str
    asked: dict[str, Any]
    token: int | None = None
    seq: int | None = None
    last: tuple[int, int] | None = None
    stopped: str | None = None
    rows: dict[str, Any] | None = None

    def period(self, now: float) -> int:
        """Return the number of the period at `now`, from 0; below 0 before the first."""
        seconds = PERIODS[self.every]
        if seconds is not None:
            return int((now - self.since) // seconds)
        first, at = (datetime.fromtimestamp(moment, UTC) for moment in (self.since, now))
        number = 12 * (at.year - first.year) + at.month - first.month
        return number if self.begin_of(number) <= now else number - 1

    def begin_of(self, number: int) -> int:
        """Return when a period begins, in seconds since 1970; at most LAST_DAY."""
        seconds = PERIODS[self.every]
        if seconds is not None:
            return min(self.since + number * seconds, LAST_DAY)
        first = datetime.fromtimestamp(self.since, UTC)
        years, month = divmod(first.month - 1 + number, 12)
        if first.year + years > MAXYEAR:
            return LAST_DAY
        day = min(first.day, monthrange(first.year + years, month + 1)[1])
        return int(first.replace(year=first.year + years, month=month + 1, day=day).timestamp())


@dataclass(frozen=True)
class Period:
    """A period of the schedule that the entry `schedule` made."""

    schedule: int
    number: int


def enter(writer: Writer, schedule: Schedule, most: int = MAX_OF_ONE) -> Schedule:
    """Enter a schedule. NameTaken where its name is in use, WrongState where `by` has `most`, or its token was revoked,
    Forbidden where who made it may not train on its dataset.
    """
    rows = writer.connection.execute(select(schedule_table).where(schedule_table.c.ended.is_(None))).all()
    if sum(row.principal == schedule.by for row in rows) >= most:
        raise WrongState(
            f"schedules: {schedule.by} has {most}; remove one of them first, or set DPSERVE_SCHEDULES_OF_ONE higher"
        )
    seq = writer.append(
        "schedule-added",
        name=schedule.name, every=schedule.every, since=schedule.since, asked=schedule.asked, token=schedule.token,
        by=schedule.by, **({} if schedule.rows is None else {"rows": schedule.rows}),
    )  # fmt: skip
    row = {"seq": seq, "name": schedule.name, "principal": schedule.by, "token": schedule.token}
    writer.connection.execute(insert(schedule_table).values(**row))
    return replace(schedule, seq=seq)


def stop(writer: Writer, seq: int, reason: str) -> None:
    """Stop a schedule for good: it submits no job any more, and its name stays in use until it is removed. Nothing
    where it was stopped or removed meanwhile.
    """
    row = _row(writer.connection, seq)
    if row.ended is None and _schedule_of(writer.signed, row).stopped is None:
        text = " ".join(reason.split())[:LONGEST_REASON]
        index = writer.append("schedule-stopped", schedule=seq, reason=text)
        writer.connection.execute(update(schedule_table).where(schedule_table.c.seq == seq).values(stopped=index))


def remove(writer: Writer, name: str, by: str) -> Schedule:
    """Remove a schedule; what it asked for stays, and its name is free. UnknownName where there is none of it."""
    rows = writer.connection.execute(select(schedule_table).where(schedule_table.c.ended.is_(None))).all()
    row = next((row for row in rows if row.name == name), None)
    if row is None:
        raise UnknownName(f"schedule={name[:64]}: no such schedule", schedule=name[:64])
    gone = _schedule_of(writer.signed, row)
    index = writer.append("schedule-removed", schedule=row.seq, by=by)
    writer.connection.execute(update(schedule_table).where(schedule_table.c.seq == row.seq).values(ended=index))
    return gone


def end_with_token(connection: Connection, created: int, revoked: int) -> list[str]:
    """End the schedules of the token that the entry `created` made; return their names. The entry `revoked` ends them
    all: none of their own is written.
    """
    mine = (schedule_table.c.token == created) & schedule_table.c.ended.is_(None)
    names = list(
        connection.execute(select(schedule_table.c.name).where(mine).order_by(schedule_table.c.name)).scalars()
    )
    connection.execute(update(schedule_table).where(mine).values(ended=revoked))
    return names


def schedules(signed: Signed) -> tuple[list[Schedule], list[str]]:
    """Return the schedules that were not removed, by name, each as its entry says, whatever its row does; and what is
    wrong with rows that say something else: such a schedule submits nothing.
    """
    sound, wrong = [], []
    query = select(schedule_table).where(schedule_table.c.ended.is_(None)).order_by(schedule_table.c.name)
    for row in signed.connection.execute(query).all():
        try:
            sound.append(_schedule_of(signed, row))
        except LedgerInvalid as error:
            wrong.append(f"schedule {row.name:.80}: its row is not what was signed ({error.message})")
    return sound, wrong


def admit(writer: Writer, period: Period) -> dict[str, int]:
    """Return what the job of this period says in its entry. IdempotencyConflict where the period, or one after it, had
    its job before; that the schedule lives and may ask for it, the entry's rule judges.
    """
    schedule = _schedule_of(writer.signed, _row(writer.connection, period.schedule))
    if schedule.last is not None and period.number <= schedule.last[0]:
        raise IdempotencyConflict(
            f"schedule={schedule.name}: period {period.number} had its job before", job=schedule.last[1]
        )
    return {"entry": period.schedule, "period": period.number}


def note_job(connection: Connection, period: Period, job: int) -> None:
    """Note the newest job of a schedule in its row."""
    where = schedule_table.c.seq == period.schedule
    connection.execute(update(schedule_table).where(where).values(job=job))


def _row(connection: Connection, seq: int) -> Any:
    row = connection.execute(select(schedule_table).where(schedule_table.c.seq == seq)).first()
    if row is None:
        raise UnknownName(f"schedule={seq}: no such schedule", schedule=seq)
    return row


def _schedule_of(signed: Signed, row: Any) -> Schedule:
    """Read the schedule of a row from the entries that were signed. LedgerInvalid where they say something else."""
    value = signed.entry(row.seq).value
    says = (value["type"], value.get("name"), value.get("by"), value.get("token"))
    if says != ("schedule-added", row.name, row.principal, row.token):
        raise LedgerInvalid(f"entry {row.seq} does not say so", entry=row.seq)
    newest = signed.after(account_number(row.seq))
    about = signed.entry(newest) if newest else None
    if about is not None and about.value["type"] == "schedule-removed":
        raise LedgerInvalid(f"entry {newest} removed it", entry=newest)
    revoked = 0 if row.token is None else signed.after(account_number(row.token))
    if revoked:
        raise LedgerInvalid(f"entry {revoked} revoked its token", entry=revoked)
    ends = row.stopped if about is None or about.value["type"] == "reserved" else newest
    said = signed.entry(row.job).value.get("schedule", {}) if row.job else {}
    if row.job and said.get("entry") != row.seq:
        raise LedgerInvalid(f"entry {row.job} is no job of it", entry=row.job)
    if ends != row.stopped or (about is not None and about.value["type"] == "reserved" and newest != row.job):
        raise LedgerInvalid(f"entry {newest} says something else", entry=newest)
    return Schedule(
        row.name,
        value["every"],
        value["since"],
        row.principal,
        value["asked"],
        row.token,
        row.seq,
        (said["period"], row.job) if row.job else None,
        None if ends is None else str(signed.entry(ends).value["reason"]),
        value.get("rows"),
    )
