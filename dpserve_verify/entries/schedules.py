"""Schedules: jobs that are asked for once a period."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from dpserve_verify.errors import LedgerInvalid
from dpserve_verify.privacy.soundness import require

if TYPE_CHECKING:
    from dpserve_verify.audit.replay import Replay
    from dpserve_verify.audit.replay_budget import Books
    from dpserve_verify.entries.access import Rights
from typing import Annotated, Literal

from dpserve_verify.entries.entry import Count, EntryForm, Index, Json, Name, Text, Words
from dpserve_verify.formats.forms import Form, Limits, form_field

PERIODS = ("hour", "day", "week", "month")
LONGEST = 500  # characters of a reason
Reason = Annotated[str, Limits(shortest=1, longest=LONGEST, refusal=f"must be 1 to {LONGEST} characters")]


class ScheduledRows(Form):
    """Files whose rows are appended before each job: their pattern, about how many rows each has, and why the same
    people get a budget of their own in each block, where they do.
    """

    data: Text
    records: Count
    each_block: Reason | None = form_field(absent=True)


class ScheduleAdded(EntryForm):
    """A schedule is made, by the token of an entry or at the command line."""

    type: Literal["schedule-added"]
    name: Name
    every: Annotated[Literal["hour", "day", "week", "month"], Limits(refusal=f"must be one of {[*PERIODS]}")]
    since: int
    asked: Json
    token: Index | None
    by: Words
    rows: ScheduledRows | None = form_field(absent=True)

    def judge(self, replay: Replay, seq: int) -> None:
        """Judge it, as `EntryForm.judge`."""
        replay.schedules.judge_added(seq, self, replay.access, replay.books)


class ScheduleStopped(EntryForm):
    """A schedule submits no more."""

    type: Literal["schedule-stopped"]
    schedule: Index
    reason: Reason

    def judge(self, replay: Replay, seq: int) -> None:
        """Judge it, as `EntryForm.judge`."""
        replay.schedules.judge_stopped(seq, self)


class ScheduleRemoved(EntryForm):
    """A schedule ends, and its name is free."""

    type: Literal["schedule-removed"]
    schedule: Index
    by: Words

    def judge(self, replay: Replay, seq: int) -> None:
        """Judge it, as `EntryForm.judge`."""
        replay.schedules.judge_removed(seq, self)


AUTO = "auto"  # in the place of a learner: the one that a public rule chooses


@dataclass(slots=True)
class ScheduleState:
    """A schedule as its entries leave it. `token`: the entry of the token that made it, None at the command line;
    `period`, `job`: of the newest job that it asked for; `stopped`: the entry that refused it more; `ended`: the one
    that removed it, or revoked its token.
    """

    name: str
    by: str
    token: int | None
    asked: dict[str, Any]
    period: int = -1
    job: int | None = None
    stopped: int | None = None
    ended: int | None = None


@dataclass
class Schedules:
    """By the index of the entry that made each."""

    states: dict[int, ScheduleState] = field(default_factory=dict)

    def judge_added(self, seq: int, form: ScheduleAdded, rights: Rights, books: Books) -> None:
        """Judge `schedule-added`: who makes it may train on the dataset; where a token does, it is good and acts for
        them; a name is in use until it is removed.
        """
        name, by, asked, token = form.name, form.by, form.asked, form.token
        require(isinstance(asked.get("epsilon"), str), "asked: must be a job")
        require(form.rows is None or token is None, "rows: are read by who holds the keys, at the command line")
        used = [at for at, each in self.states.items() if each.ended is None and each.name == name]
        require(not used, f"schedule={name}: there is one of that name", "name_taken")
        self._require_right(token, by, asked["dataset"], form.time, rights, books)
        self.states[seq] = ScheduleState(name, by, token, asked)

    def judge_stopped(self, seq: int, form: ScheduleStopped) -> None:
        """Judge `schedule-stopped`: a schedule that lives is refused more, for a reason."""
        state = self._state(form.schedule)
        require(state.stopped is None, f"schedule={form.schedule}: was stopped before, by entry {state.stopped}")
        state.stopped = seq

    def judge_removed(self, seq: int, form: ScheduleRemoved) -> None:
        """Judge `schedule-removed`: a schedule ends, stopped or not, and its name is free."""
        self._state(form.schedule).ended = seq

    def asking_for(self, dataset: str) -> list[str]:
        """Return the living schedules that ask for jobs on a dataset, by name."""
        return [each.name for each in self.states.values() if each.ended is None and each.asked["dataset"] == dataset]

    def end_with_token(self, created: int, revoked: int) -> None:
        """Note that the token of this entry was revoked: what it made ends with it."""
        for state in self.states.values():
            if state.token == created and state.ended is None:
                state.ended = revoked

    def judge_reserved(self, seq: int, value: Mapping[str, Any], rights: Rights, books: Books) -> None:
        """Judge a job that says it is of a schedule: that lives, and its token; it is the only job of its period, and
        what the schedule asks for.
        """
        if "schedule" not in value:
            return
        said = value["schedule"]
        state, period = self._state(said["entry"]), said["period"]
        stopped = f"schedule={state.name}: was stopped by entry {state.stopped}, and submits nothing"
        require(state.stopped is None, stopped, "wrong_state")
        require(period > state.period, f"period={period!r:.40}: must be after {state.period}")
        require(
            value["by"] == state.by, f"by={value['by']!r:.80}: must be {state.by}, whose schedule it is", "wrong_state"
        )
        self._require_right(state.token, state.by, value["dataset"], value["time"], rights, books)
        wanted = {"model": state.asked["dataset"], **state.asked}
        named = {name for name in ("dataset", "model", "learner", "target", "blocks") if name in wanted}
        named -= {"learner"} if wanted.get("learner", AUTO) == AUTO else set()
        differs: list[str] = sorted(name for name in named if value.get(name) != wanted[name])
        differs += ["epsilon"] if Decimal(value["epsilon"]) != Decimal(wanted["epsilon"]) else []
        differs += ["promote"] if value.get("promote", False) != wanted.get("promote", False) else []
        require(not differs, f"schedule={said['entry']}: asks for another {', '.join(differs)}")
        state.period, state.job = period, seq

    def _state(self, number: int) -> ScheduleState:
        state = self.states.get(number)
        if state is None or state.ended is not None:
            raise LedgerInvalid(f"schedule={number!r:.40}: no such schedule stands before, or it has ended")
        return state

    @staticmethod
    def _require_right(token: Any, by: str, dataset: str, time: str, rights: Rights, books: Books) -> None:
        """Raise LedgerInvalid unless who made a schedule may train on the dataset at `time`: by the token, or at the
        command line while no grant names them, and by grants from then on.
        """
        families = books.family_names(dataset)
        grants = [index for index, grant in rights.grants.items() if grant.principal == by]
        sources: list[int] = list(grants)
        if token is not None:
            made = next((each for each in rights.tokens.values() if each.seq == token), None)
            good = made is not None and made.revoked is None and made.principal == by
            revoked = f"token={token!r:.40}: was revoked, or acts for another than {by:.80}; what it made ended with it"
            require(good, revoked, "wrong_state")
            sources.append(token)
        elif not grants:
            return
        else:
            sources += [each.seq for each in rights.tokens.values() if each.principal == by]

        def holds(**on: Any) -> bool:
            return any(rights.holds(each, by, "train", time, **on) for each in sources)

        covered = holds(dataset=dataset) or all(holds(families=(name,)) for name in families)
        about = {"needs": ["train"], "on": {"dataset": dataset}}
        may_not = f"by={by:.80}: may not train; this takes train or admin on dataset {dataset}"
        require(covered, may_not, "forbidden", **about)
