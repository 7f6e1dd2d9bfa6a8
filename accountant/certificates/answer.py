"""The statement that answers a query of counts, sums and means: an in-toto statement about the dataset's public schema,
signed as certificates are, and bound to the ledger by a `profiled` entry. It states the noisy sums, from which every
figure follows, and those of coarser queries too.
"""

from __future__ import annotations

from typing import Literal

from accountant.certificates.profile import KeyForm, Real, TableForm
from accountant.certificates.statement_kind import CountsPredicate, StatementKind, Whole
from dpserve_verify.certificates import stated
from dpserve_verify.certificates.predicate import Count, Index, StatementForm, Text
from dpserve_verify.formats.forms import Form, Limits, form_field


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
    is_sum: bool = form_field(key="sum", about="its numbers: 1 at one end of the range, 0 at the other")
    ends: list[Real] | None = form_field(
        default=None, about="of a sum: the declared range", limits=Limits(shortest=2, longest=2)
    )
    end: Literal["low", "high"] | None = form_field(default=None, about="of a sum: where a row counts 1")
    within: Real | None = form_field(default=None, about="of a sum: how far one row's number may be off")
    calendar: Literal["date", "datetime", "time"] | None = form_field(
        default=None, about="of a sum: of what its numbers stand for"
    )
    everywhere: bool | None = form_field(default=None, about="of a sum: no row is without the column")
    where: list[ConditionForm] | None = form_field(default=None, about="over those rows alone that meet these as well")


class AnswerPredicate(CountsPredicate):
    """Noisy sums of a dataset's rows in public cells."""

    rows: TableForm
    select: Text = form_field(about="the query")
    by: list[KeyForm] = form_field(about="the columns whose bins, each with each, are the cells")
    where: list[ConditionForm] = form_field(about="rows that meet all of them are counted")
    measures: list[MeasureForm] = form_field(limits=Limits(shortest=1))
    grid: Count = form_field(about="the counts are in 1 / grid")
    variance: Real = form_field(about="of the noise in each of them, in rows squared")
    counts: list[Whole] = form_field(about="measure after measure, cell after cell, the last column fastest")


class AnswerStatement(StatementForm):
    """An in-toto Statement v1 about exactly one schema file."""

    predicate_type: Literal["https://dpserve/query-answer/v1"] = form_field(key="predicateType")
    predicate: AnswerPredicate


Answer = stated.Stated[AnswerPredicate]


class AnswerKind(StatementKind[AnswerPredicate]):
    """The answer to a query; it is about the public schema, by its digest."""

    rule, form, folder = stated.ANSWER, AnswerStatement, "profiles"


ANSWER = AnswerKind()
