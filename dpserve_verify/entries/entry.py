"""What the forms of all entries share: the words that their fields are made of, and how one is read.

A form is the one statement of what an entry of its kind holds: the audit reads by it, and the published JSON Schema
(docs/ledger.schema.json) is made from it. What else must hold, given the entries before, is the kind's rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from dpserve_verify.formats.forms import Form, Limits, form_field
from dpserve_verify.privacy.budget import NAME_PATTERN

if TYPE_CHECKING:
    from dpserve_verify.audit.replay import Replay

_BLANKS = r"\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"  # as str.strip has them
_NAMED = "must be 1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit"

Name = Annotated[str, Limits(pattern=f"^{NAME_PATTERN}$", refusal=_NAMED)]
Time = Annotated[str, Limits(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$", refusal="must be like 2026-01-31T23:59:59Z")]
Hex = Annotated[str, Limits(pattern="^[0-9a-f]{64}$", refusal="must be 64 hexadecimal digits")]
Figure = Annotated[
    str, Limits(pattern=r"^(0|[1-9][0-9]*)(\.[0-9]+)?$", longest=40, refusal="must be a plain decimal of 40 characters")
]
Sum = Annotated[str, Limits(pattern=r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?$", longest=40)]
Index = Annotated[int, Limits(low=0, refusal="must be the index of an entry before")]
Count = Annotated[int, Limits(low=1, refusal="must be an integer from 1")]
Text = Annotated[str, Limits(shortest=1, refusal="must be a string")]
Words = Annotated[str, Limits(shortest=1, longest=200, refusal="must be 1 to 200 characters")]
SAYS = rf"^[\s\S]*[^{_BLANKS}][\s\S]*$"  # a text that says something
Line = Annotated[str, Limits(pattern=SAYS, refusal="must be a text that says something")]
Mark = Annotated[Literal[True], Limits(refusal="must be true where it stands")]
Json = dict[str, Any]


class EntryForm(Form):
    """An entry of one kind, or of some that hold the same. Its class's `type` names them.

    Attributes:
        generation: of kinds, which it came with: 45 of the first 45. One that comes later says the next number: who
            knows those before alone writes nothing behind it (`accountant.store.version_fence`).
    """

    generation: ClassVar[int] = 45

    time: Time

    @classmethod
    def certificate(cls) -> str:
        """Return the key of the entry that bound the certificate which it is about; "" where it is about none."""
        keys = cls.keys()
        return next((key for key in ("base", "issued") if key in keys), "")

    @classmethod
    def about_job(cls) -> bool:
        """Return whether it is about a job, or is the reservation of one."""
        return not cls.keys().isdisjoint({"reservation", "idempotency_key"})

    def judge(self, replay: Replay, seq: int) -> None:
        """Judge it, the entry at `seq`, by the entries before it, and take it in. LedgerInvalid says what is wrong."""
        raise NotImplementedError


class ReasonedForm(EntryForm):
    """An entry that says who wrote it, and why."""

    reason: Line
    by: Line


class ReasonForm(Form):
    """Why something was allowed, and by whom."""

    reason: Line
    by: Line


class BudgetForm(Form):
    """A total (epsilon, delta)."""

    epsilon: Figure
    delta: Figure
    outside: Figure | None = form_field(absent=True, about="of delta, what is set apart for releases made elsewhere")


class CriterionForm(Form):
    """A criterion of a filter: the cap on the Renyi sum at one order, and its share of delta."""

    order: Figure
    weight: Figure
    cap: Figure


class PriceForm(Form):
    """A price, or a sum of prices."""

    pure: Sum
    unbounded: int = form_field(about="jobs without a pure price")
    rdp: dict[str, Sum] = form_field(about="by order, in its one spelling")


class SumsForm(PriceForm):
    """What an account has used."""

    whole: Index | None = form_field(absent=True, about="the job that took the whole total")


class AnalystForm(Form):
    """What one analyst has used of an account."""

    name: Text
    used: PriceForm


class AccountForm(Form):
    """An account after the entry. Accounts of blocks that stand alike have one line."""

    family: Index = form_field(about="index of the entry that founded it")
    changed: Index | None = form_field(about="index of the entry that changed its total last")
    used: SumsForm
    reserved: PriceForm = form_field(about="of `used`, what jobs that have not begun take")
    part: Literal["holdout"] | None = form_field(absent=True)
    person: Mark | None = form_field(absent=True, about="it is of one person over all blocks")
    analyst: AnalystForm | None = form_field(absent=True)
    also: list[Index] | None = form_field(absent=True, about="accounts that stand alike")


# What a rule compares with what it reckons itself, or reads on its own: taken as it comes.
Accounts = Annotated[Any, Limits(shape=list[AccountForm])]
Budget = Annotated[Any, Limits(shape=BudgetForm)]
Filter = Annotated[Any, Limits(shape=list[CriterionForm])]
Price = Annotated[Any, Limits(shape=PriceForm)]
