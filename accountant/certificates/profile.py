"""The statement of how the rows of a dataset are spread: an in-toto statement about its public schema, signed as
certificates are, and bound to the ledger by a `profiled` entry. It states the noisy counts, from which every figure
follows.
"""

from __future__ import annotations

from typing import Annotated, Literal

from accountant.certificates.statement_kind import CountedRows, CountsPredicate, StatementKind, Whole
from dpserve_verify.certificates import stated
from dpserve_verify.certificates.predicate import Count, Figure, StatementForm, Text
from dpserve_verify.formats.forms import Form, Limits, form_field

METHOD = (
    "each interval holds what a test of the noisy counts does not refuse: figures of the rows themselves, numbers "
    "outside a column's ends taken as the nearer end; only the noise is left to chance"
)
Real = Annotated[str, Limits(pattern=r"^-?(0|[1-9][0-9]*)(\.[0-9]+)?(e[+-]?[0-9]+)?$", longest=30)]
Told = Annotated[list[Real | None], Limits(shortest=3, longest=3, about="value, low end, high end")]


class TableForm(CountedRows):
    """Whose rows were counted, and which of them."""

    records: Count | None = form_field(about="how many rows there are, where that is public; else null")
    share: Figure | None = form_field(
        default=None,
        about="of the units, where some are kept aside: the share in this part, by a keyed hash of each",
    )
    unit_rows: Count | None = form_field(
        key="unitRows", default=None, about="beside a share: how many rows of one unit are counted at most"
    )
    window: list[Count] | None = form_field(
        default=None,
        about="where it grows: the first and the last block",
        limits=Limits(shortest=2, longest=2),
    )


class KeyForm(Form):
    """A column, and its public bins."""

    name: Text
    role: Literal["feature", "target"]
    type: Literal["numeric", "categorical", "boolean"]
    edges: list[Real] | None = form_field(
        default=None, about="of a number: ascending; bin j holds edges[j-1] < x <= edges[j]"
    )
    ends: list[Real] | None = form_field(
        default=None, about="of a number: the declared range", limits=Limits(shortest=2, longest=2)
    )
    values: list[Text] | None = form_field(default=None, about="the categories, in the order of their bins")
    calendar: Literal["date", "datetime", "time"] | None = form_field(
        default=None, about="of a number that stands for a date (days since 1970-01-01) or a time (seconds)"
    )
    absent: list[Literal["other", "missing"]] | None = form_field(
        default=None,
        about="bins that no row can be in: a target has no value but its classes",
        limits=Limits(longest=2),
    )


class ColumnForm(KeyForm):
    """One column: its public bins, how many rows fell into each, and what follows from that."""

    counts: list[Whole] = form_field(about="bins or categories, then other values (categorical), then missing ones")
    missing: Told
    mean: Told | None = form_field(default=None, about="of a number, where it is not missing")
    quantiles: list[Told] | None = form_field(default=None, about="of a number, at `levels`, where it is not missing")
    shares: list[Told] | None = form_field(
        default=None, about="of each category, of all rows, in the order of the counts"
    )


class PairForm(Form):
    """Two columns together: rows by bin of the first, then of the second, each as in their own counts;
    by cell where the pairs were chosen."""

    columns: list[Text] = form_field(limits=Limits(shortest=2, longest=2))
    counts: list[Whole]


class ChosenForm(Form):
    """How the pairs were chosen: all with one column, and the others along a tree, the heaviest by these scores."""

    around: Text = form_field(about="the column that every other one is counted with")
    scores: list[Whole] = form_field(
        about="of each pair of the other columns: how far its rows are from those of independent ones, in 1 / grid rows"
    )
    cells: list[list[Whole]] = form_field(about="of each column: in which cell of its pairs each of its bins lies")
    variance: Real = form_field(about="of the noise in each count of a pair, in rows squared")


class ProfilePredicate(CountsPredicate):
    """How the rows of a dataset are spread."""

    rows: TableForm
    grid: Count = form_field(about="the counts are in 1 / grid rows")
    variance: Real = form_field(about="of the noise in each count, in rows squared")
    columns: list[ColumnForm] = form_field(limits=Limits(shortest=1))
    pairs: list[PairForm]
    chosen: ChosenForm | None = form_field(default=None, about="only where the pairs were chosen privately")
    records: Told
    levels: list[Figure] = form_field(about="of the quantiles")
    method: Text


class ProfileStatement(StatementForm):
    """An in-toto Statement v1 about exactly one schema file."""

    predicate_type: Literal["https://dpserve/dataset-profile/v1"] = form_field(key="predicateType")
    predicate: ProfilePredicate


Profile = stated.Stated[ProfilePredicate]


class ProfileKind(StatementKind[ProfilePredicate]):
    """How the rows of a dataset are spread; it is about the public schema, by its digest."""

    rule, form, folder = stated.PROFILE, ProfileStatement, "profiles"


PROFILE = ProfileKind()
