"""Datasets: how they come, grow, rest and go."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

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
from dpserve_verify.privacy.soundness import require

if TYPE_CHECKING:
    from dpserve_verify.audit.replay import Replay

DOORS = ("append", "evaluate", "register")  # where files are compared with registered datasets
Relation = Annotated[Literal["replace-one", "add-remove"], Limits(refusal="must be replace-one or add-remove")]
Ids = Annotated[list[Literal["distinct-ids", "one-person"]], Limits(shortest=1)]
Targets = Annotated[list[Words], Limits(shortest=2, refusal="must be two or more names, each once")]
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


class WeightForm(Form):
    """What says what a row weighs, and the most that one may."""

    column: Text
    most: Figure


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
    weight: WeightForm | None = form_field(absent=True, about="rows count by their weight")


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

    def judge(self, replay: Replay, seq: int) -> None:
        """Judge it, as `EntryForm.judge`."""
        replay.books.blocks.judge_dropped(self.dataset, self.upto, replay.books.datasets)


class DatasetArchived(ReasonedForm):
    """A dataset takes no job, or takes them again."""

    type: Literal["dataset-archived", "dataset-unarchived"]
    dataset: Name

    def judge(self, replay: Replay, seq: int) -> None:
        """Judge it, as `EntryForm.judge`."""
        replay.archive.judge("dataset", self.dataset, self.type == "dataset-archived", replay.books.datasets)


class DatasetWithdrawn(ReasonedForm):
    """A registration ends, as if it had never been: no job on the dataset stands, and nothing that names it would pass
    to another one of its name.
    """

    type: Literal["dataset-withdrawn"]
    dataset: Name
    registered: Index

    def judge(self, replay: Replay, seq: int) -> None:
        """Judge it, as `EntryForm.judge`."""
        name, books = self.dataset, replay.books
        holding = list(self._what_holds(replay))
        require(not holding, f"dataset={name}: cannot be withdrawn: {'; '.join(holding[:5])}", "wrong_state")
        books.withdraw(self)
        replay.archive.names.discard(("dataset", name))

    def _what_holds(self, replay: Replay) -> Iterator[str]:
        """Yield what stands in the way, in words, with what ends it: what was begun for the dataset, and not ended."""
        name, books = self.dataset, replay.books
        books.dataset(name)
        dataset = books.datasets[name]
        if dataset.remote:
            yield "its rows stay with their owners, who know it by its name; retire it"
        for seq, job in replay.jobs.items():
            if job.dataset == name and job.state != "released":
                reserved = f"job {seq} was reserved on it; cancel it before it starts"
                yield (
                    reserved if job.state == "reserved" else f"job {seq} has started: its price stays spent; retire it"
                )
        if replay.charges.on(self.registered):
            yield "a release made elsewhere was charged to it, which stays; retire it"
        for other, state in books.datasets.items():
            if state.seq > dataset.seq and not {*state.families}.isdisjoint(dataset.families):
                yield f"dataset {other} was registered in its family since; withdraw that first"
        if books.blocks.has_grown(name):
            yield f"it has grown by block {books.blocks.known[name].last}; retire it"
        founded = books.family_names(name) if dataset.families == (dataset.uuid,) else []
        on = [("dataset", name), *(("family", called) for called in founded)]
        for seq in replay.access.standing(on, self.time):
            yield f"grant {seq} of {replay.access.grants[seq].principal} is on it; dpserve grant revoke {seq}"
        for learner in replay.learners.admitted_for(name):
            yield f"learner {learner} is admitted for its jobs; dpserve learner remove {learner}"
        for schedule in replay.schedules.asking_for(name):
            yield f"schedule {schedule} is on it; dpserve schedule remove {schedule}"


class RowsCompared(EntryForm):
    """A file was compared with registered datasets, and was not registered. It says nothing else of the rows."""

    type: Literal["rows-compared"]
    door: Annotated[Literal["append", "evaluate", "register"], Limits(refusal=f"must be one of {[*DOORS]}")]
    dataset: Name
    concerns: list[Name]
    by: Text
    data: Hex | None = form_field(absent=True)

    def judge(self, replay: Replay, seq: int) -> None:
        """Judge it, as `EntryForm.judge`."""
        require(self.concerns == sorted(set(self.concerns)), "concerns: must be names, each once and in order")
        unknown = [name for name in self.concerns if name not in replay.books.datasets]
        require(not unknown, f"concerns: {unknown!r:.80} are not registered before")


def require_bounded(several: bool, parted: bool, names_people: bool) -> None:
    """Raise InputError where rows that join families would not be bounded, or could be about people of either part.

    Args:
        several: whether they join more than one.
        parted: whether one of these keeps units aside.
        names_people: whether a column of them does.
    """
    unbounded = (
        "unit=record: rows of several families need the column (unit) that names the person in all of them; else a "
        "record of one family may stand in any number of joined rows, and nothing bounds that number"
    )
    require(names_people or not several, unbounded, "bad_input")
    keys = "family: one of these keeps rows aside by a key of its own; rows of several families can have no part"
    require(not (parted and several), keys, "bad_input")
    either = (
        "unit=record: the family keeps rows aside, and where no column (unit) names the person, rows of another "
        "dataset may be about people of either part"
    )
    require(names_people or not parted, either, "bad_input")


def require_open(archived: Container[tuple[str, str]], dataset: str) -> None:
    """Raise InputError where a dataset is archived: it takes no further job, schedule or block."""
    retired = (
        f"dataset={dataset}: is retired, and takes no further job, schedule or block; `dpserve dataset restore "
        f"{dataset} --reason TEXT` takes it up again"
    )
    require(("dataset", dataset) not in archived, retired, "wrong_state")


@dataclass
class Archive:
    """The datasets and models that are archived, by what they are and their name."""

    names: set[tuple[str, str]] = field(default_factory=set)

    def judge_open(self, value: Mapping[str, Any]) -> None:
        """Judge a job, a schedule or a block: its dataset is not archived."""
        require_open(self.names, value["asked"]["dataset"] if value["type"] == "schedule-added" else value["dataset"])

    def judge(self, what: str, name: str, begins: bool, known: Collection[str]) -> None:
        """Judge that a dataset or a certified model of that name is archived once, and unarchived after that."""
        require(name in known, f"{what}={name}: there is no such {what}", "unknown_name", **{what: name})
        already = f"{what}={name}: is {'archived already' if begins else 'not archived'}"
        require(((what, name) in self.names) is not begins, already, "wrong_state")
        (self.names.add if begins else self.names.discard)((what, name))
