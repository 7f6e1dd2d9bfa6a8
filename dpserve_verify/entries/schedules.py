"""Schedules: jobs that are asked for once a period."""

from __future__ import annotations

from typing import Annotated, Literal

from dpserve_verify.entries.entry import EntryForm, Index, Json, Name, Words
from dpserve_verify.formats.forms import Limits

PERIODS = ("hour", "day", "week")
LONGEST = 500  # characters of a reason


class ScheduleAdded(EntryForm):
    """A schedule is made, by the token of an entry or at the command line."""

    type: Literal["schedule-added"]
    name: Name
    every: Annotated[Literal["hour", "day", "week"], Limits(refusal=f"must be one of {[*PERIODS]}")]
    since: int
    asked: Json
    token: Index | None
    by: Words


class ScheduleStopped(EntryForm):
    """A schedule submits no more."""

    type: Literal["schedule-stopped"]
    schedule: Index
    reason: Annotated[str, Limits(shortest=1, longest=LONGEST, refusal=f"must be 1 to {LONGEST} characters")]


class ScheduleRemoved(EntryForm):
    """A schedule ends, and its name is free."""

    type: Literal["schedule-removed"]
    schedule: Index
    by: Words
