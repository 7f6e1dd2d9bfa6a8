"""The statement that answers a query of counts, sums and means: an in-toto statement about the dataset's public schema,
signed as certificates are, and bound to the ledger by a `profiled` entry. It states the noisy sums, from which every
figure follows, and those of coarser queries too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from accountant.certificates.profile import KeyForm, Real, TableForm
from accountant.certificates.statement import counted_rows, part_to_json
from accountant.certificates.statement_kind import StatementKind
from accountant.certificates.worth import Whole
from accountant.ledger.families.families import Dataset
from accountant.ledger.families.records import Request
from dpserve_verify.certificates import stated
from dpserve_verify.certificates.predicate import (
    WORDS,
    AccountingForm,
    ClaimForm,
    Count,
    Figure,
    Index,
    LedgerForm,
    MechanismForm,
    RandomnessForm,
    SubjectForm,
    Text,
)
from dpserve_verify.formats.forms import Form, Limits, form_field
from dpserve_verify.privacy.events import Plan


class ConditionForm(Form):
    """Which rows are counted, by one column."""

    column: KeyForm
    codes: list[Index] | None = form_field(default=None, about="of categories and truth values: these bins")
    above: Real | None = form_field(default=None, about="of a number: above < x")
    upto: Real | None = form_field(default=None, about="of a number: x <= upto")
    missing: bool = form_field(about="of a number: where it is missing, and nowhere else; else where it is there")


class MeasureForm(Form):
    """What is added up in each cell."""

    column: Text | None = form_field(about="null: every row; else rows where this column is there")
    is_sum: bool = form_field(key="sum", about="its numbers, from -1 at the low end to 1 at the high end")
    ends: list[Real] | None = form_field(
        default=None, about="of a sum: the declared range", limits=Limits(shortest=2, longest=2)
    )
    within: Real | None = form_field(default=None, about="of a sum: how far one row's number may be off")
    calendar: Literal["date", "datetime", "time"] | None = form_field(
        default=None, about="of a sum: of what its numbers stand for"
    )
    where: list[ConditionForm] | None = form_field(default=None, about="over those rows alone that meet these as well")


class AnswerPredicate(Form):
    """Noisy sums of a dataset's rows in public cells."""

    rows: TableForm
    claim: ClaimForm
    mechanisms: list[MechanismForm]
    accounting: AccountingForm
    select: Text = form_field(about="the query")
    by: list[KeyForm] = form_field(about="the columns whose bins, each with each, are the cells")
    where: list[ConditionForm] = form_field(about="rows that meet all of them are counted")
    measures: list[MeasureForm] = form_field(limits=Limits(shortest=1))
    grid: Count = form_field(about="the counts are in 1 / grid")
    variance: Real = form_field(about="of the noise in each of them, in rows squared")
    counts: list[Whole] = form_field(about="measure after measure, cell after cell, the last column fastest")
    level: Figure = form_field(about="of each interval that follows")
    randomness: RandomnessForm
    implementation: dict[str, Text]
    ledger: LedgerForm
    not_covered: list[Text] = form_field(key="notCovered")
    words: Literal[2] = WORDS


class AnswerStatement(Form):
    """An in-toto Statement v1 about exactly one schema file."""

    type: Literal["https://in-toto.io/Statement/v1"] = form_field(key="_type")
    subject: list[SubjectForm] = form_field(limits=Limits(shortest=1, longest=1))
    predicate_type: Literal["https://dpserve/query-answer/v1"] = form_field(key="predicateType")
    predicate: AnswerPredicate


Answer = stated.Stated[AnswerPredicate]


class AnswerKind(StatementKind[AnswerPredicate]):
    """The answer to a query; it is about the public schema, by its digest."""

    rule, form = stated.ANSWER, AnswerStatement

    def statement(
        self,
        figures: Mapping[str, Any],
        part: str,
        records: int | None,
        dataset: Dataset,
        request: Request,
        spent: Plan,
        place: Mapping[str, Any],
    ) -> bytes:
        """Return its canonical bytes. `part`: of the rows; `records`: how many there are, where that is public;
        `dataset`: with the accounts of the part; `spent` and `place`: as `encode`.
        """
        body = {"rows": {**counted_rows(dataset, part), **part_to_json(dataset, part), "records": records}, **figures}
        about = dataset.registration
        return self.encode(f"{about.name}.schema", about.schema, body, dataset, request, spent, place)


ANSWER = AnswerKind()


if __name__ == "__main__":
    import json

    print(json.dumps(ANSWER.json_schema(), indent=2))
