"""Jobs, from the price that is set aside to what binds their results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from dpserve_verify.certificates.attack import Runs
from dpserve_verify.entries.entry import (
    Accounts,
    EntryForm,
    Figure,
    Hex,
    Index,
    Json,
    Mark,
    Name,
    Price,
    Text,
)
from dpserve_verify.formats.forms import Form, Limits, form_field
from dpserve_verify.privacy.made_from import MOST

if TYPE_CHECKING:
    from dpserve_verify.audit.replay import Replay


class RunForm(Form):
    """A mechanism of a plan, run so many times, and what one run costs."""

    mechanism: Text
    purpose: Text
    event: Json
    sensitivity: Figure
    norm: Text
    count: int


class ClaimForm(Form):
    """What a job promises."""

    epsilon: Figure
    delta: Figure
    order: Figure | None
    bound: Text


Plan = Annotated[Any, Limits(shape=Annotated[list[RunForm], Limits(shortest=1)])]
Claim = Annotated[Any, Limits(shape=ClaimForm)]


class PeriodOfScheduleForm(Form):
    """The schedule that asked for a job, and for which of its periods."""

    entry: Index
    period: int


Target = Annotated[str, Limits(shortest=1, refusal="must be one of the dataset's")]


class AskedForm(EntryForm):
    """What was asked of a job. Its request's digest is of these fields."""

    dataset: Name
    learner: Text
    parameters: Json
    model: str = form_field(about="empty where the job is about a dataset")
    epsilon: Figure
    delta: Figure
    target: Target | None = form_field(absent=True)
    promote: Mark | None = form_field(absent=True)
    part: Literal["holdout"] | None = form_field(absent=True)
    blocks: Text | None = form_field(absent=True)
    attack: Runs | None = form_field(
        absent=True, about="in how many runs its learner is attacked, by a protocol that is registered so"
    )
    evaluates: Index | None = form_field(absent=True, about="the certified model, or the job that makes it")
    against: Index | None = form_field(absent=True)
    profile: Mark | None = form_field(absent=True)
    contributes: Hex | None = form_field(absent=True, about="definition of a campaign elsewhere")


ASKED = AskedForm.keys() - EntryForm.keys()


class Reserved(AskedForm):
    """A job's price is set aside."""

    type: Literal["reserved"]
    unit: Figure
    plan: Plan
    price: Price
    claim: Claim
    request: Hex
    idempotency_key: Text | None
    by: Text
    after: Accounts
    whole: Mark | None = form_field(absent=True, about="it takes the whole total")
    bound: Index | None = form_field(absent=True, about="the job that the model's name is bound by")
    window: list[int] | None = form_field(absent=True, about="first and last block that `blocks` means")
    schedule: PeriodOfScheduleForm | None = form_field(absent=True)
    made_from: Annotated[list[Index], Limits(shortest=1, longest=MOST)] | None = form_field(absent=True)


class Started(EntryForm):
    """A job began: its price stays spent."""

    type: Literal["started"]
    reservation: Index
    after: Accounts


class Resumed(EntryForm):
    """A job goes on in another process."""

    type: Literal["resumed"]
    reservation: Index
    times: int
    window: list[int] | None = form_field(absent=True)


class Committed(EntryForm):
    """A job released its numbers, which have this digest."""

    type: Literal["committed"]
    reservation: Index
    released: Hex

    def judge(self, replay: Replay, seq: int) -> None:
        """Judge it, as `EntryForm.judge`."""
        replay.campaigns.require_answered(self.reservation, self.released)
        replay.move(self.reservation, "started", "committed").committed = seq


class Burned(EntryForm):
    """A job came to nothing after it had begun."""

    type: Literal["burned"]
    reservation: Index
    reason: str

    def judge(self, replay: Replay, seq: int) -> None:
        """Judge it, as `EntryForm.judge`."""
        replay.move(self.reservation, "started", "burned")


class Released(EntryForm):
    """A job was given up before it began, and its price is given back."""

    type: Literal["released"]
    reservation: Index
    after: Accounts
