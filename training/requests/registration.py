"""What a registration asks for: the same from a terminal, over REST and from a browser."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal

from pydantic import Field, StrictBool, StrictInt
from pydantic.dataclasses import dataclass

from accountant.errors import AnswerMissing
from accountant.ledger.families.records import MAX_CONTRIBUTIONS, identity_statement
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget, exact_decimal
from training.requests.base import CLOSED, Checked, Option
from training.requests.fields import Delta, Epsilon, Name, Text, Texts

NO_HOLDOUT = "none"  # an answer: nobody is kept aside for evaluations
QUESTIONS = {  # what holds permanently, so that no door answers it by itself
    "unit": "whose is a row? Name the column that names the person, or record: each row is another person",
    "epsilon": "epsilon in all: how much may everything that is ever released cost together?",
    "delta": "delta in all: with which chance may the promise fail? Far below one in the number of people",
    "holdout": "holdout: which share of the people is kept aside for evaluations, like 0.2, or none? It cannot be "
    "declared later",
}


@dataclass(frozen=True, config=CLOSED)
class RegistrationRequest(Checked):
    """A registration: with a total of its own, given once and permanently, or in the family of others."""

    name: Annotated[Name, Field(description="the dataset's name")]
    epsilon: Annotated[Epsilon | None, Field(description="epsilon in all, permanently")] = None
    delta: Annotated[Delta | None, Field(description="delta in all, permanently")] = None
    delta_outside: Annotated[
        Delta | None,
        Field(description="of that delta, a part for releases made elsewhere that have one, permanently"),
    ] = None
    relation: Annotated[
        Literal["replace-one", "add-remove"], Field(description="neighbouring relation: add-remove or replace-one")
    ] = "add-remove"
    unit: Annotated[
        Text | None,
        Field(description='the column that names the person, or "record": each row is another person'),
    ] = None
    contributions: Annotated[
        StrictInt,
        Field(ge=1, le=MAX_CONTRIBUTIONS, description="rows of one person that are used at most"),
    ] = 1
    family: Annotated[
        Texts,
        Field(description="datasets of the same people, or their family, whose budget it shares"),
        Option("--family", "a dataset of the same people, or their family"),
    ] = ()
    family_name: Annotated[
        Text | None, Field(description="name of the family that is founded; the dataset's when left out")
    ] = None
    holdout: Annotated[
        Text | None,
        Field(description="share of the people kept aside for evaluation, 0.2 for instance; or none, as when left out"),
    ] = None
    new_people: Annotated[
        StrictBool, Field(description="these are people without a budget yet, whatever they look like")
    ] = False
    reason: Annotated[Text | None, Field(description="why; it stays in the ledger permanently")] = None
    made_up: Annotated[StrictBool, Field(description="the rows are made up, to try things with")] = False
    person_epsilon: Annotated[Epsilon | None, Field(description="epsilon for one person over all blocks to come")] = (
        None
    )
    person_delta: Annotated[Delta | None, Field(description="delta for one person over all blocks to come")] = None
    one_person: Annotated[StrictBool, Field(description="an id with many more rows than others is one person")] = False
    distinct_ids: Annotated[
        StrictBool, Field(description="ids that capitals or leading zeros alone tell apart are different people")
    ] = False
    as_read: Annotated[
        StrictBool,
        Field(
            description="what the check of the rows asks about is meant: their number, and cells that are "
            "written otherwise than listed"
        ),
    ] = False

    def said_ids(self) -> tuple[str, ...]:
        """Return what is said of the ids, as the entry has it."""
        return identity_statement(self.one_person, self.distinct_ids)

    def total(self) -> Budget | None:
        """Return the total of the privacy budget; None where a family's is shared. InputError where both or none is
        given.
        """
        if self.family and self.epsilon is None and self.delta is None and self.delta_outside is None:
            return None
        if self.family or self.epsilon is None or self.delta is None:
            raise InputError("budget: give --epsilon and --delta, or --family whose budget is shared, and not both")
        return Budget.of(self.epsilon, self.delta, self.delta_outside or "0")

    def person(self) -> Budget | None:
        """Return the total for one person over all blocks. InputError where half of it is given."""
        if self.person_epsilon is None and self.person_delta is None:
            return None
        if self.person_epsilon is None or self.person_delta is None:
            raise InputError("person: give --person-epsilon and --person-delta, or none of them")
        return Budget.of(self.person_epsilon, self.person_delta)

    def require_answers(self) -> None:
        """Raise AnswerMissing with every question that was left open.

        For doors where a person fills in a form: a command that says nothing of them is asked where it must not be
        assumed (`training.datasets.unit_question`).
        """
        shared = {"epsilon", "delta", "holdout"} if self.family else set()
        left_open = [name for name in QUESTIONS if getattr(self, name) is None and name not in shared]
        if left_open:
            raise AnswerMissing("; ".join(QUESTIONS[name] for name in left_open), answers=left_open)

    def share(self) -> Decimal | None:
        """Return the share of the people that is kept aside; None: of nobody. InputError where it is no decimal."""
        return None if self.holdout in (None, NO_HOLDOUT) else exact_decimal("holdout", self.holdout)

    def check(self) -> None:
        """Raise InputError for what is wrong whatever the rows say."""
        self.total()
        self.person()
        self.share()
        if self.new_people != (self.reason is not None):
            raise InputError("new-people: give it with --reason, and a reason with --new-people")
