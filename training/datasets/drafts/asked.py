"""What a registration asks for, and the registration: the same from a terminal and from a browser."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from accountant.access.grants import Access
from accountant.errors import AnswerMissing
from accountant.home import Home
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.records import NewPeople, identity_statement
from accountant.ledger.families.row_queries import RowQuery
from dpserve_verify.errors import InputError
from dpserve_verify.privacy.budget import Budget, exact_decimal, parse_relation
from training.datasets import datasets, made_up
from training.datasets.copy_guard import Asker

NO_HOLDOUT = "none"  # an answer: nobody is kept aside for evaluations
QUESTIONS = {  # what holds permanently, so that no door answers it by itself
    "unit": "whose is a row? Name the column that names the person, or record: each row is another person",
    "epsilon": "epsilon in all: how much may everything that is ever released cost together?",
    "delta": "delta in all: with which chance may the promise fail? Far below one in the number of people",
    "holdout": "holdout: which share of the people is kept aside for evaluations, like 0.2, or none? It cannot be "
    "declared later",
}


@dataclass(frozen=True)
class AskedRegistration:
    """As it was typed: decimals are texts. `family`: datasets of the same people, whose budget it shares; else epsilon
    and delta are given, once and permanently. `holdout`: a share, or NO_HOLDOUT. `made_up`: the rows are nobody's.
    `person_epsilon`, `person_delta`: the total for one person over all blocks that may come. `one_person`: an id with
    many more rows than others is one; `distinct_ids`: those that only capitals or leading zeros tell apart are
    different people.
    """

    name: str
    epsilon: str | None = None
    delta: str | None = None
    relation: str = "add-remove"
    unit: str | None = None
    contributions: int = 1
    family: tuple[str, ...] = ()
    family_name: str | None = None
    holdout: str | None = None
    new_people: bool = False
    reason: str | None = None
    made_up: bool = False
    person_epsilon: str | None = None
    person_delta: str | None = None
    one_person: bool = False
    distinct_ids: bool = False

    def said_ids(self) -> tuple[str, ...]:
        """Return what is said of the ids, as the entry has it."""
        return identity_statement(self.one_person, self.distinct_ids)

    def total(self) -> Budget | None:
        """Return the total of the privacy budget; None where a family's is shared. InputError where both or none is
        given.
        """
        if self.family and self.epsilon is None and self.delta is None:
            return None
        if self.family or self.epsilon is None or self.delta is None:
            raise InputError("budget: give --epsilon and --delta, or --family whose budget is shared, and not both")
        return Budget.of(self.epsilon, self.delta)

    def person(self) -> Budget | None:
        """Return the total for one person over all blocks. InputError where half of it is given."""
        if self.person_epsilon is None and self.person_delta is None:
            return None
        if self.person_epsilon is None or self.person_delta is None:
            raise InputError("person: give --person-epsilon and --person-delta, or none of them")
        return Budget.of(self.person_epsilon, self.person_delta)

    def require_answers(self) -> None:
        """AnswerMissing asks every question that was left open. For doors where somebody fills in a form: a command
        that says nothing of them is asked where it must not be assumed (`training.datasets.unit_question`).
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
        parse_relation(self.relation)
        self.share()
        if self.new_people != (self.reason is not None):
            raise InputError("new-people: give it with --reason, and a reason with --new-people")


def register_asked(
    home: Home,
    asked: AskedRegistration,
    rows: Path,
    schema: Path,
    by: str,
    origin: str | None = None,
    query: RowQuery | None = None,
    access: Access | None = None,
) -> Dataset:
    """Register `rows`, as `by` asked for. `origin`: where they came from, if not from there; `query`: by which.
    `access`: what `by` may see; None: they hold the home's keys.
    """
    asked.check()
    made_up.require_real(rows, asked.made_up)
    return datasets.register(
        home, asked.name, rows, schema, asked.total(), parse_relation(asked.relation), asked.unit, asked.contributions,
        [home.ledger.member(name) for name in asked.family],
        None if asked.reason is None else NewPeople(asked.reason, by), asked.family_name,
        asked.share(), origin, asked.person(), query, Asker(by, access), asked.said_ids(),
    )  # fmt: skip
