"""Datasets: how they come, grow, rest and go."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from dpserve_verify.entries.entry import (
    Budget,
    Count,
    EntryForm,
    Figure,
    Filter,
    Hex,
    Index,
    Line,
    Mark,
    Name,
    PriceForm,
    ReasonedForm,
    ReasonForm,
    SumsForm,
    Text,
    Words,
)
from dpserve_verify.formats.forms import Form, Limits, form_field
from dpserve_verify.privacy.made_from import MOST

DOORS = ("append", "evaluate", "register")  # where files are compared with registered datasets
Relation = Annotated[Literal["replace-one", "add-remove"], Limits(refusal="must be replace-one or add-remove")]
Ids = Annotated[list[Literal["distinct-ids", "one-person"]], Limits(shortest=1)]
Targets = Annotated[list[Words], Limits(shortest=2)]
Held = Literal["all", "training", "holdout"]


class UnitForm(Form):
    """Who is protected, by which column, and how many rows of one unit there may be."""

    name: Text
    column: Text | None
    contributions: Count


class QueryForm(Form):
    """The query that rows were read by; reason and who gave it stand together."""

    sha256: Hex
    reason: Words | None = form_field(absent=True)
    by: Words | None = form_field(absent=True)


class RefinedForm(Form):
    """A profile that a schema was refined from."""

    entry: Index
    dataset: Name
    part: Held
    epsilon: Figure
    delta: Figure
    same_people: bool


class PeriodForm(Form):
    """The days that all rows of a block are of."""

    column: Text
    since: Text
    until: Text


class CarriedForm(Form):
    """What was used of an account before a total for one person carries it on."""

    used: SumsForm
    reserved: PriceForm
    analysts: dict[str, PriceForm]


Carried = Annotated[Any, Limits(shape=list[CarriedForm])]


class RowsForm(EntryForm):
    """What is said of the rows of a dataset as it comes."""

    dataset: Name
    uuid: Text
    relation: Relation
    unit: UnitForm
    records: Count
    schema: Hex
    commitment: Hex
    targets: Targets | None = form_field(absent=True, about="where a job may be about one of several")
    cells: Mark | None = form_field(absent=True, about="numbers stand in fine cells")
    query: QueryForm | None = form_field(absent=True)
    refined: Annotated[list[RefinedForm], Limits(shortest=1, longest=MOST)] | None = form_field(absent=True)
    ids: Ids | None = form_field(absent=True)
    firsts: Mark | None = form_field(absent=True)


class DatasetRegistered(RowsForm):
    """A dataset that founds a family with its total."""

    type: Literal["dataset-registered"]
    family: Text
    budget: Budget
    filter: Filter
    family_name: Name | None = form_field(absent=True)
    new_people: ReasonForm | None = form_field(absent=True)
    holdout: Figure | None = form_field(absent=True, about="share of units that are kept aside")
    person: Budget | None = form_field(absent=True, about="total for one person over all blocks")
    institutions: Count | None = form_field(absent=True, about="with how many the rows stay")


class DatasetJoined(RowsForm):
    """Further rows about the people of families that stand."""

    type: Literal["dataset-joined"]
    families: Annotated[list[Text], Limits(shortest=1)]


class PersonTotal(EntryForm):
    """The total for one person over all blocks."""

    type: Literal["person-total"]
    dataset: Name
    family: Text
    budget: Budget
    filter: Filter
    carried: Carried | None = form_field(absent=True, about="what was used before it, of each part")
    largest: Figure | None = form_field(absent=True)
    reason: Line | None = form_field(absent=True)
    by: Line | None = form_field(absent=True)


class DatasetAppended(EntryForm):
    """A block of rows, with an account of its family's total."""

    type: Literal["dataset-appended"]
    dataset: Name
    block: Count
    commitment: Hex
    records: Count
    by: Text
    period: PeriodForm | None = form_field(absent=True)
    new_rows: ReasonForm | None = form_field(absent=True)
    query: QueryForm | None = form_field(absent=True)
    ids: Ids | None = form_field(absent=True)
    each_block: ReasonForm | None = form_field(absent=True)


class BlocksDropped(ReasonedForm):
    """The rows of the oldest blocks are deleted."""

    type: Literal["blocks-dropped"]
    dataset: Name
    upto: Count


class DatasetArchived(ReasonedForm):
    """A dataset takes no job, or takes them again."""

    type: Literal["dataset-archived", "dataset-unarchived"]
    dataset: Name


class DatasetWithdrawn(ReasonedForm):
    """A registration ends, as if it had never been."""

    type: Literal["dataset-withdrawn"]
    dataset: Name
    registered: Index


class RowsCompared(EntryForm):
    """A file was compared with registered datasets, and was not registered."""

    type: Literal["rows-compared"]
    door: Annotated[Literal["append", "evaluate", "register"], Limits(refusal=f"must be one of {[*DOORS]}")]
    dataset: Name
    concerns: list[Name]
    by: Text
    data: Hex | None = form_field(absent=True)
